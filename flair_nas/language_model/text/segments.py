"""Cutting a stream into the segments of truncated back-propagation, as AWD-LSTM does (Merity et al., 2018)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

_DEVIATION = 5  # steps
SHORTEST = 5
"""Steps of the shortest segment that is drawn."""
_LONGER = 20  # than usual, at most


class Draw(NamedTuple):
    """Where random numbers come from.

    Args:
        uniform: gives one from 0 to 1.
        normal: gives one of the normal distribution with this mean and standard deviation.
    """

    uniform: Callable[[], float]
    normal: Callable[[float, float], float]


def segment_lengths(steps: int, bptt: int, draw: Draw | None = None) -> list[int]:
    """Cuts a stream into segments.

    Args:
        steps: how many steps there are to cut.
        bptt: the usual length.
        draw: for lengths from a normal distribution around `bptt`, or around half of it one time in twenty, with
            standard deviation 5; no shorter than 5 (or `bptt`, where that is less) and no longer than bptt + 20, as the
            DARTS code has it. For each segment, `uniform` is asked first, then `normal`. None for one length.

    Returns:
        The lengths in order; they add up to `steps`.
    """
    lengths = []
    while steps:
        length = bptt
        if draw is not None:
            mean = bptt if draw.uniform() < 0.95 else bptt / 2
            drawn = int(draw.normal(mean, _DEVIATION))
            length = min(max(drawn, min(SHORTEST, bptt)), bptt + _LONGER)
        lengths.append(min(length, steps))
        steps -= lengths[-1]
    return lengths
