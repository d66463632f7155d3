"""The recurrence that layers and supernets share: one cell with its inter-cell gates, over a ragged packed batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from flair_nas.kernels import native
from flair_nas.kernels.plan import CellPlan, GatePlan
from flair_nas.kernels.sequence_gradient import Products, RowProducts, run_sequence
from flair_nas.kernels.tracing import untraced


class GateLike(Protocol):
    """An inter-cell gate, discrete (`InterCellGate`) or relaxed (`GateSupernet`)."""

    weight_entry: Any  # [m, E, G]
    weight_nodes: Any  # [m, G, G]

    @property
    def history(self) -> int:
        """The history length m."""

    def inner_weights(self) -> dict[Hashable, Tensor]:
        """The matrices that `__call__` multiplies with, by name, [G, G] each."""

    def __call__(self, entries: Sequence[Tensor], products: Products | RowProducts, *shares: Tensor) -> Tensor:
        """The gate, [G, B] or [S, G], from m products v_i W_i^in of that shape."""

    def plan(self) -> GatePlan:
        """What the native kernels need to know."""

    def apply_to(self, vector: Tensor, gate: Tensor) -> Tensor:
        """Gates a vector."""

    def reset_parameters(self, init_range: float) -> None:
        """Draws the weights."""


class CellLike(Protocol):
    """A cell, discrete (`SearchedCell`) or relaxed (`CellSupernet`). Shares are the mixing weights of a relaxed one."""

    input_size: int
    hidden_size: int
    weight_input: Any  # [D, W]
    weight_hidden: Any  # [H, W]
    weight_nodes: Any  # [N, H, W]
    state_gate: Any  # GateLike | None
    input_gate: Any  # GateLike | None

    def weights(self) -> dict[Hashable, Tensor]:
        """The matrices of one pass over a sequence, transposed; ``input`` is x's."""

    def plan(self) -> CellPlan | None:
        """What the native kernels need to know; None if there are none for this cell."""

    def normalisation(self) -> native.Normalisation | None:
        """How states are normalised."""

    def step(self, *args: Any, **kwargs: Any) -> Tensor:
        """h_t, [H, B], from x_t W_x [W, B], h_{t-1} [H, B], `Products`, the mask of the states or None, and shares."""


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


def initial_state(cells: Sequence[CellLike], hx: Any, batch: int) -> RecurrentState:
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


class Packing:
    """Where the tokens of a ragged batch lie: row (t, b) of packed data is offsets[t] + b, b < sizes[t].

    Args:
        sizes: number of sequences that have a token at each time step, [T], never growing.
    """

    def __init__(self, sizes: Tensor, device: torch.device) -> None:
        self.sizes: list[int] = sizes.tolist()
        self.batch = self.sizes[0]
        self._sizes, self._device = sizes, device

    @cached_property
    def offsets(self) -> Tensor:
        """The first row of each step, [T]."""
        return (self._sizes.cumsum(0) - self._sizes).to(self._device)

    @cached_property
    def time(self) -> Tensor:
        """The step of each row, [S]."""
        return torch.arange(len(self._sizes)).repeat_interleave(self._sizes).to(self._device)

    @cached_property
    def column(self) -> Tensor:
        """The sequence of each row, [S]."""
        return torch.arange(len(self.time), device=self._device) - self.offsets[self.time]

    @cached_property
    def lengths(self) -> Tensor:
        """The length of each sequence, [B]: sequence b lasts as long as more than b sequences do."""
        return (self._sizes[:, None] > torch.arange(self.batch)).sum(0).to(self._device)

    def ends(self) -> Tensor:
        """The row of each sequence's last token, [B]."""
        return self.offsets[self.lengths - 1] + torch.arange(self.batch, device=self._device)

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


