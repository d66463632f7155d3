"""The inter-cell gates of ESS (Li et al. 2020), relaxed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor, nn

from flair_nas.gates import apply_gate, reset_gate_parameters
from flair_nas.genotype import Gate
from flair_nas.kernels.mixture import mixture
from flair_nas.kernels.plan import GatePlan, relaxed_gate_plan
from flair_nas.kernels.sequence_gradient import Products, RowProducts
from flair_nas.operations import OPERATIONS
from flair_nas.supernet.derive import derive_gate
from flair_nas.supernet.relaxation import mean_absolute_deviation, relax


class GateSupernet(nn.Module):
    """One gate of ESS, f' or g', with all operations and all edges between its nodes.

    Node i: s_i = the sum over k of p_k op_k(v_i W_i^in) + the sum over j < i and k of p_k^{ij} op_k(s_j W_i).

    Args:
        history: m, the number of nodes.
        entry_size: width E of the entry vectors.
        gate_size: width G of the gate.
        form: ``product`` or ``residual``.
        relaxation: grouping of the edges between nodes; an entry always has a softmax of its own.

    Shape of the parameters:
        weight_entry [m, E, G], weight_nodes [m, G, G], arch_entry [m, 5], arch [m (m - 1) / 2, 5], the last by head
        2..m, then tail.
    """

    _by_tail: Tensor

    def __init__(self, history: int, entry_size: int, gate_size: int, form: str, relaxation: str) -> None:
        super().__init__()
        self.form, self.relaxation = form, relaxation
        self.weight_entry = nn.Parameter(torch.empty(history, entry_size, gate_size))
        self.weight_nodes = nn.Parameter(torch.empty(history, gate_size, gate_size))
        self.arch_entry = nn.Parameter(torch.empty(history, len(OPERATIONS)))
        self.arch = nn.Parameter(torch.empty(history * (history - 1) // 2, len(OPERATIONS)))
        # the rows of `arch` by tail, then head
        by_tail = [
            (head - 1) * (head - 2) // 2 + tail - 1
            for tail in range(1, history)
            for head in range(tail + 1, history + 1)
        ]
        self.register_buffer("_by_tail", torch.tensor(by_tail, dtype=torch.long), persistent=False)

    def reset_parameters(self, init_range: float) -> None:
        """Draws the weights as `InterCellGate` does; architecture weights start at 1e-3 N(0, 1)."""
        reset_gate_parameters(self.weight_entry, self.weight_nodes, self.form, init_range)
        for arch in (self.arch_entry, self.arch):
            nn.init.normal_(arch, std=1e-3)

    @property
    def history(self) -> int:
        """The history length m."""
        return len(self.weight_entry)

    def shares(self) -> Tensor:
        """The mixing weights, entries first, then edges by tail and head, [m + m (m - 1) / 2, 5]."""
        return torch.cat([self.arch_entry.softmax(1), relax(self.arch, self.relaxation)[self._by_tail]])

    def inner_weights(self) -> dict[Hashable, Tensor]:
        """For each node j but the last, the matrices of the nodes that read it, side by side, [G, (m - j) * G]."""
        matrices = self.weight_nodes.unbind()
        return {("gate", j): torch.cat(matrices[j:], dim=1) for j in range(1, self.history)}

    def forward(self, entries: Sequence[Tensor], products: Products | RowProducts, shares: Tensor) -> Tensor:
        """Computes the gate.

        Args:
            entries: the products v_i W_i^in, m tensors [G, B]; or [S, G] where vectors are rows.
            products: multiplies with `inner_weights`, transposed where vectors are columns.
            shares: as `shares` gives them.

        Returns:
            The gate, [G, B] or [S, G].
        """
        history = self.history
        of_entries, *of_tails = shares.split([*range(history, 0, -1)])  # the m entries; the m - j edges of each tail j
        totals = mixture(torch.stack(list(entries)), of_entries)  # [m, G, B], the entry terms
        states: list[Tensor] = []
        for tail, of_tail in enumerate(of_tails, start=1):
            states.append(totals[0])
            pre = products.stacked(("gate", tail), totals[0], len(of_tail))  # [m - j, G, B]
            totals = totals[1:] + mixture(pre, of_tail)
        return torch.stack([*states, totals[0]]).mean(0)

    def plan(self) -> GatePlan:
        """What the native kernels need to know."""
        return relaxed_gate_plan(self.history, self.form)

    def apply_to(self, vector: Tensor, gate: Tensor) -> Tensor:
        """Gates a vector: v * gate (ESS eq. 5 and 6), or v * (1 + gate) in the residual form."""
        return apply_gate(vector, gate, self.form)

    def architecture(self) -> list[nn.Parameter]:
        """The architecture weights; those of the edges are left out where a history of 1 has none."""
        return [self.arch_entry, self.arch] if self.arch.numel() else [self.arch_entry]

    def derive(self, edges_per_node: int = 1) -> Gate:
        """The discrete gate that the architecture weights stand for now."""
        return derive_gate(self.arch_entry, self.arch, self.relaxation, edges_per_node)


def gates_deviation(*gates: GateSupernet) -> float:
    """MAD of all shares of the gates together."""
    parts = [pair for gate in gates for pair in ((gate.arch_entry, "darts"), (gate.arch, gate.relaxation))]
    total = sum(mean_absolute_deviation(arch, relaxation) * arch.numel() for arch, relaxation in parts if arch.numel())
    return total / sum(arch.numel() for arch, _ in parts)
