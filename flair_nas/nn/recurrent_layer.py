"""Recurrent layers: cells in several layers and both directions, over padded tensors and packed batches."""

from __future__ import annotations

import contextlib
import itertools
import json
import warnings
from collections.abc import Callable, Iterator
from pkgutil import resolve_name
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from flair_nas.errors import brief
from flair_nas.nn.cell import CellBase
from flair_nas.nn.init import check_arguments
from flair_nas.nn.layers import LAYER_TYPES
from flair_nas.nn.matrix_product import product_dtype
from flair_nas.nn.packing import Packing
from flair_nas.nn.recurrence import Start, run_cell
from flair_nas.nn.state import RecurrentState, State, initial_state, refuse_to_split

KINDS = tuple(name.lower() for name, row in LAYER_TYPES.items() if row.cell)
"""Layers whose cells are of flair-nas."""


class RecurrentLayer(nn.Module):
    """A layer of cells, used as `torch.nn.GRU` is.

    Args:
        make_cell: makes a cell from its input size.

    Other arguments, attributes and errors are those of `SearchedRNN`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        make_cell: Callable[[int], CellBase],
        num_layers: int = 1,
        bidirectional: bool = False,
        batch_first: bool = False,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        sizes = {"input_size": input_size, "hidden_size": hidden_size, "num_layers": num_layers}
        dropouts = {"dropout": dropout, "input_dropout": input_dropout, "recurrent_dropout": recurrent_dropout}
        check_arguments(None, **sizes, **dropouts)
        if dropout and num_layers == 1:
            warnings.warn("dropout acts between layers, so it does nothing with num_layers=1", stacklevel=3)
        # JSON holds Python's own numbers, not NumPy's
        self.input_size, self.hidden_size, self.num_layers = map(int, (input_size, hidden_size, num_layers))
        self.bidirectional, self.batch_first = bool(bidirectional), bool(batch_first)
        self.dropout, self.input_dropout, self.recurrent_dropout = map(float, dropouts.values())
        with _made_on(device, dtype):
            self.cells = nn.ModuleList(
                make_cell(hidden_size * self.num_directions if layer else input_size)
                for layer in range(num_layers)
                for _ in range(self.num_directions)
            )

    @property
    def num_directions(self) -> int:
        """2 for a bidirectional layer, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """Parameters of each layer and direction, as `torch.nn.GRU` lists them."""
        return [list(cell.parameters()) for cell in self.cells]

    def flatten_parameters(self) -> None:
        """Do nothing; `torch.nn.GRU` has it, so callers may call it."""

    def reset_parameters(self) -> None:
        """Draw all weights from the global generator."""
        for cell in self._cells():
            cell.reset_parameters()

    def config(self) -> dict[str, Any]:
        """Return everything but the weights, as JSON data."""
        sizes = ("input_size", "hidden_size", "num_layers", "bidirectional", "batch_first")
        names = (*sizes, "dropout", "input_dropout", "recurrent_dropout")
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        """Return the arguments, for printing."""
        return ", ".join(f"{name}={value}" for name, value in self.config().items() if name not in ("genotype", "kind"))

    def forward(self, input: Tensor | PackedSequence, hx: State | None = None) -> tuple[Tensor | PackedSequence, State]:
        """Run the layer over whole sequences.

        Args:
            input: [T, B, D], or [B, T, D] with `batch_first` (B may be 0), one sequence [T, D], or a `PackedSequence`.
            hx: the final state of an earlier call, a tensor [num_layers * num_directions, B, H], or None for zeros.
                With a tensor, gates see no history.

        Returns:
            The output in the form of the input, with num_directions * H features, and the final state. The state is a
            tensor [num_layers * num_directions, B, H], or a `RecurrentState` when the genotype has gates.

        Raises:
            ValueError: tensors that do not match the layer.
        """
        if isinstance(input, PackedSequence):
            data, sizes, order, restore = input.data, input.batch_sizes, input.sorted_indices, input.unsorted_indices
            self._check_input(data, 2, "PackedSequence with data [tokens, D]")
            counts = sizes.tolist()
            _check_sizes(counts, len(data))
            state = _permuted(initial_state(self._cells(), hx, counts[0]), order)
            output, state = self._run(data, counts, state)
            return PackedSequence(output, sizes, order, restore), self._final(state, restore)
        single = input.dim() == 2
        form = "[T, D]" if single else "[B, T, D]" if self.batch_first else "[T, B, D]"
        self._check_input(input, 2 if single else 3, form)
        dense = input.unsqueeze(1) if single else input.transpose(0, 1) if self.batch_first else input  # [T, B, D]
        steps, batch = dense.shape[:2]
        if not steps:
            raise ValueError(f"this layer takes sequences of at least one step; got {list(input.shape)}")
        if single:
            hx = _with_batch(hx)  # one sequence has a state without the batch dimension, as in nn.GRU
        state = initial_state(self._cells(), hx, batch)
        output, state = self._run(dense.flatten(0, 1), [batch] * steps, state)
        output = output.unflatten(0, (steps, batch))
        final = self._final(state.map(lambda part: part.squeeze(1)) if single else state, None)
        if single:
            return output.squeeze(1), final
        return output.transpose(0, 1) if self.batch_first else output, final

    def _cells(self) -> list[CellBase]:
        return cast("list[CellBase]", list(self.cells))

    def _check_input(self, data: Tensor, dimensions: int, form: str) -> None:
        weight = self._cells()[0].weight_input
        got = f"got {list(data.shape)}, {data.dtype}, on {data.device}"
        if data.dim() != dimensions or data.shape[-1] != self.input_size:
            raise ValueError(f"this layer takes {form} with D = input_size = {self.input_size}; {got}")
        if data.device != weight.device:
            raise ValueError(f"input and weights must be on one device; the weights are on {weight.device}; {got}")
        # under autocast, products cast any floating dtype
        if data.dtype != weight.dtype and not (data.is_floating_point() and product_dtype(weight) != weight.dtype):
            raise ValueError(f"input and weights must have one dtype; the weights are {weight.dtype}; {got}")

    def _final(self, state: RecurrentState, restore: Tensor | None) -> State:
        state = _permuted(state, restore)
        return state if self._cells()[0].has_gates else refuse_to_split(state.hidden)

    def _run(self, data: Tensor, sizes: list[int], state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Run all layers over packed data, [S, D]; return the output, [S, num_directions * H], and the final state."""
        packing = Packing(sizes, data.device)
        backward = packing.reversed_rows() if self.bidirectional else None
        dropouts = (self.input_dropout, self.recurrent_dropout) if self.training else (0.0, 0.0)
        ends: list[Start] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self.num_directions):
                index = layer * self.num_directions + direction
                cell = self._cells()[index]
                ordered = data[backward] if direction else data
                start = (state.hidden[index], state.inputs[index], state.states[index])
                output, end = run_cell(cell, dropouts, ordered, packing, start)
                outputs.append(output[backward] if direction else output)  # reversing twice restores the order
                ends.append(end)
            data = torch.cat(outputs, dim=1) if self.bidirectional else outputs[0]
            if layer < self.num_layers - 1:
                data = nn.functional.dropout(data, self.dropout, self.training)
        hidden, inputs, states = zip(*ends)
        return data, RecurrentState(torch.stack(hidden), inputs, states)


class ParallelRNN(RecurrentLayer):
    """A layer of a published recurrence without a sequential matrix product, used as `torch.nn.GRU` is.

    Args:
        input_size: D.
        hidden_size: H.
        kind: one of `KINDS`.

    Other arguments are those of `SearchedRNN`, without `init_range`.

    Raises:
        ValueError: an unknown kind, or a number out of range.

    Example:
        >>> import torch
        >>> from flair_nas import ParallelRNN
        >>> output, state = ParallelRNN(100, 256, "sru")(torch.randn(20, 8, 100))
        >>> output.shape, state.shape
        (torch.Size([20, 8, 256]), torch.Size([1, 8, 256]))
    """

    __module__ = "flair_nas"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        kind: str,
        num_layers: int = 1,
        bidirectional: bool = False,
        batch_first: bool = False,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"kind must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {kind!r}")
        cell: Any = resolve_name(LAYER_TYPES[kind.upper()].cell)
        options = (num_layers, bidirectional, batch_first, dropout, input_dropout, recurrent_dropout, device, dtype)
        super().__init__(input_size, hidden_size, lambda size: cell(size, hidden_size), *options)
        if not cell.masks_states and recurrent_dropout:
            warnings.warn(f"no state of {kind} enters a product, so recurrent_dropout does nothing", stacklevel=2)
        self.kind = kind

    def config(self) -> dict[str, Any]:
        """Return everything but the weights, as JSON data."""
        return {**super().config(), "kind": self.kind}


@contextlib.contextmanager
def _made_on(device: torch.device | str | int | None, dtype: torch.dtype | None) -> Iterator[None]:
    """Make tensors within the block on a device and of a dtype, or PyTorch's defaults."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype or default)
    try:
        with contextlib.nullcontext() if device is None else torch.device(device):
            yield
    finally:
        torch.set_default_dtype(default)


def _check_sizes(sizes: list[int], tokens: int) -> None:
    """Refuse sizes with which an engine would read beyond the data; PyTorch's functions never make them."""
    falling = all(now >= after > 0 for now, after in itertools.pairwise([*sizes, 1]))
    if not (sizes and falling and sum(sizes) == tokens):
        raise ValueError(
            f"batch_sizes of a PackedSequence must be positive, never grow, and be {tokens} in all, got {brief(sizes)}"
        )


def _permuted(state: RecurrentState, order: Tensor | None) -> RecurrentState:
    return state if order is None else state.map(lambda tensor: tensor[:, order])


def _with_batch(state: State | None) -> State | None:
    if isinstance(state, Tensor) and state.dim() == 2:
        return state.unsqueeze(1)
    if isinstance(state, RecurrentState) and state.hidden.dim() == 2:
        return state.map(lambda tensor: tensor.unsqueeze(1))
    return state


def identify_layer(layer: nn.Module) -> str:
    """Return a text that identifies a layer, without its weights, their first values and the genotype's provenance."""
    if not isinstance(layer, RecurrentLayer):
        return str(layer)
    config = layer.config()
    config.get("genotype", {}).pop("origin", None)
    config.pop("init_range", None)
    return json.dumps(config)
