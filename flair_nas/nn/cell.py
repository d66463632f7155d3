"""The searched cell: its parameters, and the equations of one time step (I-DARTS eq. 1; DARTS, appendix)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from flair_nas.genotype import Genotype
from flair_nas.nn.gates import InterCellGate
from flair_nas.nn.init import default_range, ranges
from flair_nas.nn.kernels.engine import CellProgram
from flair_nas.nn.kernels.plan import cell_plan
from flair_nas.nn.operations import FUNCTIONS, masked, product
from flair_nas.nn.protocols import GateLike


def edge(operation: Callable[[Tensor], Tensor], pre: Tensor, state: Tensor, highway: bool = True) -> Tensor:
    """Compute one edge (j -> i, op): s_j + σ(c) (op(z) - s_j) with [c | z] = s_j W_i, or op(s_j W_i).

    Args:
        operation: op.
        pre: s_j W_i, [B, 2H], or [B, H] without highway.
        state: s_j, [B, H].
        highway: use the first form; the second is the papers' plain form.

    Returns:
        [B, H].
    """
    if not highway:
        return operation(pre)
    c, z = pre.chunk(2, dim=1)
    return state + torch.sigmoid(c) * (operation(z) - state)


class SearchedCell(nn.Module):
    """The cell of a genotype with its parameters and those of its inter-cell gates.

    Args:
        input_size: D.
        hidden_size: H.
        genotype: the architecture.
        init_range: weights start uniform in +-init_range; None for 1.5 / √H, those of gates for 1.5 / √rows.
        device: device of the weights.
        dtype: dtype of the weights.

    Shape of the parameters, with W = 2H (H in the plain form), columns [gate | candidate], no biases:
        weight_input [D, W], weight_hidden [H, W], weight_nodes [N, H, W],
        state_gate.weight_entry [m, D, H], state_gate.weight_nodes [m, H, H],
        input_gate.weight_entry [m, H, D], input_gate.weight_nodes [m, D, D].
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        genotype: Genotype,
        init_range: float | None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.genotype = input_size, hidden_size, genotype
        self.init_range = init_range
        width = (2 if genotype.highway else 1) * hidden_size
        self.weight_input = nn.Parameter(torch.empty(input_size, width, device=device, dtype=dtype))
        self.weight_hidden = nn.Parameter(torch.empty(hidden_size, width, device=device, dtype=dtype))
        nodes = len(genotype.nodes)
        self.weight_nodes = nn.Parameter(torch.empty(nodes, hidden_size, width, device=device, dtype=dtype))
        state_gate, input_gate = genotype.state_gate, genotype.input_gate
        self.state_gate: GateLike | None = None
        self.input_gate: GateLike | None = None
        if state_gate is not None:
            self.state_gate = InterCellGate(state_gate, input_size, hidden_size, genotype.gate, device, dtype)
        if input_gate is not None:
            self.input_gate = InterCellGate(input_gate, hidden_size, input_size, genotype.gate, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights from the global generator."""
        range_of = ranges(self.init_range, default_range)
        own_range = range_of(self.hidden_size)
        for weight in (self.weight_input, self.weight_hidden, self.weight_nodes):
            nn.init.uniform_(weight, -own_range, own_range)
        for gate in (self.state_gate, self.input_gate):
            if gate is not None:
                gate.reset_parameters(range_of)

    def step(self, x: Tensor, h: Tensor, mask: Tensor | None = None, previous: Tensor | None = None) -> Tensor:
        """Compute one time step by the equations.

        Args:
            x: x_t, or x̂_t if the genotype has an input gate, [B, D].
            h: h_{t-1}, or ĥ_{t-1} if it has a state gate, [B, H].
            mask: variational dropout mask of h and of the nodes' states where they enter a product, [B, H], or None.
            previous: h_{t-1} if h is ĥ_{t-1}, [B, H].

        Returns:
            h_t, [B, H].
        """
        genotype = self.genotype
        pre = product(x, self.weight_input) + product(masked(h, mask), self.weight_hidden)  # [c_0 | z_0], [B, W]
        carry = h if previous is None or genotype.carry == "gated" else previous
        states = {0: edge(torch.tanh, pre, carry, genotype.highway)}
        for i in genotype.live_nodes:
            weight, edges = self.weight_nodes[i - 1], genotype.nodes[i - 1]
            pres = {j: product(masked(states[j], mask), weight) for j in {e.tail for e in edges}}  # s_j W_i
            terms = [edge(FUNCTIONS[e.op], pres[e.tail], states[e.tail], genotype.highway) for e in edges]
            total = torch.stack(terms).sum(0)  # [B, H]
            states[i] = total / len(edges) if genotype.combine == "mean" else total
        return torch.stack([states[i] for i in genotype.output]).mean(0)

    def program(self) -> CellProgram:
        """Return everything that engines need besides the weights."""
        return CellProgram(cell_plan(self.genotype))

    def extra_repr(self) -> str:
        """Return sizes and genotype, for printing."""
        return f"{self.input_size}, {self.hidden_size}, {self.genotype.one_line()}"
