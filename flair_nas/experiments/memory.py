"""Memory of jobs: a job that has just begun is small, and will not stay so."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

PLENTY = 4_000_000_000
"""Bytes that a job is expected to need, at least, while its kind is unknown."""
SETTLED = 30.0
"""Seconds without growth after which the need of a kind of job is known, though none has ended yet."""

_MARGIN = 1.2  # jobs of a kind are not equal
_GROWTH = 1.05

Kind = tuple[Callable[..., Any], str]
"""Function and data of a job."""


class Memory:
    """Memory that jobs need. A job counts with the most that one of its kind has taken so far.

    That is known once a job has ended or has not grown for a while. Before, a job counts with `PLENTY`, or twice what
    it has taken if that is more. So nothing waits where memory is plentiful.
    """

    def __init__(self) -> None:
        self._peak: dict[Kind, int] = {}
        self._grown: dict[Kind, float] = {}  # time of the last growth
        self._ended: set[Kind] = set()

    def ended(self, kind: Kind, process: int) -> None:
        """Note that a job has ended in a process that still exists."""
        self._look(kind, process)
        self._ended.add(kind)

    def has_room(self, kind: Kind, process: int | None, at_work: Iterable[tuple[Kind, int]]) -> bool:
        """Return True if a job can begin in a process, or a new one if it is None, beside others that may yet grow."""
        others = list(at_work)
        for other, number in others:
            self._look(other, number)
        promised = sum(max(0, self._need(other) - _size(number)) for other, number in others)
        needed = _MARGIN * self._need(kind) - (0 if process is None else _size(process))
        return bool(psutil.virtual_memory().available - promised > needed)

    def _look(self, kind: Kind, process: int) -> None:
        peak = _peak_size(process)
        if peak > _GROWTH * self._peak.get(kind, 0):
            self._peak[kind], self._grown[kind] = peak, time.monotonic()

    def _need(self, kind: Kind) -> int:
        peak = self._peak.get(kind, 0)
        if kind in self._ended or time.monotonic() - self._grown.get(kind, float("inf")) > SETTLED:
            return peak
        return max(PLENTY, 2 * peak)


def forget_peak(process: int) -> None:
    """Reset the peak of a process to its present size, if the system can."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process}/clear_refs").write_text("5")


def _peak_size(process: int) -> int:
    """Return the peak of a process in bytes, or its present size if the system does not know."""
    with contextlib.suppress(OSError):
        if match := re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{process}/status").read_text()):
            return int(match[1]) * 1024
    return _size(process)


def _size(process: int) -> int:
    try:
        return int(psutil.Process(process).memory_info().rss)
    except psutil.Error:  # it has just ended
        return 0