@untraced
def run_cell(
    cell: CellLike,
    data: Tensor,
    packing: Packing,
    start: tuple[Tensor, Tensor, Tensor],
    *,
    input_dropout: float = 0.0,
    recurrent_dropout: float = 0.0,
    shares: Mapping[str, Tensor] | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """One layer in one direction.

    Args:
        cell: its cell.
        data: packed input, [S, D].
        packing: where the tokens lie.
        start: the state to begin with, [B, H]; inputs before the first step, [m, B, D]; states before that
            state, [m - 1, B, H].
        input_dropout: probability of the variational mask of the input, 0 in evaluation.
        recurrent_dropout: probability of the variational mask of the states, 0 in evaluation.
        shares: mixing weights of relaxed parts, by ``cell``, ``state_gate`` and ``input_gate``.

    Returns:
        Packed output [S, H]; the state at the end, as `start`.
    """
    shares = shares or {}
    hidden, inputs, states = start
    data = data.to(cell.weight_hidden.dtype)  # under autocast the input may come from a product of lower precision
    input_mask = _mask(input_dropout, data, packing.batch)  # [B, D]
    mask = _mask(recurrent_dropout, hidden, packing.batch)  # [B, H]
    factor: Tensor | None = None
    if cell.state_gate is not None:
        past = torch.cat([inputs.flatten(0, 1), data])  # [m * B + S, D]
        inputs = packing.last(past, cell.state_gate.history)
        of_gate = [shares["state_gate"]] if "state_gate" in shares else []
        gates = _state_gates(cell.state_gate, past, packing, input_mask, of_gate)  # [S, H]
        factor = 1 + gates if cell.state_gate.plan().residual else gates
    if input_mask is not None:
        data = data * input_mask[packing.column]
    run = _Run(cell, data, packing, hidden, states, factor, mask, shares)
    product = product_dtype(cell.weight_hidden)
    plan = cell.plan() if native.available(data.device, data.dtype, product) else None
    output = _run_plain(run) if plan is None else _run_native(run, plan, product)
    if cell.input_gate is not None:
        past = torch.cat([hidden, states.flatten(0, 1), output])  # [m * B + S, H]
        states = packing.last(past, cell.input_gate.history)[1:]
    return output, (output[packing.ends()], inputs, states)


class _Run(NamedTuple):
    """A recurrence, with all that does not depend on its states computed.

    Args:
        cell: the cell.
        data: packed input, [S, D].
        packing: where the tokens lie.
        hidden: the state to begin with, [B, H].
        states: states before that one, [m - 1, B, H].
        factor: what the state gate multiplies h_{t-1} with, [S, H], or None.
        mask: variational dropout mask of the states, [B, H], or None.
        shares: mixing weights of relaxed parts.
    """

    cell: CellLike
    data: Tensor
    packing: Packing
    hidden: Tensor
    states: Tensor
    factor: Tensor | None
    mask: Tensor | None
    shares: Mapping[str, Tensor]


def _run_plain(run: _Run) -> Tensor:
    """The packed output, [S, H], by the loop over time steps."""
    cell, data, packing, hidden, states, factor, mask, shares = run
    weights = cell.weights()
    # vectors as columns, see `Products`: [m - 1, H, B], [H, B]
    sources = {"states": states.transpose(1, 2).contiguous(), "hidden": hidden.t().contiguous()}
    if factor is not None:
        sources["factor"] = factor.t().contiguous()  # [H, S]
    if cell.input_gate is None:
        sources["data"] = torch.mm(weights.pop("input"), data.t()).to(data.dtype)  # all input projections, [W, S]
    else:
        sources["data"] = data.t().contiguous()  # [D, S]
    for name in ("cell", "input_gate"):
        if name in shares:
            sources[f"{name}_shares"] = shares[name]
    loop = _Loop(cell, packing, None if mask is None else mask.t().contiguous())
    return run_sequence(loop, weights, sources).t().contiguous()


def _run_native(run: _Run, plan: CellPlan, product: torch.dtype) -> Tensor:
    """The same by the native kernels, with products in a dtype of their own under autocast."""
    cell, data, packing, hidden, states, factor, mask, shares = run
    sources = {"hidden": hidden, "weight_hidden": cell.weight_hidden, "weight_nodes": cell.weight_nodes}
    if factor is not None:
        sources["factor"] = factor
    if "cell" in shares:
        sources["shares"] = shares["cell"][list(plan.pairs.rows)]
    gate = None
    if cell.input_gate is None:
        sources["projected"] = torch.mm(data, cell.weight_input).to(data.dtype)  # [S, 2H]
    else:
        gate = cell.input_gate.plan()
        sources |= {"data": data, "past": states, "weight_input": cell.weight_input}
        sources |= {"weight_entry": cell.input_gate.weight_entry, "weight_gate": cell.input_gate.weight_nodes}
        if "input_gate" in shares:
            sources["entry_shares"] = shares["input_gate"][: cell.input_gate.history]
            sources["gate_shares"] = shares["input_gate"][list(gate.pairs.rows)]
    sizes = (packing.sizes, cell.input_size, cell.hidden_size)
    recurrence = native.Recurrence(plan, gate, *sizes, product, mask, cell.normalisation())
    return native.run(recurrence, sources)


def product_dtype(weight: Tensor) -> torch.dtype:
    """The dtype of a product with this weight: under autocast a lower one than the weight's own."""
    return torch.mm(weight.new_zeros(1, 1), weight.new_zeros(1, 1)).dtype


def _state_gates(
    gate: GateLike, past: Tensor, packing: Packing, mask: Tensor | None, shares: Sequence[Tensor]
) -> Tensor:
    """f'(x_{t-1}, ..., x_{t-m}) for the whole sequence at once, [S, H], from history and input, [m * B + S, D]."""
    if mask is not None:
        columns = torch.arange(packing.batch, device=past.device).repeat(gate.history)
        past = past * mask[torch.cat([columns, packing.column])]
    weights = gate.weight_entry.transpose(0, 1).flatten(1)  # [D, m * H]
    products = torch.mm(past, weights).to(past.dtype).chunk(gate.history, dim=1)  # m times [m * B + S, H]
    # as an embedding, whose backward pass is faster than that of indices
    entries = [
        nn.functional.embedding(packing.lagged_rows(packing.time, packing.column, lag, gate.history), product)  # [S, H]
        for lag, product in enumerate(products, start=1)
    ]
    return gate(entries, RowProducts(gate.inner_weights()), *shares)


def _mask(probability: float, like: Tensor, batch: int) -> Tensor | None:
    """A variational dropout mask, one row per sequence, [B, width]; None when nothing is dropped."""
    if not probability:
        return None
    return like.new_empty(batch, like.shape[-1]).bernoulli_(1 - probability).div_(1 - probability)


class _Loop:
    """The steps of one layer in one direction, as `run_sequence` wants them.

    Args:
        cell: the cell, with its gates.
        packing: where the tokens lie.
        mask: variational dropout mask of the states, [H, B], or None.
    """

    def __init__(self, cell: CellLike, packing: Packing, mask: Tensor | None) -> None:
        self.cell, self.packing, self.mask = cell, packing, mask

    def __call__(
        self,
        products: Products,
        *,
        data: Tensor,
        states: Tensor,
        hidden: Tensor,
        factor: Tensor | None = None,
        cell_shares: Tensor | None = None,
        input_gate_shares: Tensor | None = None,
    ) -> Tensor:
        """Computes the packed output, [H, S].

        Args:
            products: multiplies with the cell's weights.
            data: input projections [W, S], or inputs [D, S] if there is an input gate.
            states: states before `hidden`, [m - 1, H, B], latest first.
            hidden: the state to begin with, [H, B].
            factor: what the state gate multiplies h_{t-1} with at every step, [H, S], or None.
            cell_shares: mixing weights of a relaxed cell, or None.
            input_gate_shares: mixing weights of a relaxed input gate, or None.
        """
        cell, mask = self.cell, self.mask
        of_cell = () if cell_shares is None else (cell_shares,)
        of_gate = () if input_gate_shares is None else (input_gate_shares,)
        sizes = self.packing.sizes
        steps = data.split(sizes, dim=1)  # T tensors [W, B_t] or [D, B_t]
        factors = factor.split(sizes, dim=1) if factor is not None else ()
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
                gate = cell.input_gate(entries, products, *of_gate)
                step = products("input", cell.input_gate.apply_to(step, gate))  # x̂_t W_x
            if factor is not None:
                hidden = hidden * factors[t]  # ĥ_{t-1}
            hidden = cell.step(step, hidden, products, mask, *of_cell)
            outputs.append(hidden)
        return torch.cat(outputs, dim=1)
