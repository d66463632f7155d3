"""Ragged batches: positions of the tokens in packed data."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor


class Packing:
    """Positions of the tokens of a ragged batch: token (t, b) is row offsets[t] + b of packed data, b < sizes[t].

    Args:
        sizes: number of sequences with a token at each time step, [T], never growing.
        device: device of the data, and of all rows.
    """

    def __init__(self, sizes: list[int], device: torch.device) -> None:
        self.sizes, self.batch, self._device = sizes, sizes[0], device

    @cached_property
    def _sizes(self) -> Tensor:
        if self.sizes[-1] == self.batch:  # copies nothing, as the CUDA graph of a dense batch must
            return torch.full((len(self.sizes),), self.batch, device=self._device)
        return torch.tensor(self.sizes, device="cpu").to(self._device, non_blocking=True)

    @cached_property
    def offsets(self) -> Tensor:
        """The first row of each step, [T]."""
        return self._sizes.cumsum(0) - self._sizes

    @cached_property
    def time(self) -> Tensor:
        """The step of each row, [S]."""
        steps = torch.arange(len(self.sizes), device=self._device)
        return steps.repeat_interleave(self._sizes, output_size=sum(self.sizes))

    @cached_property
    def column(self) -> Tensor:
        """The sequence of each row, [S]."""
        return torch.arange(len(self.time), device=self._device) - self.offsets[self.time]

    @cached_property
    def lengths(self) -> Tensor:
        """The length of each sequence, [B]."""
        return (self._sizes[:, None] > torch.arange(self.batch, device=self._device)).sum(0)

    def ends(self) -> Tensor:
        """Return the row of each sequence's last token, [B]."""
        return self.offsets[self.lengths - 1] + torch.arange(self.batch, device=self._device)

    def reversed_rows(self) -> Tensor:
        """Return the rows in the order that reverses each sequence within its length, [S]."""
        return self.offsets[self.lengths[self.column] - 1 - self.time] + self.column

    def lagged_rows(self, time: Tensor, column: Tensor, lag: int, history: int) -> Tensor:
        """Return the rows `lag` steps before `time`, in data that follows `history` blocks of B earlier vectors.

        Block k holds the vectors k + 1 steps before the start.
        """
        step = time - lag
        inside = history * self.batch + self.offsets[step.clamp(min=0)] + column
        before = (-step - 1).clamp(min=0) * self.batch + column
        return torch.where(step >= 0, inside, before)

    def before(self, states: Tensor, first: Tensor) -> Tensor:
        """Return the state before each step, [S, H], from those after each, [S, H], and the first one, [B, H]."""
        rows = self.lagged_rows(self.time, self.column, 1, 1)
        return torch.nn.functional.embedding(rows, torch.cat([first, states]))

    def last(self, extended: Tensor, history: int) -> Tensor:
        """Return the last `history` vectors of each sequence, latest first, [history, B, ...]."""
        column = torch.arange(self.batch, device=extended.device)
        rows = [self.lagged_rows(self.lengths, column, lag, history) for lag in range(1, history + 1)]
        return extended[torch.stack(rows)] if rows else extended.new_empty(0, self.batch, extended.shape[-1])
