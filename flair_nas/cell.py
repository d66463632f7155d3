"""The searched cell: its parameters and one time step, as its equations say (DARTS appendix; I-DARTS eq. 1)."""

from __future__ import annotations

import math
from collections.abc import Hashable

import torch
from torch import Tensor, nn

from flair_nas.gates import InterCellGate
from flair_nas.genotype import Genotype
from flair_nas.kernels import triton_mixture
from flair_nas.kernels.choice import chosen
from flair_nas.kernels.plan import CellPlan, cell_plan
from flair_nas.kernels.sequence_gradient import Products, transposed
from flair_nas.operations import OPERATIONS
from flair_nas.recurrence import GateLike, product_dtype


def default_init_range(hidden_size: int) -> float:
    """2 / √H, the range that weights start in unless one is given; docs/decisions.md has the figures."""
    return 2 / math.sqrt(hidden_size)


class SearchedCell(nn.Module):
    """The cell of a genotype with its parameters, and those of its inter-cell gates.

    Args:
        input_size: D.
        hidden_size: H.
        genotype: the architecture.
        init_range: weights start uniform in +-init_range; None for `default_init_range`.

    Shape of the parameters, with W = 2H (H in the plain form), columns [gate | candidate], no biases:
        weight_input [D, W], weight_hidden [H, W], weight_nodes [N, H, W],
        state_gate.weight_entry [m, D, H], state_gate.weight_nodes [m, H, H],
        input_gate.weight_entry [m, H, D], input_gate.weight_nodes [m, D, D].
    """

    def __init__(self, input_size: int, hidden_size: int, genotype: Genotype, init_range: float | None = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.genotype = input_size, hidden_size, genotype
        self.init_range = default_init_range(hidden_size) if init_range is None else init_range
        width = (2 if genotype.highway else 1) * hidden_size
        self.weight_input = nn.Parameter(torch.empty(input_size, width))
        self.weight_hidden = nn.Parameter(torch.empty(hidden_size, width))
        self.weight_nodes = nn.Parameter(torch.empty(len(genotype.nodes), hidden_size, width))
        state_gate, input_gate = genotype.state_gate, genotype.input_gate
        self.state_gate: GateLike | None = None
        self.input_gate: GateLike | None = None
        if state_gate is not None:
            self.state_gate = InterCellGate(state_gate, input_size, hidden_size, genotype.gate)
        if input_gate is not None:
            self.input_gate = InterCellGate(input_gate, hidden_size, input_size, genotype.gate)
        live = genotype.live_nodes
        # heads[j]: the live nodes that read node j; dead nodes are never computed
        self.heads = {
            tail: heads
            for tail in (0, *live)
            if (heads := tuple(i for i in live if any(edge.tail == tail for edge in genotype.nodes[i - 1])))
        }
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weights anew from the global generator."""
        for weight in (self.weight_input, self.weight_hidden, self.weight_nodes):
            nn.init.uniform_(weight, -self.init_range, self.init_range)
        for gate in (self.state_gate, self.input_gate):
            if gate is not None:
                gate.reset_parameters(self.init_range)

    def weights(self) -> dict[Hashable, Tensor]:
        """The matrices of one pass over a sequence, transposed, by the names that `step` and the gates use.

        Returns:
            ``input`` [W, D]; ``hidden`` [W, H]; for each node j that a live node reads, ``j`` [k * W, H], the matrices
            of its k heads one below the other (all gate rows, then all candidates), so that edges that share a source
            share one product; ``entry`` [m * D, H] and ``("gate", i)`` [D, D] of the input gate.
        """
        dtype = product_dtype(self.weight_hidden)  # cast once here, not at every step
        matrices: dict[Hashable, Tensor] = {
            "input": self.weight_input.to(dtype),
            "hidden": self.weight_hidden.to(dtype),
        }
        nodes = self.weight_nodes.to(dtype).unbind()  # N matrices [H, W]; the gradient of each index would fill all N
        for tail, heads in self.heads.items():
            blocks = [part for i in heads for part in nodes[i - 1].split(self.hidden_size, dim=1)]  # [H, H] each
            if self.genotype.highway:
                blocks = blocks[0::2] + blocks[1::2]
            matrices[tail] = torch.cat(blocks, dim=1) if len(heads) > 1 else nodes[heads[0] - 1]  # [H, k * W]
        if self.input_gate is not None:
            matrices["entry"] = self.input_gate.weight_entry.to(dtype).transpose(0, 1).flatten(1)  # [H, m * D]
            matrices |= {name: weight.to(dtype) for name, weight in self.input_gate.inner_weights().items()}
        return transposed(matrices)

    def step(self, projected: Tensor, hidden: Tensor, products: Products, mask: Tensor | None = None) -> Tensor:
        """One time step, h_t from h_{t-1}; vectors are columns here (see `Products`).

        Args:
            projected: x_t W_x, [W, B].
            hidden: h_{t-1}, gated if the genotype has a state gate, [H, B].
            products: multiplies with `weights`.
            mask: variational dropout mask of the states, [H, B], or None.

        Returns:
            h_t, [H, B].
        """
        genotype = self.genotype
        fused = genotype.highway and chosen(hidden.device) == "triton"  # an edge in one kernel, from c and z together
        states: dict[int, Tensor] = {}
        gates: dict[tuple[int, int], Tensor] = {}  # (j, i): σ(c) of s_j W_i, [H, B]
        candidates: dict[tuple[int, int], Tensor] = {}  # (j, i): z of s_j W_i, [H, B]; c and z if fused, [2, H, B]

        def product(name: Hashable, state: Tensor) -> Tensor:
            pre: Tensor = products(name, state if mask is None else state * mask)
            return pre

        def enter(number: int, state: Tensor) -> None:
            states[number] = state
            heads = self.heads.get(number)
            if heads is None:
                return
            pre = product(number, state)  # [k * W, B]
            pairs = [(number, i) for i in heads]
            if fused:
                candidates.update(zip(pairs, pre.view(2, len(heads), *state.shape).unbind(1)))
                return
            if genotype.highway:
                gate, pre = pre.chunk(2)  # [k * H, B] each
                gates.update(zip(pairs, _parts(torch.sigmoid(gate), len(heads))))
            candidates.update(zip(pairs, _parts(pre, len(heads))))

        pre = projected + product("hidden", hidden)  # [W, B]
        if fused:
            enter(0, triton_mixture.highway(pre, hidden, "tanh"))
        elif genotype.highway:
            gate, pre = pre.chunk(2)
            enter(0, torch.lerp(hidden, torch.tanh(pre), torch.sigmoid(gate)))  # s_0 = h + σ(c) (tanh(z) - h)
        else:
            enter(0, torch.tanh(pre))
        for number in genotype.live_nodes:
            edges = genotype.nodes[number - 1]
            total: Tensor | None = None
            for edge in edges:
                candidate = candidates[edge.tail, number]
                if fused:
                    value = triton_mixture.highway(candidate, states[edge.tail], edge.op)
                else:
                    value = OPERATIONS[edge.op](candidate)
                    if genotype.highway:  # s_j + σ(c) (op(z) - s_j)
                        value = torch.lerp(states[edge.tail], value, gates[edge.tail, number])
                total = value if total is None else total + value
            assert total is not None
            enter(number, total / len(edges) if genotype.combine == "mean" and len(edges) > 1 else total)
        first, *rest = genotype.output
        output = states[first]
        for number in rest:
            output = output + states[number]  # faster than the mean of a stack
        return output / len(genotype.output) if rest else output

    def plan(self) -> CellPlan | None:
        """What the native kernels need to know; None if there are none for this form of cell."""
        return cell_plan(self.genotype)

    def normalisation(self) -> None:
        """None: states are not normalised."""

    def extra_repr(self) -> str:
        """Sizes and genotype, for printing."""
        return f"{self.input_size}, {self.hidden_size}, {self.genotype.one_line()}"


def _parts(tensor: Tensor, count: int) -> tuple[Tensor, ...]:
    """Splits rows evenly; a single part, the common case, costs no copy in the backward pass."""
    return tensor.chunk(count) if count > 1 else (tensor,)
