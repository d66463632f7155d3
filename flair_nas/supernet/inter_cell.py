"""Relaxed inter-cell gates around a fixed cell, for the inter-cell search of ESS on its own."""

from __future__ import annotations

import contextlib
import dataclasses
from itertools import chain
from typing import Any

from torch import Tensor, nn

from flair_nas.genotype import DEFAULT_CARRY, DEFAULT_GATE, Genotype
from flair_nas.nn.cell import SearchedCell
from flair_nas.nn.state import RecurrentState
from flair_nas.supernet.cell import run_supernet
from flair_nas.supernet.gates import gates_deviation, relax_gates, relaxed_gates
from flair_nas.supernet.relaxation import Sampler


class InterCellSupernet(nn.Module):
    """Recurrent layer with a genotype's cell and relaxed gates in place of its own; its states are not normalised.

    Args:
        input_size: D.
        hidden_size: H.
        cell: the genotype.
        history: history length m of both gates, at least 1.
        relaxation: grouping of the edges between the nodes of a gate, ``darts`` or ``i-darts``.
        init_range: initialisation bound of the weights, a layer's if None.

    Other arguments are those of `CellSupernet`.

    Attributes:
        sampler: makes mixing weights of architecture weights in training.
        cell: a `SearchedCell` whose state_gate and input_gate are `GateSupernet`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        cell: Genotype,
        history: int,
        relaxation: str = "darts",
        *,
        gate: str = DEFAULT_GATE,
        carry: str = DEFAULT_CARRY,
        gate_links: bool = True,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        init_range: float | None = None,
    ) -> None:
        super().__init__()
        if cell.recurrence == "elementwise":
            raise ValueError(f"the cell {cell} has recurrence=elementwise, which goes with no gates")
        bare = dataclasses.replace(cell, state_gate=None, input_gate=None, gate=gate, carry=carry, origin={})
        self.input_size, self.hidden_size = input_size, hidden_size
        self.input_dropout, self.recurrent_dropout = input_dropout, recurrent_dropout
        self.cell = SearchedCell(input_size, hidden_size, bare, init_range)
        self.sampler = Sampler()
        relax_gates(self.cell, history, gate, relaxation, self.sampler, gate_links)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew from the global generator."""
        self.cell.reset_parameters()

    def forward(
        self, input: Tensor, hx: Tensor | RecurrentState | None = None
    ) -> tuple[Tensor, Tensor | RecurrentState]:
        """Run the supernet over whole sequences; see `CellSupernet.forward` for arguments and returns."""
        self.sampler.begin(self.training)
        return run_supernet(self.cell, self, input, hx)

    def genotype(
        self, edges_per_node: int = 1, avoid_first: bool = False, most_identity: int | None = None
    ) -> Genotype:
        """Derive the genotype: the fixed cell, which the last two arguments do not change, with the derived gates."""
        gates: dict[str, Any] = {name: gate.derive(edges_per_node) for name, gate in relaxed_gates(self.cell).items()}
        return dataclasses.replace(self.cell.genotype, **gates)

    def batch_statistics(self) -> contextlib.AbstractContextManager[None]:
        """Do nothing: no state is normalised."""
        return contextlib.nullcontext()

    def architecture(self) -> dict[str, list[nn.Parameter]]:
        """Return the architecture weights: ``inter`` of the gates; ``intra`` is empty."""
        return {
            "intra": [],
            "inter": [arch for gate in relaxed_gates(self.cell).values() for arch in gate.architecture()],
        }

    def mixing_tables(self) -> dict[str, Tensor]:
        """Return the mixing weights without noise of both gates; see `CellSupernet.mixing_tables`."""
        tables = (gate.mixing_tables(name).items() for name, gate in relaxed_gates(self.cell).items())
        return dict(chain.from_iterable(tables))

    def margins(self, edges_per_node: int = 1, avoid_first: bool = False) -> dict[str, list[float]]:
        """Compute how clear each choice of the gates is, from 0 to 1, as ``inter``."""
        return {
            "inter": [margin for gate in relaxed_gates(self.cell).values() for margin in gate.margins(edges_per_node)]
        }

    def mean_absolute_deviations(self) -> dict[str, float]:
        """Compute MAD of the mixing weights of the gates, as ``inter``."""
        return {"inter": gates_deviation(relaxed_gates(self.cell).values())}
