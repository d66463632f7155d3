"""Interfaces of cells and gates, discrete or relaxed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor
from torch.nn import Parameter

from flair_nas.nn.kernels.engine import CellProgram, GateProgram


class GateLike(Protocol):
    """An inter-cell gate, discrete (`InterCellGate`) or relaxed (`GateSupernet`)."""

    weight_entry: Parameter  # [m, E, G]
    weight_nodes: Parameter  # [m, G, G]

    @property
    def history(self) -> int:
        """The history length m."""

    def scale(self, vectors: Sequence[Tensor]) -> Tensor:
        """Compute the scale of the gate, [B, G], from the last m vectors v_1..v_m, [B, E] each."""

    def program(self) -> GateProgram:
        """Return everything that engines need besides the weights."""

    def reset_parameters(self, range_of: Callable[[int], float]) -> None:
        """Draw the weights; see `flair_nas.nn.init.reset_gate_parameters`."""


class CellLike(Protocol):
    """A cell, discrete (`SearchedCell`) or relaxed (`CellSupernet`)."""

    input_size: int
    hidden_size: int
    weight_input: Parameter  # [D, W]
    weight_hidden: Parameter  # [H, W]
    weight_nodes: Parameter  # [N, H, W]

    @property
    def state_gate(self) -> GateLike | None:
        """The state gate f'."""

    @property
    def input_gate(self) -> GateLike | None:
        """The input gate g'."""

    def step(self, x: Tensor, h: Tensor, mask: Tensor | None = None, previous: Tensor | None = None) -> Tensor:
        """Compute h_t, [B, H], from x̂_t [B, D], ĥ_{t-1} [B, H], the mask of products [B, H], and h_{t-1} [B, H]."""

    def program(self) -> CellProgram:
        """Return everything that engines need besides the weights."""
