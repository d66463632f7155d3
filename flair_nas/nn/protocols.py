"""Interfaces of cells and gates, discrete or relaxed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from flair_nas.nn.kernels.engine import Normalisation
from flair_nas.nn.kernels.plan import CellPlan, GatePlan


class GateLike(Protocol):
    """An inter-cell gate, discrete (`InterCellGate`) or relaxed (`GateSupernet`)."""

    weight_entry: Any  # [m, E, G]
    weight_nodes: Any  # [m, G, G]

    @property
    def history(self) -> int:
        """The history length m."""

    def factor(self, vectors: list[Tensor]) -> Tensor:
        """What multiplies a vector, [B, G], from the last m vectors v_1..v_m, [B, E] each."""

    def plan(self) -> GatePlan:
        """What engines need to know."""

    def shares(self) -> tuple[Tensor, Tensor] | None:
        """Mixing weights of a relaxed gate: of its entries, [m, 5], and of its pairs, [m (m - 1) / 2, 5]."""

    def reset_parameters(self, range_of: Callable[[int], float]) -> None:
        """Draws the weights."""


class CellLike(Protocol):
    """A cell, discrete (`SearchedCell`) or relaxed (`CellSupernet`)."""

    input_size: int
    hidden_size: int
    weight_input: Any  # [D, W]
    weight_hidden: Any  # [H, W]
    weight_nodes: Any  # [N, H, W]
    state_gate: Any  # GateLike | None
    input_gate: Any  # GateLike | None

    def step(self, x: Tensor, h: Tensor, mask: Tensor | None = None, carry: Tensor | None = None) -> Tensor:
        """h_t, [B, H], from x̂_t [B, D], ĥ_{t-1} [B, H], the mask of what enters products, [B, H], and h_{t-1}."""

    def plan(self) -> CellPlan:
        """What engines need to know."""

    def shares(self) -> Tensor | None:
        """Mixing weights of a relaxed cell, [pairs, 5]."""

    def normalisation(self) -> Normalisation | None:
        """How states are normalised."""
