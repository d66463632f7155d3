"""The inter-cell gates of ESS (Li et al. 2020): small networks over the last m inputs or states."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from flair_nas.genotype import Gate
from flair_nas.nn.init import reset_gate_parameters
from flair_nas.nn.kernels.engine import GateProgram
from flair_nas.nn.kernels.plan import gate_plan
from flair_nas.nn.operations import FORMS, FUNCTIONS, product


class InterCellGate(nn.Module):
    """An inter-cell gate of ESS, f' or g'.

    Args:
        gate: structure of the gate, m nodes.
        entry_size: width E of the entry vectors v_1..v_m.
        gate_size: width G of the gate and of the vector that it scales.
        form: form of the gate, one of `GATE_FORMS`.
        device: device of the weights.
        dtype: dtype of the weights.
    """

    def __init__(
        self,
        gate: Gate,
        entry_size: int,
        gate_size: int,
        form: str,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.nodes, self.form = gate.nodes, form
        history = gate.history
        self.weight_entry = nn.Parameter(torch.empty(history, entry_size, gate_size, device=device, dtype=dtype))
        self.weight_nodes = nn.Parameter(torch.empty(history, gate_size, gate_size, device=device, dtype=dtype))

    def reset_parameters(self, range_of: Callable[[int], float]) -> None:
        """Draw the weights; see `flair_nas.nn.init.reset_gate_parameters`."""
        reset_gate_parameters(self.weight_entry, self.weight_nodes, self.form, range_of)

    @property
    def history(self) -> int:
        """The history length m."""
        return len(self.nodes)

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """Compute the mean of s_i = op_i(v_i W_i^in) + the sum over kept edges (j -> i, op) of op(s_j W_i).

        Args:
            vectors: v_1..v_m, the latest first, [B, E] each.

        Returns:
            [B, G].
        """
        states: list[Tensor] = []
        for node, v, entry, weight in zip(self.nodes, vectors, self.weight_entry, self.weight_nodes):
            state = FUNCTIONS[node.entry](product(v, entry))
            for edge in node.edges:
                state = state + FUNCTIONS[edge.op](product(states[edge.tail - 1], weight))
            states.append(state)
        return torch.stack(states).mean(0)

    def scale(self, vectors: Sequence[Tensor]) -> Tensor:
        """Compute the scale of the gate, [B, G], from v_1..v_m (ESS eq. 5 and 6, in the gate's form)."""
        return FORMS[self.form].scale(self(vectors))

    def program(self) -> GateProgram:
        """Return everything that engines need besides the weights."""
        return GateProgram(gate_plan(self.nodes, self.form))

    def extra_repr(self) -> str:
        """Return shapes, for printing."""
        history, entry_size, gate_size = self.weight_entry.shape
        return f"{entry_size}, {gate_size}, history={history}, form={self.form}"
