"""SearchedRNN: cells and gates over packed batches, layers and directions."""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from flair_nas.cell import SearchedCell, product_dtype
from flair_nas.genotype import Genotype
from flair_nas.kernels.sequence_gradient import Products, run_sequence, transposed

LAYER_NUMBERS = ("dropout", "input_dropout", "recurrent_dropout", "init_range")
"""The arguments of `SearchedRNN` that are no sizes."""


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
        return _mapped(self, Tensor.detach)


class _Packing:
    """Where the tokens of a ragged batch lie: row (t, b) of packed data is offsets[t] + b, b < sizes[t].

    Args:
        sizes: number of sequences that have a token at each time step, [T], never growing.
    """

    def __init__(self, sizes: Tensor, device: torch.device) -> None:
        self.sizes: list[int] = sizes.tolist()
        self.batch = self.sizes[0]
        steps = torch.arange(len(sizes))
        offsets = sizes.cumsum(0) - sizes
        self.offsets = offsets.to(device)  # [T]
        self.time = steps.repeat_interleave(sizes).to(device)  # [S], the step of each row
        self.column = (torch.arange(int(sizes.sum())) - offsets.repeat_interleave(sizes)).to(device)
        # sequence b lasts as long as more than b sequences do
        self.lengths = (sizes[:, None] > torch.arange(self.batch)).sum(0).to(device)  # [B]

    def reversed_rows(self) -> Tensor:
        """For each row, the row that stands there when each sequence is reversed within its length, [S]."""
        return self.offsets[self.lengths[self.column] - 1 - self.time] + self.column

    def lagged_rows(self, time: Tensor, column: Tensor, lag: int, history: int) -> Tensor:
        """Rows of the vectors `lag` steps before `time` in data that follows `history` blocks of B earlier vectors.

        Block 0 holds the vectors one step before the start, block 1 those two steps before, and so on.
        """
        step = time - lag
        inside = history * self.batch + self.offsets[step.clamp(min=0)] + column
        before = (-step - 1).clamp(min=0) * self.batch + column
        return torch.where(step >= 0, inside, before)

    def last(self, extended: Tensor, history: int) -> Tensor:
        """The last `history` vectors of each sequence, latest first, [history, B, ...]."""
        column = torch.arange(self.batch, device=extended.device)
        rows = [self.lagged_rows(self.lengths, column, lag, history) for lag in range(1, history + 1)]
        return extended[torch.stack(rows)] if rows else extended.new_empty(0, self.batch, extended.shape[-1])


