"""Run of a supernet over sequences of one length, and checks of its arguments."""

from __future__ import annotations

import math
from typing import Protocol

from torch import Tensor

from flair_nas.genotype import CARRIES, GATE_FORMS
from flair_nas.nn.packing import Packing
from flair_nas.nn.protocols import CellLike
from flair_nas.nn.recurrence import run_cell
from flair_nas.nn.state import RecurrentState, initial_state


class _Layer(Protocol):
    training: bool
    input_size: int
    input_dropout: float
    recurrent_dropout: float


def run_supernet(
    cell: CellLike, layer: _Layer, input: Tensor, hx: Tensor | RecurrentState | None
) -> tuple[Tensor, Tensor | RecurrentState]:
    """Run a cell over whole sequences of one length.

    Args:
        cell: the cell.
        layer: the supernet, for its size, mode and dropouts.
        input: [T, B, D].
        hx: the initial state, or None for zeros.

    Returns:
        The output, [T, B, H], and the final state: [1, B, H], or a `RecurrentState` when there are gates.

    Raises:
        ValueError: an input of another shape.
    """
    check_input(input, layer.input_size)
    steps, batch = input.shape[:2]
    packing = Packing([batch] * steps, input.device)
    state = initial_state([cell], hx, batch)
    output, (hidden, inputs, states) = run_cell(
        cell,
        input.reshape(steps * batch, -1),  # [T * B, D]
        packing,
        (state.hidden[0], state.inputs[0], state.states[0]),
        input_dropout=layer.input_dropout if layer.training else 0.0,
        recurrent_dropout=layer.recurrent_dropout if layer.training else 0.0,
    )
    gated = cell.state_gate is not None or cell.input_gate is not None
    final = RecurrentState(hidden[None], (inputs,), (states,)) if gated else hidden[None]  # [1, B, H]
    return output.view(steps, batch, -1), final


def check_input(input: Tensor, input_size: int) -> None:
    """Raise a ValueError unless an input is [T, B, D], none of them 0."""
    if input.dim() != 3 or input.shape[-1] != input_size or 0 in input.shape:
        raise ValueError(
            f"a supernet takes [T, B, D] with D = input_size = {input_size}, at least one step and one sequence; "
            f"got {list(input.shape)}"
        )


def check_arguments(gate: str, carry: str, init_range: float | None, **numbers: float) -> None:
    """Refuse arguments of a supernet that are out of range.

    Args:
        gate: form of the gates.
        carry: the carry of s_0.
        init_range: the initialisation bound.
        numbers: dropouts, and sizes, which are at least 1, or 0 for `history`.

    Raises:
        ValueError: it names the argument.
    """
    for name, number in numbers.items():
        minimum = 0 if name == "history" else 1
        if name.endswith("_dropout"):
            if not 0 <= number < 1:
                raise ValueError(f"{name} must be a probability, at least 0 and below 1, got {number!r}")
        elif not isinstance(number, int) or isinstance(number, bool) or number < minimum:
            raise ValueError(f"{name} must be a whole number of at least {minimum}, got {number!r}")
    if init_range is not None and not 0 < init_range < math.inf:
        raise ValueError(f"init_range must be positive and finite, got {init_range!r}")
    for name, value, known in (("gate", gate, GATE_FORMS), ("carry", carry, CARRIES)):
        if value not in known:
            raise ValueError(f"{name} must be {' or '.join(known)}, got {value!r}")
