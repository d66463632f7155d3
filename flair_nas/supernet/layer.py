"""Run of a supernet over sequences of one length."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from flair_nas.nn.cell import CellBase
from flair_nas.nn.packing import Packing
from flair_nas.nn.recurrence import run_cell
from flair_nas.nn.state import RecurrentState, initial_state


def run_supernet(
    cell: CellBase, layer: Any, input: Tensor, hx: Tensor | RecurrentState | None
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
    if input.dim() != 3 or input.shape[-1] != layer.input_size or 0 in input.shape:
        raise ValueError(
            f"a supernet takes [T, B, D] with D = input_size = {layer.input_size}, at least one step and one sequence; "
            f"got {list(input.shape)}"
        )
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