class SearchedRNN(nn.Module):
    """A recurrent layer with a searched cell, used as `torch.nn.LSTM` is.

    Args:
        input_size: D.
        hidden_size: H.
        genotype: the architecture of every layer and direction.
        num_layers: layers on top of one another.
        bidirectional: run in both directions and concatenate.
        batch_first: padded tensors are [B, T, D] instead of [T, B, D].
        dropout: dropout on the output of each layer but the last.
        input_dropout: variational dropout of the input of each layer and direction; one mask per sequence.
        recurrent_dropout: variational dropout of the states where they enter a product; one mask per sequence.
        init_range: weights start uniform in +-init_range.

    Attributes:
        cells: a `SearchedCell` per layer and direction, at index layer * num_directions + direction.

    Raises:
        ValueError: a size that is not positive, a probability outside [0, 1).
        TypeError: `genotype` is no `Genotype`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        genotype: Genotype,
        num_layers: int = 1,
        bidirectional: bool = False,
        batch_first: bool = False,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        init_range: float = 0.04,
    ) -> None:
        super().__init__()
        if not isinstance(genotype, Genotype):
            raise TypeError(
                f"genotype must be a flair_nas.Genotype, got {type(genotype).__name__}; load_genotype(name) gives one"
            )
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {size!r}")
        for name, probability in (
            ("dropout", dropout),
            ("input_dropout", input_dropout),
            ("recurrent_dropout", recurrent_dropout),
        ):
            if not 0 <= probability < 1:
                raise ValueError(f"{name} must be a probability, at least 0 and below 1, got {probability!r}")
        if not 0 < init_range < math.inf:
            raise ValueError(f"init_range must be positive and finite, got {init_range!r}")
        if dropout and num_layers == 1:
            warnings.warn("dropout acts between layers, so it does nothing with num_layers=1", stacklevel=2)
        if genotype.silent:
            warnings.warn(
                "with gate='product' and no sigmoid in cell and input gate, a state of zeros stays zero and nothing is "
                "learned; use gate='residual', or pass a state that is not zero",
                stacklevel=2,
            )
        self.input_size, self.hidden_size, self.genotype = input_size, hidden_size, genotype
        self.num_layers, self.bidirectional, self.batch_first = num_layers, bool(bidirectional), bool(batch_first)
        self.dropout, self.input_dropout, self.recurrent_dropout = dropout, input_dropout, recurrent_dropout
        self.init_range = init_range
        self.cells = nn.ModuleList(
            SearchedCell(self._layer_input_size(layer), hidden_size, genotype, init_range)
            for layer in range(num_layers)
            for _ in range(self.num_directions)
        )

    @property
    def num_directions(self) -> int:
        """2 for a bidirectional layer, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters of each layer and direction, as `torch.nn.LSTM` lists them."""
        return [list(cell.parameters()) for cell in self.cells]

    def flatten_parameters(self) -> None:
        """Does nothing; `torch.nn.LSTM` has it, so callers may call it."""

    def reset_parameters(self) -> None:
        """Draws all weights anew."""
        for cell in self._cells():
            cell.reset_parameters()

    def config(self) -> dict[str, Any]:
        """Everything but the weights, as JSON data."""
        sizes = ("input_size", "hidden_size", "num_layers", "bidirectional", "batch_first")
        return {**{name: getattr(self, name) for name in sizes + LAYER_NUMBERS}, "genotype": self.genotype.to_dict()}

    def extra_repr(self) -> str:
        """Arguments, for printing."""
        return ", ".join(f"{name}={value}" for name, value in self.config().items() if name != "genotype")

    def forward(
        self, input: Tensor | PackedSequence, hx: Tensor | RecurrentState | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor | RecurrentState]:
        """Runs the layer over whole sequences.

        Args:
            input: [T, B, D], or [B, T, D] with `batch_first`, or one sequence [T, D], or a `PackedSequence`.
            hx: the state to begin with: what an earlier call returned, or a tensor
                [num_layers * num_directions, B, H] (then gates see no history); zeros when None.

        Returns:
            The output in the form of the input, with num_directions * H features, and the final state: a tensor
            [num_layers * num_directions, B, H], or a `RecurrentState` when the genotype has gates.

        Raises:
            ValueError: tensors that do not match the layer; the message says what was given and expected.
        """
        if isinstance(input, PackedSequence):
            data, sizes, order, restore = input.data, input.batch_sizes, input.sorted_indices, input.unsorted_indices
            self._check_input(data, 2, "PackedSequence with data [tokens, D]")
            output, state = self._run(data, sizes, self._initial(hx, data, int(sizes[0]), order))
            return PackedSequence(output, sizes, order, restore), self._final(state, restore)
        single = input.dim() == 2
        form = "[T, D]" if single else "[B, T, D]" if self.batch_first else "[T, B, D]"
        self._check_input(input, 2 if single else 3, form)
        dense = input.unsqueeze(1) if single else input.transpose(0, 1) if self.batch_first else input  # [T, B, D]
        steps, batch = dense.shape[:2]
        if single:
            hx = _with_batch(hx)  # one sequence has a state without the batch dimension, as in nn.LSTM
        sizes = torch.full((steps,), batch)
        output, state = self._run(dense.reshape(steps * batch, -1), sizes, self._initial(hx, dense, batch, None))
        output = output.view(steps, batch, -1)
        final = self._final(state, None)
        if single:
            return output.squeeze(1), _without_batch(final)
        return output.transpose(0, 1) if self.batch_first else output, final

    # --- checks and states ---

    def _cells(self) -> list[SearchedCell]:
        return cast("list[SearchedCell]", list(self.cells))

    def _layer_input_size(self, layer: int) -> int:
        return self.input_size if layer == 0 else self.hidden_size * self.num_directions

    def _check_input(self, data: Tensor, dimensions: int, form: str) -> None:
        weight = self._cells()[0].weight_input
        got = f"got {list(data.shape)}, {data.dtype}, on {data.device}"
        if data.dim() != dimensions or data.shape[-1] != self.input_size:
            raise ValueError(f"this layer takes {form} with D = input_size = {self.input_size}; {got}")
        if 0 in data.shape:
            raise ValueError(f"this layer takes at least one sequence of at least one step; {got}")
        if data.device != weight.device:
            raise ValueError(f"input and weights must be on one device; the weights are on {weight.device}; {got}")
        # under autocast, products cast their factors, whatever floating dtypes these have
        casts = data.is_floating_point() and product_dtype(weight) != weight.dtype
        if data.dtype != weight.dtype and not casts:
            raise ValueError(f"input and weights must have one dtype; the weights are {weight.dtype}; {got}")

    def _initial(
        self, hx: Tensor | RecurrentState | None, data: Tensor, batch: int, order: Tensor | None
    ) -> RecurrentState:
        cells = self._cells()
        weight = cells[0].weight_hidden
        count = len(cells)
        shape = (count, batch, self.hidden_size)
        lags = [cell.state_gate.history if cell.state_gate is not None else 0 for cell in cells]
        depths = [cell.input_gate.history - 1 if cell.input_gate is not None else 0 for cell in cells]
        input_shapes = [(lag, batch, cell.input_size) for lag, cell in zip(lags, cells)]
        state_shapes = [(depth, batch, self.hidden_size) for depth in depths]
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
        return _permuted(hx, order)

    def _final(self, state: RecurrentState, restore: Tensor | None) -> Tensor | RecurrentState:
        state = _permuted(state, restore)
        gated = self.genotype.state_gate is not None or self.genotype.input_gate is not None
        return state if gated else state.hidden

    # --- the recurrence ---

    def _run(self, data: Tensor, sizes: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """All layers and directions over packed data [S, D]; returns output [S, num_directions * H] and final state."""
        packing = _Packing(sizes, data.device)
        backward = packing.reversed_rows() if self.bidirectional else None
        hidden: list[Tensor] = []
        inputs: list[Tensor] = []
        states: list[Tensor] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self.num_directions):
                index = layer * self.num_directions + direction
                cell = self._cells()[index]
                ordered = data[backward] if direction else data
                start = (state.hidden[index], state.inputs[index], state.states[index])
                output, end = self._run_cell(cell, ordered, packing, *start)
                outputs.append(output[backward] if direction else output)  # reversing twice restores the order
                for collected, value in zip((hidden, inputs, states), end):
                    collected.append(value)
            data = torch.cat(outputs, dim=1) if self.bidirectional else outputs[0]
            if layer < self.num_layers - 1:
                data = nn.functional.dropout(data, self.dropout, self.training)
        return data, RecurrentState(torch.stack(hidden), tuple(inputs), tuple(states))

    def _run_cell(
        self, cell: SearchedCell, data: Tensor, packing: _Packing, hidden: Tensor, inputs: Tensor, states: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """One layer in one direction.

        Args:
            cell: its cell.
            data: packed input, [S, D].
            packing: where the tokens lie.
            hidden: the state to begin with, [B, H].
            inputs: inputs before the first step, [m, B, D].
            states: states before `hidden`, [m - 1, B, H].

        Returns:
            Packed output [S, H]; the final hidden, inputs and states.
        """
        weights = cell.weights()
        dtype = cell.weight_hidden.dtype
        data = data.to(dtype)  # under autocast the input may come from a product of lower precision
        input_mask = self._mask(self.input_dropout, data, packing.batch)  # [B, D]
        mask = self._mask(self.recurrent_dropout, hidden, packing.batch)  # [B, H]
        columns = [hidden.t().contiguous()]  # [H, B]
        if cell.state_gate is not None:
            past = torch.cat([inputs.flatten(0, 1), data])  # [m * B + S, D]
            inputs = packing.last(past, cell.state_gate.history)
            columns.append(self._state_gates(cell, past, packing, input_mask))  # [H, S]
        if input_mask is not None:
            data = data * input_mask[packing.column]
        if cell.input_gate is None:
            projected = torch.mm(weights.pop("input"), data.t()).to(dtype)  # all input projections at once, [W, S]
        else:
            projected = data.t().contiguous()  # [D, S]
        loop = _Loop(cell, packing, None if mask is None else mask.t().contiguous())
        sources = [projected, states.transpose(1, 2).contiguous(), *columns]
        output = run_sequence(loop, weights, sources).t().contiguous()  # [S, H]
        if cell.input_gate is not None:
            past = torch.cat([hidden, states.flatten(0, 1), output])  # [m * B + S, H]
            states = packing.last(past, cell.input_gate.history)[1:]
        ends = packing.offsets[packing.lengths - 1] + torch.arange(packing.batch, device=output.device)
        return output, (output[ends], inputs, states)

    @staticmethod
    def _state_gates(cell: SearchedCell, past: Tensor, packing: _Packing, mask: Tensor | None) -> Tensor:
        """f'(x_{t-1}, ..., x_{t-m}) for the whole sequence at once, [H, S], from history and input, [m * B + S, D]."""
        gate = cell.state_gate
        assert gate is not None
        if mask is not None:
            columns = torch.arange(packing.batch, device=past.device).repeat(gate.history)
            past = past * mask[torch.cat([columns, packing.column])]
        entries = []
        for lag, weight in enumerate(gate.weight_entry, start=1):
            products = torch.mm(past, weight).to(past.dtype)  # [m * B + S, H]
            lagged = products[packing.lagged_rows(packing.time, packing.column, lag, gate.history)]  # [S, H]
            entries.append(lagged.t().contiguous())  # [H, S]
        result: Tensor = gate(entries, Products(transposed(gate.inner_weights())))
        return result

    def _mask(self, probability: float, like: Tensor, batch: int) -> Tensor | None:
        """A variational dropout mask, one row per sequence, [B, width]; None when nothing is dropped."""
        if not (self.training and probability):
            return None
        return like.new_empty(batch, like.shape[-1]).bernoulli_(1 - probability).div_(1 - probability)


