"""Large products agree with float64, wherever they are computed."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flair_nas import SearchedRNN, load_genotype
from flair_nas.nn import matrix_product
from flair_nas.nn.matrix_product import multiply

pytestmark = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="this PyTorch has no oneDNN",
)
SIZES = st.integers(1, 20)


@pytest.fixture(autouse=True, scope="module")
def by_onednn() -> object:
    """Use oneDNN for all products, on each processor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix_product, "MKL_IS_SLOW", True)
        patch.setattr(matrix_product, "LEAST", 0)
        yield


def view(rows: int, columns: int, layout: str) -> Tensor:
    """Return a matrix that is contiguous, transposed, or a part of a wider one."""
    if layout == "transposed":
        return torch.randn(columns, rows).t()
    return torch.randn(rows, columns + 3 * (layout == "part"))[:, :columns]


@settings(derandomize=True, database=None)
@given(SIZES, SIZES, SIZES, *[st.sampled_from(["whole", "transposed", "part"])] * 2)
def test_products_and_first_and_second_derivatives_agree_with_float64(
    rows: int, inner: int, columns: int, layout: str, other: str
) -> None:
    factors = [view(rows, inner, layout), view(inner, columns, other)]
    direction = torch.randn(rows, columns)

    def results(dtype: torch.dtype, product: object) -> list[Tensor]:
        left, right = (factor.to(dtype).detach().requires_grad_() for factor in factors)
        found = product(left, right)  # type: ignore[operator]
        first = torch.autograd.grad(found, (left, right), direction.to(dtype), create_graph=True)
        second = torch.autograd.grad(sum(gradient.square().sum() for gradient in first), (left, right))
        return [found, *first, *second]

    for own, exact in zip(results(torch.float32, multiply), results(torch.float64, torch.mm)):
        torch.testing.assert_close(own.double(), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("recurrence", ["full", "elementwise"])
def test_a_layer_gives_the_same_by_either_library(recurrence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    layer = SearchedRNN(6, 5, dataclasses.replace(load_genotype("small-relu-tanh"), recurrence=recurrence))
    data, found = torch.randn(4, 3, 6), []
    for slow in (True, False):
        monkeypatch.setattr(matrix_product, "MKL_IS_SLOW", slow)
        output = layer(data)[0]
        found.append([output, *torch.autograd.grad(output.square().sum(), [*layer.parameters()])])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("changed", [0, 1])
def test_a_factor_that_no_gradient_needs_may_change(changed: int) -> None:
    """Like a layer's input if its weights are frozen."""
    factors = [torch.randn(3, 4), torch.randn(4, 5)]
    factors[1 - changed].requires_grad_()
    product = multiply(factors[0], factors[1])
    expected = torch.autograd.grad(torch.mm(*factors).sum(), factors[1 - changed])
    with torch.no_grad():
        factors[1 - changed].mul_(2)  # the gradient needs the other one alone
    torch.testing.assert_close(torch.autograd.grad(product.sum(), factors[1 - changed]), expected)


@pytest.mark.parametrize("shapes", [((3, 4), (5, 6)), ((3, 4), (4,))])
def test_shapes_that_do_not_fit_have_pytorchs_error(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied|mat2 must be a matrix"):
        multiply(torch.randn(shapes[0]), torch.randn(shapes[1]))


def test_autocast_still_lowers_the_precision() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert multiply(torch.randn(3, 4), torch.randn(4, 5)).dtype == torch.bfloat16


def test_torch_compile_traces_products_whole() -> None:
    left, right = torch.randn(3, 4), torch.randn(4, 5)
    compiled = torch.compile(multiply, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(left, right), left @ right)
