"""The searched cell: its parameters, and the equations of one time step (I-DARTS eq. 1; DARTS, appendix)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

import torch
from torch import Tensor, nn

from flair_nas.genotype import DEFAULT_RECURRENCE, OPERATION_TABLE, OPERATIONS, Genotype
from flair_nas.nn.gates import GateBase, InterCellGate
from flair_nas.nn.init import default_range
from flair_nas.nn.kernels.elementwise_loop import Loop
from flair_nas.nn.kernels.engine import CellProgram
from flair_nas.nn.kernels.plan import cell_plan
from flair_nas.nn.matrix_product import masked, product
from flair_nas.nn.packing import Packing


def edge(operation: str | Tensor, pre: Tensor, state: Tensor, highway: bool = True) -> Tensor:
    """Compute one edge (j -> i, op), [B, H]: s_j + σ(c) (op(z) - s_j) with [c | z] = s_j W_i, or op(s_j W_i).

    Args:
        operation: op, or the mixing weights p of all operations, [5], which give Σ_k p_k times the edge of op_k. Drop
            adds nothing (DARTS; I-DARTS eq. 4).
        pre: s_j W_i, [B, 2H], or [B, H] without highway.
        state: s_j, [B, H].
        highway: use the first form instead of the papers' plain form.
    """
    if isinstance(operation, Tensor):
        terms = [p * edge(name, pre, state, highway) for p, name in zip(operation, OPERATIONS) if name != "drop"]
        return torch.stack(terms).sum(0)
    if not highway:
        return OPERATION_TABLE[operation].function(pre)
    c, z = pre.chunk(2, dim=1)
    return state + torch.sigmoid(c) * (OPERATION_TABLE[operation].function(z) - state)


Edges = Callable[[str | Tensor, Tensor, Tensor], Tensor]
"""A function that computes an edge in the highway form: `edge` or a faster one."""


class CellBase(nn.Module):
    """Parts that all cells share.

    Args:
        input_size: D.
        hidden_size: H.
        width: W, 2H, or H in the plain form.
        recurrence: ``full``, or ``elementwise``, in which the state that is carried is s_0 instead of h_t.
    """

    init_range: float | None  # initialisation bound of the weights; if None, `range_of` makes it from a width
    masks_states = True  # variational dropout of the states has an effect
    recurrence = DEFAULT_RECURRENCE  # older pickles have no other
    weight_hidden: nn.Parameter
    weight_nodes: nn.Parameter
    range_of: Callable[[int], float] = staticmethod(default_range)  # of H, or of the rows of a gate's matrix

    def __init__(self, input_size: int, hidden_size: int, width: int, recurrence: str = DEFAULT_RECURRENCE) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.recurrence = input_size, hidden_size, recurrence
        self.weight_input = nn.Parameter(torch.empty(input_size, width))
        self.state_gate: GateBase | None = None
        self.input_gate: GateBase | None = None

    @property
    def has_gates(self) -> bool:
        """True if the cell has an inter-cell gate."""
        return self.state_gate is not None or self.input_gate is not None

    def add_weights(self, nodes: int) -> None:
        """Add the weights of a searched cell: W_h, or v, and W_1..W_N."""
        size, width = self.hidden_size, self.weight_input.shape[1]
        shape = (size,) if self.recurrence == "elementwise" else (size, width)
        self.weight_hidden = nn.Parameter(torch.empty(shape))
        self.weight_nodes = nn.Parameter(torch.empty(nodes, size, width))

    def set_gates(self, genotype: Genotype) -> None:
        """Give the cell the gates of a genotype."""
        sizes = self.input_size, self.hidden_size
        if genotype.state_gate is not None:
            self.state_gate = InterCellGate(genotype.state_gate, *sizes, genotype.gate)
        if genotype.input_gate is not None:
            self.input_gate = InterCellGate(genotype.input_gate, *sizes[::-1], genotype.gate)

    def reset_parameters(self) -> None:
        """Draw all weights from the global generator.

        Architecture weights start at 1e-3 N(0, 1). The vector v of an elementwise recurrence starts uniform in ±0.5 for
        any H, since each entry multiplies one number.
        """
        own_range = self._range(self.hidden_size)
        for name, weight in self.named_parameters(recurse=False):
            if name == "arch":
                nn.init.normal_(weight, std=1e-3)
            elif name == "weight_hidden" and self.recurrence == "elementwise":
                nn.init.uniform_(weight, -0.5, 0.5)
            else:
                nn.init.uniform_(weight, -own_range, own_range)
        for gate in (self.state_gate, self.input_gate):
            if gate is not None:
                gate.reset_parameters(self._range)

    def _range(self, width: int) -> float:
        return self.range_of(width) if self.init_range is None else self.init_range

    def step(
        self, x: Tensor, last: Sequence[Tensor], scale: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Compute h_t, [B, H], of a full recurrence by the equations; engines do so for a whole sequence.

        Args:
            x: x_t, [B, D], if there is an input gate; else x_t W_x, [B, W].
            last: h_{t-1}, and with an input gate the states before it, latest first, [B, H] each.
            scale: the scale of the state gate, [B, H], or None.
            mask: variational dropout mask of the states where they enter a product, [B, H], or None.
        """
        if self.input_gate is not None:
            x = product(x * self.input_gate.scale([masked(h, mask) for h in last]), self.weight_input)  # x̂_t W_x
        h = last[0] if scale is None else last[0] * scale  # ĥ_{t-1}
        pre = x + product(masked(h, mask), self.weight_hidden)  # [c_0 | z_0], [B, W]
        highway, carry = self.form()
        compute = partial(edge, highway=highway)
        return self.run_nodes(compute("tanh", pre, h if carry == "gated" else last[0]), mask, compute)

    def form(self) -> tuple[bool, str]:
        """Return the options `highway` and `carry` of a full recurrence."""
        raise NotImplementedError

    def run_nodes(self, state: Tensor, mask: Tensor | None = None, edge: Edges = edge) -> Tensor:
        """Compute h_t from s_0, [B, H] each, or for all steps of an elementwise recurrence, [S, H] each.

        Args:
            state: s_0.
            mask: variational dropout mask of the states where they enter a product, of the same shape, or None.
            edge: computes the edges.
        """
        raise NotImplementedError

    def run_elementwise(
        self, data: Tensor, packing: Packing, hidden: Tensor, mask: Tensor | None, loop: Loop, edge: Edges
    ) -> tuple[Tensor, Tensor]:
        """Run an elementwise recurrence: s_0 of all steps, then each node for all steps at once.

        With [c | z] = x W_x, s_{0,t} = s_{0,t-1} + σ(c_t + v ⊙ s_{0,t-1}) ⊙ (tanh(z_t) - s_{0,t-1}).

        Args:
            data: packed input, [S, D].
            packing: positions of the tokens.
            hidden: s_0 before the first step, [B, H].
            mask: variational dropout mask of the states where they enter a product, [B, H], or None.
            loop: runs the loop over the steps.
            edge: computes the edges.

        Returns:
            Packed output and s_0, [S, H] each.
        """
        weight = self.weight_hidden[None] if mask is None else self.weight_hidden * mask  # v, [1, H] or [B, H]
        state = loop("tanh", product(data, self.weight_input), weight, hidden, packing)
        return self.run_nodes(state, None if mask is None else mask[packing.column], edge), state

    def program(self) -> CellProgram:
        """Return everything that engines need besides the weights."""
        raise NotImplementedError