class _Loop:
    """The steps of one layer in one direction, as `run_sequence` wants them.

    Args:
        cell: the cell, with its gates.
        packing: where the tokens lie.
        mask: variational dropout mask of the states, [H, B], or None.
    """

    def __init__(self, cell: SearchedCell, packing: _Packing, mask: Tensor | None) -> None:
        self.cell, self.packing, self.mask = cell, packing, mask

    def __call__(
        self, products: Products, data: Tensor, states: Tensor, hidden: Tensor, state_gates: Tensor | None = None
    ) -> Tensor:
        """Computes the packed output, [H, S].

        Args:
            products: multiplies with the cell's weights.
            data: input projections [W, S], or inputs [D, S] if there is an input gate.
            states: states before `hidden`, [m - 1, H, B], latest first.
            hidden: the state to begin with, [H, B].
            state_gates: f' at every step, [H, S], or None.
        """
        cell, mask = self.cell, self.mask
        sizes = self.packing.sizes
        steps = data.split(sizes, dim=1)  # T tensors [W, B_t] or [D, B_t]
        gates = state_gates.split(sizes, dim=1) if state_gates is not None else ()
        # products of each past state with the m entry matrices, m tensors [D, B]; history[i - 1] has those of h_{t-i}
        history: deque[tuple[Tensor, ...]] = deque(maxlen=len(states) + 1)

        def enter(state: Tensor) -> tuple[Tensor, ...]:
            entered: Tensor = products("entry", state if mask is None else state * mask)  # [m * D, B]
            return torch.split(entered, cell.input_size)

        if cell.input_gate is not None:
            history.extend(enter(state) for state in states)
        outputs: list[Tensor] = []
        for t, size in enumerate(sizes):
            if size < hidden.shape[1]:  # the shortest sequences have ended
                hidden = hidden[:, :size]
                mask = None if mask is None else mask[:, :size]
            step = steps[t]
            if cell.input_gate is not None:
                history.appendleft(enter(hidden))
                entries = [entered[i][:, :size] for i, entered in enumerate(history)]
                step = products("input", cell.input_gate.apply_to(step, cell.input_gate(entries, products)))  # x̂_t W_x
            if cell.state_gate is not None:
                hidden = cell.state_gate.apply_to(hidden, gates[t])  # ĥ_{t-1}
            hidden = cell.step(step, hidden, products, mask)
            outputs.append(hidden)
        return torch.cat(outputs, dim=1)


def _permuted(state: RecurrentState, order: Tensor | None) -> RecurrentState:
    return state if order is None else _mapped(state, lambda tensor: tensor[:, order])


def _with_batch(state: Any) -> Any:
    if isinstance(state, Tensor) and state.dim() == 2:
        return state.unsqueeze(1)
    if isinstance(state, RecurrentState) and state.hidden.dim() == 2:
        return _mapped(state, lambda tensor: tensor.unsqueeze(1))
    return state


def _without_batch(state: Tensor | RecurrentState) -> Tensor | RecurrentState:
    return state.squeeze(1) if isinstance(state, Tensor) else _mapped(state, lambda tensor: tensor.squeeze(1))


def _mapped(state: RecurrentState, change: Callable[[Tensor], Tensor]) -> RecurrentState:
    return RecurrentState(change(state.hidden), tuple(map(change, state.inputs)), tuple(map(change, state.states)))
