"""Relaxed inter-cell gates of ESS (Li et al. 2020)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from flair_nas.genotype import OPERATION_TABLE, OPERATIONS, Gate
from flair_nas.nn.cell import CellBase
from flair_nas.nn.gates import GateBase
from flair_nas.nn.kernels.engine import GateProgram
from flair_nas.nn.kernels.plan import relaxed_gate_plan
from flair_nas.nn.matrix_product import product
from flair_nas.supernet.base import Relaxed
from flair_nas.supernet.derive import derive_gate
from flair_nas.supernet.relaxation import Sampler

OF_ENTRIES = "darts"
"""Relaxation of a gate's entries: one softmax per entry."""


class GateSupernet(GateBase):
    """Gate of ESS, f' or g', with all operations and all edges between its nodes.

    Args:
        history, entry_size, gate_size, form: as for `GateBase`.
        relaxation: grouping of the edges between nodes; an entry always has a softmax of its own.
        sampler: makes mixing weights of architecture weights, for the whole supernet.
        links: the nodes read one another; otherwise each reads its entry alone (ESS leaves that open).

    Shape of the parameters:
        weight_entry [m, E, G], weight_nodes [m, G, G], arch_entry [m, 5], arch [m (m - 1) / 2, 5], the last by head
        2..m, then tail; [0, 5] without links.
    """

    def __init__(
        self,
        history: int,
        entry_size: int,
        gate_size: int,
        form: str,
        relaxation: str,
        sampler: Sampler,
        links: bool = True,
    ) -> None:
        super().__init__(history, entry_size, gate_size, form)
        self.relaxation, self.sampler, self.links = relaxation, sampler, links
        self.arch_entry = nn.Parameter(torch.empty(history, len(OPERATIONS)))
        self.arch = nn.Parameter(torch.empty(history * (history - 1) // 2 if links else 0, len(OPERATIONS)))

    def reset_parameters(self, range_of: Callable[[int], float]) -> None:
        """Draw the weights as `GateBase` does; architecture weights start at 1e-3 N(0, 1)."""
        super().reset_parameters(range_of)
        for arch in (self.arch_entry, self.arch):
            nn.init.normal_(arch, std=1e-3)

    def mixing_weights(self) -> tuple[Tensor, Tensor]:
        """Return the mixing weights p of this pass: of the entries, [m, 5], and of the edges, as `arch`."""
        return self.sampler.sample(self.arch_entry, OF_ENTRIES), self.sampler.sample(self.arch, self.relaxation)

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """Compute the mean, [B, G], of s_i = Σ_k p_k op_k(v_i W_i^in) + Σ_{j<i} Σ_k p_k^{ij} op_k(s_j W_i)."""
        entry_mix, pair_mix = self.mixing_weights()
        pairs = iter(pair_mix)
        states: list[Tensor] = []
        for v, weight_entry, p, weight in zip(vectors, self.weight_entry, entry_mix, self.weight_nodes):
            state = _mixture(product(v, weight_entry), p)
            for earlier in states if self.links else ():
                state = state + _mixture(product(earlier, weight), next(pairs))
            states.append(state)
        return torch.stack(states).mean(0)

    def program(self) -> GateProgram:
        """Return everything that engines need besides the weights."""
        return GateProgram(relaxed_gate_plan(self.history, self.form, self.links), self.mixing_weights())

    def derive(self, edges_per_node: int = 1) -> Gate:
        """Derive the gate from the present architecture weights."""
        return derive_gate(self.arch_entry, self.arch, self.relaxation, edges_per_node)


def _mixture(pre: Tensor, mixing: Tensor) -> Tensor:
    """Compute Σ_k p_k op_k(z), [B, G] (DARTS eq. 2), from z, [B, G], and the mixing weights p, [5]."""
    return torch.stack([p * row.function(pre) for p, row in zip(mixing, OPERATION_TABLE.values())]).sum(0)


def relax_gates(cell: CellBase, history: int, form: str, relaxation: str, sampler: Sampler, links: bool) -> None:
    """Give a cell a relaxed state gate f' and input gate g'; see `GateSupernet` for the arguments."""
    options = (form, relaxation, sampler, links)
    cell.state_gate = GateSupernet(history, cell.input_size, cell.hidden_size, *options)
    cell.input_gate = GateSupernet(history, cell.hidden_size, cell.input_size, *options)


def relaxed_gates(cell: CellBase) -> dict[str, GateSupernet]:
    """Return the relaxed gates of a cell by name."""
    gates = {"state_gate": cell.state_gate, "input_gate": cell.input_gate}
    return {name: gate for name, gate in gates.items() if isinstance(gate, GateSupernet)}


def relaxed_matrices(cell: CellBase) -> list[Relaxed]:
    """Return the architecture weights of relaxed gates: ``NAME_entries``, and ``NAME`` if there are edges."""
    matrices = []
    for name, gate in relaxed_gates(cell).items():
        matrices.append(Relaxed(f"{name}_entries", "entries", gate.arch_entry, OF_ENTRIES))
        matrices += [Relaxed(name, "links", gate.arch, gate.relaxation)] if gate.arch.numel() else []
    return matrices
