"""Memory of jobs. A job that has just begun will still grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import psutil

from flair_nas.runs.memory import read_peak

PLENTY = 4_000_000_000
"""Minimum bytes expected of a job whose kind is unknown."""
SETTLED = 30.0
"""Seconds without growth after which the peak of a kind of job counts as its need."""

_MARGIN = 1.2  # jobs of a kind are not equal
_GROWTH = 1.05

Kind = tuple[Callable[..., Any], str]
"""Function and data of a job."""


class Memory:
    """Memory that jobs need: the peak of their kind so far.

    The peak is known once a job of the kind has ended, or has not grown for a while. Before, a job needs twice its
    peak, and at least `PLENTY`.
    """

    def __init__(self) -> None:
        self._peak: dict[Kind, int] = {}
        self._grown: dict[Kind, float] = {}  # time of the last growth
        self._ended: set[Kind] = set()

    def ended(self, kind: Kind, process: int) -> None:
        """Store the peak of a job that has ended; its process still exists."""
        self._look(kind, process)
        self._ended.add(kind)

    def has_room(self, kind: Kind, process: int | None, at_work: Iterable[tuple[Kind, int]]) -> bool:
        """Return True if there is memory for a job beside others that may still grow.

        It begins in `process`, or if that is None in a new one.
        """
        promised = 0
        for other, number in at_work:
            self._look(other, number)
            promised += max(0, self._need(other) - _size(number))
        needed = _MARGIN * self._need(kind) - (0 if process is None else _size(process))
        return bool(psutil.virtual_memory().available - promised > needed)

    def _look(self, kind: Kind, process: int) -> None:
        peak = read_peak(process) or _size(process)
        if peak > _GROWTH * self._peak.get(kind, 0):
            self._peak[kind], self._grown[kind] = peak, time.monotonic()

    def _need(self, kind: Kind) -> int:
        peak = self._peak.get(kind, 0)
        if kind in self._ended or time.monotonic() - self._grown.get(kind, float("inf")) > SETTLED:
            return peak
        return max(PLENTY, 2 * peak)


def _size(process: int) -> int:
    try:
        return int(psutil.Process(process).memory_info().rss)
    except psutil.Error:  # it has just ended
        return 0
