"""Ragged batches: where the tokens of each sequence lie in packed data."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor


class Packing:
    """Where the tokens of a ragged batch lie: row (t, b) of packed data is offsets[t] + b, b < sizes[t].

    Args:
        sizes: number of sequences that have a token at each time step, T of them, never growing.
        device: of the data, on which all rows are counted.
    """

    def __init__(self, sizes: list[int], device: torch.device) -> None:
        self.sizes, self.batch, self._device = sizes, sizes[0], device

    @cached_property
    def _sizes(self) -> Tensor:
        return torch.tensor(self.sizes, device=self._device)

    @cached_property
    def offsets(self) -> Tensor:
        """The first row of each step, [T]."""
        return self._sizes.cumsum(0) - self._sizes

    @cached_property
    def time(self) -> Tensor:
        """The step of each row, [S]."""
        return torch.arange(len(self.sizes), device=self._device).repeat_interleave(
            self._sizes, output_size=sum(self.sizes)
        )

    @cached_property
    def column(self) -> Tensor:
        """The sequence of each row, [S]."""
        return torch.arange(len(self.time), device=self._device) - self.offsets[self.time]

    @cached_property
    def lengths(self) -> Tensor:
        """The length of each sequence, [B]: sequence b lasts as long as more than b sequences do."""
        return (self._sizes[:, None] > torch.arange(self.batch, device=self._device)).sum(0)

    def ends(self) -> Tensor:
        """The row of each sequence's last token, [B]."""
        return self.offsets[self.lengths - 1] + torch.arange(self.batch, device=self._device)

    def reversed_rows(self) -> Tensor:
        """For each row, the row that stands there when each sequence is reversed within its length, [S]."""
        return self.offsets[self.lengths[self.column] - 1 - self.time] + self.column

    def lagged_rows(self, time: Tensor, column: Tensor, lag: int, history: int) -> Tensor:
        """Rows of the vectors `lag` steps before `time` in data that follows `history` blocks of B earlier vectors.

        Block 0 holds the vectors one step before the start, block 1 those two steps before, and so on.
        """
        step = time - lag
        inside = history * self.batch + self.offsets[step.clamp(min=0)] + column
        before = (-step - 1).clamp(min=0) * self.batch + column
        return torch.where(step >= 0, inside, before)

    def last(self, extended: Tensor, history: int) -> Tensor:
        """The last `history` vectors of each sequence, latest first, [history, B, ...]."""
        column = torch.arange(self.batch, device=extended.device)
        rows = [self.lagged_rows(self.lengths, column, lag, history) for lag in range(1, history + 1)]
        return extended[torch.stack(rows)] if rows else extended.new_empty(0, self.batch, extended.shape[-1])
