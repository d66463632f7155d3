"""Operations and gate forms: tables that equations and engines read."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from flair_nas.genotype import GATE_FORMS, OPERATIONS
from flair_nas.nn.matrix_product import multiply

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "drop": torch.zeros_like,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "identity": lambda pre: pre,
}
"""Each operation as a function of its pre-activation, in the order of the columns of architecture weights."""

DERIVATIVES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "drop": lambda pre, out: torch.zeros_like(pre),
    "tanh": lambda pre, out: 1 - out * out,
    "relu": lambda pre, out: (pre > 0).to(pre.dtype),
    "sigmoid": lambda pre, out: out * (1 - out),
    "identity": lambda pre, out: torch.ones_like(pre),
}
"""The derivative of each operation, from its pre-activation and its output."""


class GateForm(NamedTuple):
    """A form of inter-cell gates."""

    scale: Callable[[Tensor], Tensor]  # from the output of the gate's network
    unit_gain: bool = False  # entry weights start with unit gain, so a signal neither shrinks nor grows


FORMS: dict[str, GateForm] = {
    "product": GateForm(lambda gate: gate, unit_gain=True),  # ESS eq. 5 and 6
    "residual": GateForm(lambda gate: 1 + gate),
}

assert tuple(FUNCTIONS) == tuple(DERIVATIVES) == OPERATIONS and tuple(FORMS) == GATE_FORMS, (
    "flair_nas/nn/operations.py and genotype/vocabulary.py must have the same operations and gate forms in one order"
)


def masked(state: Tensor, mask: Tensor | None) -> Tensor:
    """Apply a variational dropout mask, if there is one."""
    return state if mask is None else state * mask


def product(vectors: Tensor, weight: Tensor) -> Tensor:
    """Multiply vectors [..., E] with a matrix [E, F]; the result has the dtype of the vectors.

    Under autocast the product has a lower precision, but states keep that of the weights.
    """
    return (multiply if vectors.dim() == 2 else torch.matmul)(vectors, weight).to(vectors.dtype)


def product_dtype(weight: Tensor) -> torch.dtype:
    """Return the dtype of products with this weight; under autocast it is lower than the weight's."""
    return torch.mm(weight.new_zeros(1, 1), weight.new_zeros(1, 1)).dtype
