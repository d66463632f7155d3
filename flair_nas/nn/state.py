"""The state of a recurrent layer: what the next segment of a sequence needs of this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor


class HasHistory(Protocol):
    """A cell, as far as its state is concerned."""

    input_size: int
    hidden_size: int
    weight_hidden: Any  # [H, W]
    state_gate: Any  # with a `history`, or None
    input_gate: Any


class RecurrentState(NamedTuple):
    """The state of a layer with inter-cell gates: what the next segment of a sequence needs.

    Each tuple has an entry per layer and direction, at index layer * num_directions + direction.

    Args:
        hidden: last states, [num_layers * num_directions, B, H].
        inputs: inputs before the next step for the state gate, [m, B, D_layer]; the first is the latest.
        states: states before the last one for the input gate, [m - 1, B, H]; the first is the latest.
    """

    hidden: Tensor
    inputs: tuple[Tensor, ...]
    states: tuple[Tensor, ...]

    def detach(self) -> RecurrentState:
        """The same state cut from the graph, for truncated back-propagation."""
        return self.map(Tensor.detach)

    def map(self, change: Callable[[Tensor], Tensor]) -> RecurrentState:
        """The state with every tensor changed."""
        return RecurrentState(change(self.hidden), tuple(map(change, self.inputs)), tuple(map(change, self.states)))


def initial_state(cells: Sequence[HasHistory], hx: Any, batch: int) -> RecurrentState:
    """The state that a call begins with.

    Args:
        cells: a cell per layer and direction.
        hx: a `RecurrentState`, or a tensor [len(cells), B, H] (then gates see no history), or None for zeros.
        batch: B.

    Raises:
        ValueError: it does not match the cells; the message says what was given and expected.
    """
    weight = cells[0].weight_hidden
    count = len(cells)
    shape = (count, batch, cells[0].hidden_size)
    lags = [cell.state_gate.history if cell.state_gate is not None else 0 for cell in cells]
    depths = [cell.input_gate.history - 1 if cell.input_gate is not None else 0 for cell in cells]
    input_shapes = [(lag, batch, cell.input_size) for lag, cell in zip(lags, cells)]
    state_shapes = [(depth, batch, cell.hidden_size) for depth, cell in zip(depths, cells)]
    if hx is None:
        hx = weight.new_zeros(shape)
    if isinstance(hx, Tensor):
        zeros = weight.new_zeros
        hx = RecurrentState(hx, tuple(zeros(s) for s in input_shapes), tuple(zeros(s) for s in state_shapes))
    if not isinstance(hx, RecurrentState):
        raise ValueError(
            f"hx must be a tensor {list(shape)} or the state that an earlier call returned; got {type(hx).__name__}"
        )
    expected = [("hidden", hx.hidden, shape)]
    expected += [(f"inputs[{i}]", *pair) for i, pair in enumerate(zip(hx.inputs, input_shapes))]
    expected += [(f"states[{i}]", *pair) for i, pair in enumerate(zip(hx.states, state_shapes))]
    if len(hx.inputs) != count or len(hx.states) != count:
        raise ValueError(
            f"hx must have {count} entries of inputs and of states, one per layer and direction; "
            f"got {len(hx.inputs)} and {len(hx.states)}"
        )
    for name, tensor, wanted in expected:
        if tuple(tensor.shape) != tuple(wanted) or tensor.dtype != weight.dtype or tensor.device != weight.device:
            raise ValueError(
                f"hx ({name}) must be {list(wanted)}, {weight.dtype}, on {weight.device}; "
                f"got {list(tensor.shape)}, {tensor.dtype}, on {tensor.device}"
            )
    return hx
