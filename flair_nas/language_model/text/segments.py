"""Segments of truncated back-propagation, of random lengths as in AWD-LSTM (Merity et al., 2018)."""

from __future__ import annotations

from collections.abc import Callable

_DEVIATION = 5  # steps
SHORTEST = 5
"""Steps of the shortest random segment."""
_LONGER = 20  # steps by which a segment exceeds bptt at most

Draw = tuple[Callable[[], float], Callable[[float, float], float]]
"""Sources of random numbers: uniform from 0 to 1, and normal with a mean and a standard deviation."""


def segment_lengths(steps: int, bptt: int, draw: Draw | None = None) -> list[int]:
    """Cut a stream into segments, and return their lengths, which add up to `steps`.

    Random lengths are normally distributed around `bptt`, or around half of it one time in twenty, with standard
    deviation 5. As in the DARTS code, they are at least 5 (or `bptt`, if that is less) and at most bptt + 20. Each
    segment calls both sources of `draw` in turn. Without them, all have the length `bptt`.
    """
    lengths = []
    while steps:
        length = bptt
        if draw is not None:
            uniform, normal = draw
            drawn = int(normal(bptt if uniform() < 0.95 else bptt / 2, _DEVIATION))
            length = min(max(drawn, min(SHORTEST, bptt)), bptt + _LONGER)
        lengths.append(min(length, steps))
        steps -= lengths[-1]
    return lengths
