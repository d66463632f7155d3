"""Cross-entropy in blocks: the value and the gradients of PyTorch's own, in any precision, for any block."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from flair_nas.language_model import cross_entropy
from flair_nas.language_model.cross_entropy import cross_entropies, mean_cross_entropy

ROWS, SIZE, VOCABULARY = 45, 7, 19


def tensors(dtype: torch.dtype = torch.float64, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((ROWS, SIZE), (VOCABULARY, SIZE), (VOCABULARY,))
    rows, weight, bias = (torch.randn(shape, generator=generator, dtype=dtype) * scale for shape in shapes)
    targets = torch.randint(VOCABULARY, (ROWS,), generator=generator)
    return rows.requires_grad_(), weight.requires_grad_(), bias.requires_grad_(), targets


@pytest.fixture(params=[1, 10, ROWS, 1000])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks of that many rows."""
    monkeypatch.setattr(cross_entropy, "_ROWS", request.param)
    monkeypatch.setattr(cross_entropy, "_LOGITS", {"cpu": request.param * VOCABULARY})
    return int(request.param)


def test_losses_and_gradients_are_those_of_pytorch(block: int) -> None:
    rows, weight, bias, targets = tensors()
    plain = functional.cross_entropy(functional.linear(rows, weight, bias), targets, reduction="none")
    found = mean_cross_entropy(rows, weight, bias, targets)
    assert found.item() == pytest.approx(plain.mean().item(), rel=1e-13)
    torch.testing.assert_close(cross_entropies(rows, weight, bias, targets), plain, rtol=1e-12, atol=1e-13)
    wanted = torch.autograd.grad(3 * plain.mean(), (rows, weight, bias))
    for ours, theirs in zip(torch.autograd.grad(3 * found, (rows, weight, bias)), wanted):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_a_gradient_that_is_not_wanted_is_not_made(frozen: int) -> None:
    *parameters, targets = tensors()
    parameters[frozen].requires_grad_(False)
    mean_cross_entropy(*parameters, targets).backward()
    assert [parameter.grad is None for parameter in parameters] == [number == frozen for number in range(3)]


def test_without_gradients_the_mean_is_the_same_and_has_no_graph() -> None:
    *parameters, targets = tensors()
    with torch.no_grad():
        loss = mean_cross_entropy(*parameters, targets)
    assert not loss.requires_grad
    assert loss.item() == pytest.approx(mean_cross_entropy(*parameters, targets).item(), rel=1e-13)


def test_a_word_of_vanishing_probability_has_a_finite_loss() -> None:
    rows = torch.tensor([[1.0]], requires_grad=True)
    weight = torch.tensor([[500.0], [0.0]], requires_grad=True)
    loss = mean_cross_entropy(rows, weight, torch.zeros(2), torch.tensor([1]))
    assert loss.item() == 500
    loss.backward()
    assert rows.grad is not None and rows.grad.item() == 500


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_weight_that_is_not_finite_shows_in_the_loss(bad: float) -> None:
    rows, weight, bias, targets = tensors()
    with torch.no_grad():
        weight[3, 2] = bad
    assert not math.isfinite(mean_cross_entropy(rows, weight, bias, targets).item())


def test_under_autocast_the_loss_is_wide_and_gradients_have_the_dtype_of_their_tensors() -> None:
    *parameters, targets = tensors(torch.float32)
    exact = mean_cross_entropy(*parameters, targets)
    wanted = torch.autograd.grad(exact, parameters)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = mean_cross_entropy(*parameters, targets)
    found = torch.autograd.grad(rounded, parameters)
    assert rounded.dtype == torch.float32 and rounded.item() != exact.item()
    assert rounded.item() == pytest.approx(exact.item(), rel=0.01)
    for ours, theirs in zip(found, wanted):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() < 0.01 * theirs.norm()


def test_rows_of_a_lower_precision_are_taken_under_autocast() -> None:
    rows, weight, bias, targets = tensors(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        low = mean_cross_entropy(rows.bfloat16(), weight, bias, targets)
        assert low.item() == mean_cross_entropy(rows, weight, bias, targets).item()
    low.backward()
    assert rows.grad is not None and torch.isfinite(rows.grad).all()


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9])
def test_large_logits_lose_nothing(offset: float) -> None:
    rows, weight, _, targets = (tensor.detach() for tensor in tensors(torch.float32))
    bias = torch.full_like(weight[:, 0], offset)  # logits of one size, so that what tells them apart is exact
    expected = functional.cross_entropy(torch.addmm(bias, rows, weight.t()), targets, reduction="none")
    torch.testing.assert_close(cross_entropies(rows, weight, bias, targets), expected, rtol=1e-5, atol=1e-5)
    assert float(expected.min()) > 0