class SearchedCell(CellBase):
    """The cell of a genotype with its parameters and those of its inter-cell gates.

    Args:
        input_size: D.
        hidden_size: H.
        genotype: the architecture.
        init_range: initialisation bound of the weights; None for `default_range`.

    Shape of the parameters, with W = 2H (H in the plain form), columns [gate | candidate], no biases:
        weight_input [D, W], weight_hidden [H, W], or v [H] of an elementwise recurrence, weight_nodes [N, H, W],
        state_gate.weight_entry [m, D, H], state_gate.weight_nodes [m, H, H],
        input_gate.weight_entry [m, H, D], input_gate.weight_nodes [m, D, D].
    """

    def __init__(self, input_size: int, hidden_size: int, genotype: Genotype, init_range: float | None) -> None:
        width = (2 if genotype.highway else 1) * hidden_size
        super().__init__(input_size, hidden_size, width, genotype.recurrence)
        self.add_weights(len(genotype.nodes))
        self.genotype, self.init_range = genotype, init_range
        self.set_gates(genotype)
        self.reset_parameters()

    def form(self) -> tuple[bool, str]:
        """Return the options `highway` and `carry`."""
        return self.genotype.highway, self.genotype.carry

    def run_nodes(self, state: Tensor, mask: Tensor | None = None, edge: Edges = edge) -> Tensor:
        """Compute h_t from s_0 (I-DARTS eq. 1); see `CellBase.run_nodes`."""
        genotype, states = self.genotype, {0: state}
        for i in genotype.live_nodes:
            weight, edges = self.weight_nodes[i - 1], genotype.nodes[i - 1]
            pres = {j: product(masked(states[j], mask), weight) for j in {e.tail for e in edges}}  # s_j W_i
            total = reduce(torch.add, [edge(e.op, pres[e.tail], states[e.tail]) for e in edges])  # [B, H]
            states[i] = total / len(edges) if genotype.combine == "mean" else total
        return reduce(torch.add, [states[i] for i in genotype.output]) / len(genotype.output)

    def program(self) -> CellProgram:
        """Return everything that engines need besides the weights."""
        return CellProgram(cell_plan(self.genotype))

    def extra_repr(self) -> str:
        """Return sizes and genotype, for printing."""
        return f"{self.input_size}, {self.hidden_size}, {self.genotype.spec()}"
