"""Whether there is memory for one more process: a job that has just begun is small, and will not stay so."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

PLENTY = 4_000_000_000
"""What a job is taken to need at least, in bytes, as long as nothing is known of its kind."""
SETTLED = 30.0
"""So many seconds after a kind of job has last taken more, it is known what it takes, though none has ended yet."""

_MARGIN = 1.2  # jobs of a kind are not equal
_MORE = 1.05  # what is less than that is no growth

Kind = tuple[Callable[..., Any], str]  # a function, and what it works on


class Memory:
    """What jobs take. A job is counted with the most that one of its kind has taken so far.

    As long as that is not known, which it is when one has ended or has taken no more for a while, it is counted with
    `PLENTY`, or with twice that if that is more: so nothing waits where memory is plentiful.
    """

    def __init__(self) -> None:
        self._most: dict[Kind, int] = {}
        self._grown: dict[Kind, float] = {}  # when that was last more than before
        self._ended: set[Kind] = set()

    def ended(self, kind: Kind, process: int) -> None:
        """Notes that a job has done its work in a process, which is still there."""
        self._look(kind, process)
        self._ended.add(kind)

    def has_room(self, kind: Kind, process: int | None, at_work: Iterable[tuple[Kind, int]]) -> bool:
        """Whether a job can begin beside others, which may take more than they have now.

        Args:
            kind: its kind.
            process: the one that it would have, by its number; None for a new one.
            at_work: the kind of each of the others, and its process.
        """
        others = list(at_work)
        for other, number in others:
            self._look(other, number)
        promised = sum(max(0, self._need(other) - _size(number)) for other, number in others)
        needed = _MARGIN * self._need(kind) - (0 if process is None else _size(process))
        return bool(psutil.virtual_memory().available - promised > needed)

    def _look(self, kind: Kind, process: int) -> None:
        peak = _peak(process)
        if peak > _MORE * self._most.get(kind, 0):
            self._most[kind], self._grown[kind] = peak, time.monotonic()

    def _need(self, kind: Kind) -> int:
        most = self._most.get(kind, 0)
        if kind in self._ended or time.monotonic() - self._grown.get(kind, float("inf")) > SETTLED:
            return most
        return max(PLENTY, 2 * most)


def forget_peak(process: int) -> None:
    """Has the peak of a process begin with what it takes now, as far as the system can."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process}/clear_refs").write_text("5")


def _peak(process: int) -> int:
    """The most that a process has taken, or what it takes now where the system does not know; in bytes."""
    with contextlib.suppress(OSError):
        if found := re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{process}/status").read_text()):
            return int(found[1]) * 1024
    return _size(process)


def _size(process: int) -> int:
    try:
        return int(psutil.Process(process).memory_info().rss)
    except psutil.Error:  # it has just ended
        return 0
