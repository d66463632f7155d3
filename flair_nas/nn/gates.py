"""The inter-cell gates of ESS (Li et al. 2020): small networks over the last m inputs or states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from flair_nas.genotype import Gate
from flair_nas.nn.init import reset_gate_parameters
from flair_nas.nn.kernels.plan import GatePlan, gate_plan
from flair_nas.nn.operations import FORMS, FUNCTIONS, product


class InterCellGate(nn.Module):
    """One gate of ESS, f' or g'.

    Args:
        gate: structure of the gate, m nodes.
        entry_size: width E of the entry vectors v_1..v_m.
        gate_size: width G of the gate, that of what it multiplies.
        form: how the gate's network multiplies a vector, one of `GATE_FORMS`.
        device: of the weights.
        dtype: of the weights.
    """

    def __init__(
        self,
        gate: Gate,
        entry_size: int,
        gate_size: int,
        form: str,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.nodes, self.form = gate.nodes, form
        options = {"device": device, "dtype": dtype}
        self.weight_entry = nn.Parameter(torch.empty(gate.history, entry_size, gate_size, **options))  # [m, E, G]
        self.weight_nodes = nn.Parameter(torch.empty(gate.history, gate_size, gate_size, **options))  # [m, G, G]

    def reset_parameters(self, range_of: Callable[[int], float]) -> None:
        """Draws the weights.

        Args:
            range_of: as `reset_gate_parameters` takes it.
        """
        reset_gate_parameters(self.weight_entry, self.weight_nodes, self.form, range_of)

    @property
    def history(self) -> int:
        """The history length m."""
        return len(self.nodes)

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """The gate: the mean of s_i = op_i(v_i W_i^in) + the sum over kept edges (j -> i, op) of op(s_j W_i).

        Args:
            vectors: v_1..v_m, the latest first, [B, E] each.

        Returns:
            [B, G].
        """
        states: list[Tensor] = []
        for node, v, of_entry, weight in zip(self.nodes, vectors, self.weight_entry, self.weight_nodes):
            state = FUNCTIONS[node.entry](product(v, of_entry))
            for edge in node.edges:
                state = state + FUNCTIONS[edge.op](product(states[edge.tail - 1], weight))
            states.append(state)
        return torch.stack(states).mean(0)

    def factor(self, vectors: Sequence[Tensor]) -> Tensor:
        """What multiplies a vector, [B, G]: the gate (ESS eq. 5 and 6), or its form of it."""
        return FORMS[self.form].factor(self(vectors))

    def plan(self) -> GatePlan:
        """What engines need to know."""
        return gate_plan(self.nodes, self.form)

    def shares(self) -> None:
        """None: nothing is mixed."""

    def extra_repr(self) -> str:
        """Shapes, for printing."""
        history, entry_size, gate_size = self.weight_entry.shape
        return f"{entry_size}, {gate_size}, history={history}, form={self.form}"
