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

Work = Callable[..., Any]


class Memory:
    """What jobs take. A job is counted with the most that one of its kind, which is its function, has taken so far.

    As long as that is not known, which it is when one has ended or has taken no more for a while, it is counted with
    `PLENTY`, or with twice that if that is more: so nothing waits where memory is plentiful.
    """

    def __init__(self) -> None:
        self._most: dict[Work, int] = {}
        self._grown: dict[Work, float] = {}  # when that was last more than before
        self._ended: set[Work] = set()

    def ended(self, work: Work, process: int) -> None:
        """Notes that a job has done its work in a process, which is still there."""
        self._look(work, process)
        self._ended.add(work)

    def has_room(self, work: Work, process: int | None, at_work: Iterable[tuple[Work, int]]) -> bool:
        """Whether a job can begin beside others, which may take more than they have now.

        Args:
            work: its kind.
            process: the one that it would have, by its number; None for a new one.
            at_work: the kind of each of the others, and its process.
        """
        others = list(at_work)
        for kind, number in others:
            self._look(kind, number)
        promised = sum(max(0, self._need(kind) - _size(number)) for kind, number in others)
        needed = _MARGIN * self._need(work) - (0 if process is None else _size(process))
        return bool(psutil.virtual_memory().available - promised > needed)

    def _look(self, work: Work, process: int) -> None:
        peak = _peak(process)
        if peak > _MORE * self._most.get(work, 0):
            self._most[work], self._grown[work] = peak, time.monotonic()

    def _need(self, work: Work) -> int:
        most = self._most.get(work, 0)
        if work in self._ended or time.monotonic() - self._grown.get(work, float("inf")) > SETTLED:
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
