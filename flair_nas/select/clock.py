"""The clock of a selection: budget, time spent, and time that the rest takes."""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flair_nas.experiments.ledger import Ledger
from flair_nas.runs.duration import MARGIN, duration, parse_time
from flair_nas.select.config import SelectSettings

OVERTIME = 1.05
"""Fraction of the budget by which the last fresh seed must end."""


class Pace(NamedTuple):
    """Seconds of an epoch with its evaluation, and of the rest of a job, such as building the model."""

    epoch: float
    overhead: float


class Workload(NamedTuple):
    """Candidates of a rung, and what is already done."""

    candidates: int  # number of candidates
    pace: Pace  # pace of their runs
    passed: Sequence[int]  # number of candidates that have passed each rung with the first seed
    judged: int = 0  # number of fresh runs that are trained and scored


@dataclass(frozen=True)
class Clock:
    """The clock of a selection, whose workers train side by side."""

    config: SelectSettings
    ledger: Ledger
    workers: int

    def __str__(self) -> str:
        return f"{duration(self.spent)} of {duration(self.budget)}"

    @property
    def budget(self) -> float:
        """Seconds of the budget."""
        return parse_time(self.config.budget) or math.inf

    @property
    def spent(self) -> float:
        """Seconds spent in all calls."""
        return self.ledger.seconds

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self.budget - self.spent)

    @property
    def planned(self) -> float:
        """Seconds left to plan with."""
        return MARGIN * self.left

    def remaining(self, load: Workload, fresh: int, rung: int = 0) -> float:
        """Return the seconds from a rung (the first is 0) to the end, with fresh seeds of the last two candidates."""
        rule, epochs, pace = self.config.task.rule, self.config.epochs, load.pace
        reached, *rungs = [0, *rule.rungs(epochs)][rung:]
        total = 0.0
        counts = zip(rule.counts(load.candidates, rungs), rungs, load.passed[rung:])
        for number, (count, until, passed) in enumerate(counts, start=rung):
            if number > 0:  # the baseline with each rate and the best of the others always go on
                count = max(min(len(self.config.rates) + 1, load.candidates), count)
            total += makespan([(until - reached) * pace.epoch + pace.overhead] * (count - passed), self.workers)
            reached = until
        # a candidate that is not yet trained may win, and then needs fresh seeds
        judged = min(load.judged, fresh) if total else load.judged
        return total + makespan([epochs * pace.epoch + pace.overhead] * (2 * fresh - judged), self.workers)


def mean_pace(runs: Sequence[Mapping[str, Any]]) -> Pace:
    """Return the mean pace of runs of the ledger; of two epochs the faster counts, as the first is slow."""
    return Pace(
        statistics.mean(statistics.median_low(run["seconds"]) for run in runs),
        statistics.mean(run["around_seconds"] for run in runs),
    )


def makespan(seconds: Sequence[float], workers: int) -> float:
    """Return the time of jobs that take these seconds, and begin in this order on a number of workers."""
    free = [0.0] * workers  # when each worker is
    for job in seconds:
        heapq.heapreplace(free, free[0] + job)
    return max(free)


def max_fitting(counts: Iterable[int], seconds: Callable[[int], float], limit: float, default: int) -> int:
    """Return the first count whose seconds meet a limit, or else a default; the largest count comes first."""
    return next((count for count in counts if seconds(count) <= limit), default)
