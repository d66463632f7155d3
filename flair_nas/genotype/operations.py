"""Operations and gate forms: a row for each, which all else reads.

The formulas of the native kernels, with the same names in the same order, are in `nn/kernels/native/operations.h`. The
functions use methods of tensors, so this module imports no torch. The export to ONNX calls them, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Operation(NamedTuple):
    """An operation op(z)."""

    function: Callable[[Tensor], Tensor]  # from the tensor z
    derivative: Callable[[Tensor, Tensor], Tensor]  # from z and y = op(z)
    colour: str = ""  # of its box in pictures, #rrggbb
    keeps_zero: bool = True  # op(0) = 0


class GateForm(NamedTuple):
    """A form of inter-cell gates: the scale of the gated vector, from the output z of the gate's network."""

    function: Callable[[Tensor], Tensor]
    text: str  # the scale as an equation, with {} for z
    keeps_zero: bool = False  # the scale of 0 is 0: entries start with unit gain, so that a signal does not shrink


# colours near those of Okabe and Ito (2008); a test checks that colour-blind readers can tell them apart
OPERATION_TABLE: dict[str, Operation] = {
    "drop": Operation(lambda z: z.new_zeros(z.shape), lambda z, y: z.new_zeros(z.shape)),
    "tanh": Operation(lambda z: z.tanh(), lambda z, y: 1 - y * y, "#0072B2"),
    "relu": Operation(lambda z: z.relu(), lambda z, y: (z > 0).to(z.dtype), "#B84E00"),
    "sigmoid": Operation(lambda z: z.sigmoid(), lambda z, y: y * (1 - y), "#00C08B", False),
    "identity": Operation(lambda z: z, lambda z, y: z.new_ones(z.shape), "#E69F00"),
}
"""Operations by name, in the order of the columns of architecture weights."""

GATE_FORM_TABLE: dict[str, GateForm] = {
    "product": GateForm(lambda z: z, "({})", True),  # ESS eq. 5 and 6
    "residual": GateForm(lambda z: 1 + z, "(1 + {})"),
}
"""Gate forms by name."""

OPERATIONS = tuple(OPERATION_TABLE)
"""Names of the operations."""

GATE_FORMS = tuple(GATE_FORM_TABLE)
"""Names of the gate forms."""
