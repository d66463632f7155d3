"""The inter-cell gates of ESS (Li et al. 2020): small networks over the last m inputs or states."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import reduce

import torch
from torch import Tensor, nn

from flair_nas.genotype import Gate
from flair_nas.kernels.plan import GatePlan, gate_plan
from flair_nas.kernels.sequence_gradient import Products, RowProducts


def reset_gate_parameters(weight_entry: Tensor, weight_nodes: Tensor, form: str, init_range: float) -> None:
    """Draws the weights of a gate.

    Args:
        weight_entry: [m, E, G].
        weight_nodes: [m, G, G].
        form: ``product`` or ``residual``.
        init_range: weights are uniform in +-init_range. The product form multiplies the signal by the gate, so it
            starts with entry weights of unit gain instead, wider by sqrt(m) because the gate averages m nodes;
            see docs/decisions.md.
    """
    history, entry_size, _ = weight_entry.shape
    entry_range = math.sqrt(3 * history / entry_size) if form == "product" else init_range
    nn.init.uniform_(weight_entry, -entry_range, entry_range)
    nn.init.uniform_(weight_nodes, -init_range, init_range)


def apply_gate(vector: Tensor, gate: Tensor, form: str) -> Tensor:
    """Gates a vector: v * gate (ESS eq. 5 and 6), or v * (1 + gate) in the residual form."""
    return vector * gate if form == "product" else vector * (1 + gate)


class InterCellGate(nn.Module):
    """One gate of ESS, f' or g'.

    Node i reads its own entry vector and earlier nodes:
    s_i = op_i(v_i W_i^in) + the sum over kept edges (j -> i, op) of op(s_j W_i); the gate is the mean of s_1..s_m.

    Args:
        gate: structure of the gate, m nodes.
        entry_size: width E of the entry vectors v_1..v_m.
        gate_size: width G of the gate, that of what it multiplies.
        form: ``product`` or ``residual``.
    """

    def __init__(self, gate: Gate, entry_size: int, gate_size: int, form: str) -> None:
        super().__init__()
        self.nodes = gate.nodes
        self.form = form
        self.weight_entry = nn.Parameter(torch.empty(gate.history, entry_size, gate_size))  # [m, E, G]
        self.weight_nodes = nn.Parameter(torch.empty(gate.history, gate_size, gate_size))  # [m, G, G]

    def reset_parameters(self, init_range: float) -> None:
        """Draws the weights.

        Args:
            init_range: as `reset_gate_parameters` takes it.
        """
        reset_gate_parameters(self.weight_entry, self.weight_nodes, self.form, init_range)

    @property
    def history(self) -> int:
        """The history length m."""
        return len(self.nodes)

    def inner_weights(self) -> dict[Hashable, Tensor]:
        """The matrices W_i of nodes that read earlier nodes, by the names that `forward` uses, [G, G] each."""
        matrices = self.weight_nodes.unbind()
        return {
            ("gate", i): matrix for i, (node, matrix) in enumerate(zip(self.nodes, matrices), start=1) if node.edges
        }

    def forward(self, entries: Sequence[Tensor], products: Products | RowProducts) -> Tensor:
        """Computes the gate.

        Args:
            entries: the products v_i W_i^in, m tensors [G, B]; or [S, G] where vectors are rows.
            products: multiplies with `inner_weights`, transposed where vectors are columns.

        Returns:
            The gate, [G, B] or [S, G].
        """
        states: list[Tensor] = []
        for number, (node, entry) in enumerate(zip(self.nodes, entries), start=1):
            state = products.operations[node.entry](entry)
            shared: dict[int, Tensor] = {}  # s_j W_i, for several edges of the same pair
            for edge in node.edges:
                if edge.tail not in shared:
                    shared[edge.tail] = products(("gate", number), states[edge.tail - 1])
                state = state + products.operations[edge.op](shared[edge.tail])
            states.append(state)
        return reduce(torch.add, states) / len(states)

    def plan(self) -> GatePlan:
        """What the native kernels need to know."""
        return gate_plan(self.nodes, self.form)

    def apply_to(self, vector: Tensor, gate: Tensor) -> Tensor:
        """Gates a vector: v * gate (ESS eq. 5 and 6), or v * (1 + gate) in the residual form."""
        return apply_gate(vector, gate, self.form)

    def extra_repr(self) -> str:
        """Shapes, for printing."""
        history, entry_size, gate_size = self.weight_entry.shape
        return f"{entry_size}, {gate_size}, history={history}, form={self.form}"
