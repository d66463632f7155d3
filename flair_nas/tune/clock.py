"""The pace of runs, and the time that runs take side by side."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Pace(NamedTuple):
    """Seconds of an epoch with its evaluation, and of the rest of a job, such as building the model."""

    epoch: float
    overhead: float

    def seconds(self, epochs: int) -> float:
        """Return the seconds of a job with some epochs; 0 without any."""
        return self.epoch * epochs + self.overhead if epochs > 0 else 0.0


def mean_pace(runs: Sequence[Mapping[str, Any]]) -> Pace:
    """Return the mean pace of runs of the ledger; of two epochs the faster counts, as the first is slow."""
    return Pace(
        statistics.mean(statistics.median_low(run["seconds"]) for run in runs),
        statistics.mean(run["around_seconds"] for run in runs),
    )


def makespan(seconds: Iterable[float], workers: int) -> float:
    """Return the time of jobs that take these seconds, the longest first, on a number of workers."""
    free = [0.0] * workers  # when each worker is
    for job in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + job)
    return max(free)


def max_fitting(counts: Iterable[int], seconds: Callable[[int], float], limit: float, default: int) -> int:
    """Return the first count whose seconds meet a limit, or else a default; the largest count comes first."""
    return next((count for count in counts if seconds(count) <= limit), default)
