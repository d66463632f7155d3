"""The state of a recurrent layer, which continues a sequence in the next segment."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from flair_nas.nn.cell import CellBase
from flair_nas.nn.kernels.tracing import is_transformed
from flair_nas.nn.matrix_product import is_compiling


class RecurrentState(NamedTuple):
    """State of a layer with inter-cell gates, which continues a sequence in the next segment.

    Each tuple has an entry per layer and direction, at index layer * num_directions + direction.

    Attributes:
        hidden: last states, [num_layers * num_directions, B, H].
        inputs: last inputs, for the state gate, latest first, [m, B, D_layer].
        states: states before `hidden`, for the input gate, latest first, [m - 1, B, H].

    Example:
        >>> import torch
        >>> from flair_nas import SearchedRNN, load_genotype
        >>> layer = SearchedRNN(4, 6, load_genotype("tanh0/state=tanh-relu/input=tanh-relu"))
        >>> output, state = layer(torch.randn(5, 2, 4))
        >>> state.hidden.shape, state.inputs[0].shape, state.states[0].shape
        (torch.Size([1, 2, 6]), torch.Size([2, 2, 4]), torch.Size([1, 2, 6]))
    """

    hidden: Tensor
    inputs: tuple[Tensor, ...]
    states: tuple[Tensor, ...]

    def detach(self) -> RecurrentState:
        """Return the state detached from the graph, for truncated back-propagation."""
        return self.map(Tensor.detach)

    def map(self, change: Callable[[Tensor], Tensor]) -> RecurrentState:
        """Return the state with a function applied to each tensor."""
        return RecurrentState(change(self.hidden), tuple(map(change, self.inputs)), tuple(map(change, self.states)))


RecurrentState.__module__ = "flair_nas"  # a named tuple cannot have it in its body

State = Tensor | RecurrentState
"""State of a layer: its last states, [num_layers * num_directions, B, H], or with gates a `RecurrentState`."""


class StateOfTwo(Tensor):
    """State of two layers or directions, [2, B, H]: a tensor that cannot be split as the (h, c) of an LSTM.

    Results of operations on it, and tensors that are read from a file, are plain.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # as PyTorch has it

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "the state is one tensor of two layers or directions, not (h, c): write `output, state = rnn(x)`; "
            "state[0] and state[1], or state.unbind(), are the two"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return copy.deepcopy(self.as_subclass(Tensor), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.as_subclass(Tensor).__reduce_ex__(protocol)


def refuse_to_split(hidden: Tensor) -> Tensor:
    """Return a state of two entries as `StateOfTwo`, unless a compiler or a tracer is active."""
    is_plain = len(hidden) == 2 and type(hidden) is Tensor and not is_compiling() and not is_transformed()
    return hidden.as_subclass(StateOfTwo) if is_plain else hidden


def initial_state(cells: Sequence[CellBase], hx: object, batch: int) -> RecurrentState:
    """Return the state that a call begins with.

    Args:
        cells: a cell per layer and direction.
        hx: a `RecurrentState`, or a tensor [len(cells), B, H] (then gates see no history), or None for zeros.
        batch: B.

    Raises:
        ValueError: `hx` does not match the cells.
    """
    weight, count, size = cells[0].weight_input, len(cells), cells[0].hidden_size
    zeros = RecurrentState(
        weight.new_zeros(count, batch, size),
        tuple(weight.new_zeros(c.state_gate.history if c.state_gate else 0, batch, c.input_size) for c in cells),
        tuple(weight.new_zeros(c.input_gate.history - 1 if c.input_gate else 0, batch, size) for c in cells),
    )
    if hx is None:
        return zeros
    if isinstance(hx, Tensor):
        hx = zeros._replace(hidden=hx)
    if not isinstance(hx, RecurrentState):
        shape = [count, batch, size]
        raise ValueError(f"hx must be a tensor {shape} or the state of an earlier call, got {type(hx).__name__}")
    if len(hx.inputs) != count or len(hx.states) != count:
        raise ValueError(
            f"hx must have {count} entries of inputs and of states, one per layer and direction; "
            f"got {len(hx.inputs)} and {len(hx.states)}"
        )
    checks = [("hidden", hx.hidden, zeros.hidden)]
    checks += [(f"inputs[{i}]", *pair) for i, pair in enumerate(zip(hx.inputs, zeros.inputs))]
    checks += [(f"states[{i}]", *pair) for i, pair in enumerate(zip(hx.states, zeros.states))]
    for name, tensor, like in checks:
        if tensor.shape != like.shape or tensor.dtype != like.dtype or tensor.device != like.device:
            expected, got = (f"{list(part.shape)}, {part.dtype}, on {part.device}" for part in (like, tensor))
            raise ValueError(f"hx ({name}) must be {expected}; got {got}")
    return hx
