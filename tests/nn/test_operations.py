"""Operations: their values, their order, and their derivatives against autograd in float64."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from flair_nas.genotype import GATE_FORM_TABLE, GATE_FORMS, OPERATION_TABLE, OPERATIONS
from flair_nas.nn.kernels.native import build

COLUMNS = ("drop", "tanh", "relu", "sigmoid", "identity")  # of architecture weights; files rely on this order


def pre_activations() -> Tensor:
    """Random values, both zeros (where relu has a kink) and values that saturate tanh and sigmoid."""
    generator = torch.Generator().manual_seed(1)
    ordinary = torch.randn(3, 60, generator=generator, dtype=torch.float64)
    special = torch.tensor([0.0, -0.0, 1e-9, -1e-9, 40.0, -40.0, 1e4, -1e4], dtype=torch.float64).repeat(3, 1)
    return torch.cat([ordinary, special], dim=1)  # [3, 68]


def test_the_names_are_in_the_order_of_the_columns() -> None:
    assert OPERATIONS == COLUMNS
    for macro, names in (("OPERATION", OPERATIONS), ("FORM", GATE_FORMS)):
        native = (build.SOURCES / "operations.h").read_text(encoding="utf-8")
        assert tuple(re.findall(rf"^  {macro}\((\w+),", native, re.M)) == names


@pytest.mark.parametrize("name", COLUMNS)
def test_a_derivative_agrees_with_autograd(name: str) -> None:
    pre, row = pre_activations().requires_grad_(), OPERATION_TABLE[name]
    out = row.function(pre)
    upstream = torch.rand_like(out) + 0.5
    (expected,) = torch.autograd.grad((out + 0 * pre) * upstream, pre, torch.ones_like(out))  # drop has no graph alone
    actual = row.derivative(pre.detach(), out.detach()) * upstream
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("table", [OPERATION_TABLE, GATE_FORM_TABLE], ids=["operations", "forms"])
def test_a_silent_genotype_is_told_by_what_keeps_zero(table: dict[str, Any]) -> None:
    for name, row in table.items():
        assert row.keeps_zero == (row.function(torch.zeros(1)).item() == 0), name
