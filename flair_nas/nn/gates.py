"""The inter-cell gates of ESS (Li et al. 2020): small networks over the last m inputs or states."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

import torch
from torch import Tensor, nn

from flair_nas.genotype import GATE_FORM_TABLE, OPERATION_TABLE, Gate
from flair_nas.nn.kernels.engine import GateProgram
from flair_nas.nn.kernels.plan import gate_plan
from flair_nas.nn.matrix_product import product


class GateBase(nn.Module):
    """Parts that discrete and relaxed gates share.

    Args:
        history: history length m.
        entry_size: width E of the entry vectors v_1..v_m.
        gate_size: width G of the gate and of the vector that it scales.
        form: form of the gate, one of `GATE_FORMS`.
    """

    def __init__(self, history: int, entry_size: int, gate_size: int, form: str) -> None:
        super().__init__()
        self.form = form
        self.weight_entry = nn.Parameter(torch.empty(history, entry_size, gate_size))
        self.weight_nodes = nn.Parameter(torch.empty(history, gate_size, gate_size))

    def reset_parameters(self, range_of: Callable[[int], float]) -> None:
        """Draw the weights within the bound that `range_of` makes from the rows of a matrix, E or G.

        Entry weights of a form that scales by the gate alone start with unit gain instead. They are wider by √m, as
        the gate averages m nodes; see docs/decisions/residual_gates.md.
        """
        history, entry_size, gate_size = self.weight_entry.shape
        unit_gain = GATE_FORM_TABLE[self.form].keeps_zero
        entry_range = math.sqrt(3 * history / entry_size) if unit_gain else range_of(entry_size)
        nn.init.uniform_(self.weight_entry, -entry_range, entry_range)
        nn.init.uniform_(self.weight_nodes, -range_of(gate_size), range_of(gate_size))

    @property
    def history(self) -> int:
        """The history length m."""
        return len(self.weight_entry)

    def scale(self, vectors: Sequence[Tensor]) -> Tensor:
        """Compute the scale of the gate, [B, G], from v_1..v_m, [B, E] each, the latest first (ESS eq. 5 and 6)."""
        return GATE_FORM_TABLE[self.form].function(self(vectors))

    def program(self) -> GateProgram:
        """Return everything that engines need besides the weights."""
        raise NotImplementedError


class InterCellGate(GateBase):
    """A discrete inter-cell gate, f' or g', with the structure of a `Gate`; see `GateBase` for other arguments."""

    def __init__(self, gate: Gate, entry_size: int, gate_size: int, form: str) -> None:
        super().__init__(gate.history, entry_size, gate_size, form)
        self.nodes = gate.nodes

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """Compute the mean, [B, G], of s_i = op_i(v_i W_i^in) + the sum over kept edges (j -> i, op) of op(s_j W_i)."""
        states: list[Tensor] = []
        for node, v, entry, weight in zip(self.nodes, vectors, self.weight_entry, self.weight_nodes):
            state = OPERATION_TABLE[node.entry].function(product(v, entry))
            for edge in node.edges:
                state = state + OPERATION_TABLE[edge.op].function(product(states[edge.tail - 1], weight))
            states.append(state)
        return reduce(torch.add, states) / len(states)

    def program(self) -> GateProgram:
        """Return everything that engines need besides the weights."""
        return GateProgram(gate_plan(self.nodes, self.form))

    def extra_repr(self) -> str:
        """Return shapes, for printing."""
        history, entry_size, gate_size = self.weight_entry.shape
        return f"{entry_size}, {gate_size}, history={history}, form={self.form}"
