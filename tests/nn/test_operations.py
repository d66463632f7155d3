"""Operations: their values, their order, and their derivatives against autograd in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from flair_nas.genotype import OPERATIONS
from flair_nas.nn.operations import DERIVATIVES, FORMS, FUNCTIONS

COLUMNS = ("drop", "tanh", "relu", "sigmoid", "identity")  # of architecture weights; files rely on this order


def pre_activations() -> Tensor:
    """Random values, both zeros (where relu has a kink) and values that saturate tanh and sigmoid."""
    generator = torch.Generator().manual_seed(1)
    ordinary = torch.randn(3, 60, generator=generator, dtype=torch.float64)
    special = torch.tensor([0.0, -0.0, 1e-9, -1e-9, 40.0, -40.0, 1e4, -1e4], dtype=torch.float64).repeat(3, 1)
    return torch.cat([ordinary, special], dim=1)  # [3, 68]


def test_the_names_are_in_the_order_of_the_columns() -> None:
    assert tuple(FUNCTIONS) == tuple(DERIVATIVES) == OPERATIONS == COLUMNS


@pytest.mark.parametrize("name", COLUMNS)
def test_a_derivative_agrees_with_autograd(name: str) -> None:
    pre = pre_activations().requires_grad_()
    out = FUNCTIONS[name](pre)
    upstream = torch.rand_like(out) + 0.5
    (expected,) = torch.autograd.grad((out + 0 * pre) * upstream, pre, torch.ones_like(out))  # drop has no graph alone
    actual = DERIVATIVES[name](pre.detach(), out.detach()) * upstream
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-15)


def test_what_a_silent_genotype_is_told_by() -> None:
    zero = torch.zeros(1)
    assert [name for name, operation in FUNCTIONS.items() if operation(zero)] == ["sigmoid"]
    assert [name for name, form in FORMS.items() if not form.scale(zero)] == ["product"]
