"""Triton's loop of elementwise recurrences against the equations; without a GPU, in Triton's interpreter."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton", reason="Triton is not installed")

from flair_nas.nn.kernels.elementwise_loop import loop_by_equations  # noqa: E402
from flair_nas.nn.kernels.triton_loop import run_triton_loop  # noqa: E402
from flair_nas.nn.packing import Packing  # noqa: E402

pytestmark = pytest.mark.gpu


def cases() -> Iterator[tuple[str, list[int], int, bool]]:
    """Yield an operation, the numbers of sequences at the steps, H, and whether each sequence has its own v."""
    for sizes in ([1], [3, 3, 3], [5, 4, 4, 1, 1, 1], [2] * 40):
        for operation, size, masked in (("tanh", 1, False), ("identity", 64, True), ("relu", 100, False)):
            yield operation, sizes, size, masked


@pytest.mark.parametrize(("operation", "sizes", "size", "masked"), cases())
def test_outputs_and_gradients_are_those_of_the_equations(
    operation: str, sizes: list[int], size: int, masked: bool
) -> None:
    torch.manual_seed(1)
    shapes = (sum(sizes), 2 * size), (sizes[0] if masked else 1, size), (sizes[0], size)
    given = [torch.randn(shape, dtype=torch.float64, device=DEVICE, requires_grad=True) for shape in shapes]
    direction = torch.randn(sum(sizes), size, dtype=torch.float64, device=DEVICE)
    found = []
    for loop in (run_triton_loop, loop_by_equations):
        states = loop(operation, *given, Packing(sizes, torch.device(DEVICE)))
        found.append([states.detach(), *torch.autograd.grad(states, given, direction)])
    for own, expected in zip(*found):
        torch.testing.assert_close(own, expected, rtol=1e-10, atol=1e-12)
