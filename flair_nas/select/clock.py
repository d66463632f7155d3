"""The clock of a selection: the budget, the time that is spent, and the time that the rest takes."""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flair_nas.experiments.config import parse_time
from flair_nas.experiments.ledger import Ledger
from flair_nas.runs.duration import duration
from flair_nas.select.config import SelectSettings

MARGIN = 0.85
"""Fraction of the time left that is planned with; the rest is for runs that take longer than measured."""
_OVERTIME = 1.05


class Pace(NamedTuple):
    """The seconds of an epoch with its evaluation, and of a job besides its epochs, such as building the model."""

    epoch: float
    overhead: float


class Workload(NamedTuple):
    """Candidates of a rung, with what is done of them already."""

    candidates: int  # number of candidates
    pace: Pace  # pace of their runs
    passed: Sequence[int]  # by rung, the number of candidates that have come through it with their first seed
    judged: int = 0  # number of fresh runs that are trained and scored


@dataclass(frozen=True)
class Clock:
    """The clock of a selection, with as many runs side by side as there are workers."""

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
        """Seconds that were spent in all calls."""
        return self.ledger.seconds

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self.budget - self.spent)

    @property
    def planned(self) -> float:
        """Seconds that are left to plan with."""
        return MARGIN * self.left

    @property
    def end(self) -> float:
        """Seconds after the start at which the last fresh seed has to end."""
        return _OVERTIME * self.budget

    def remaining(self, load: Workload, fresh: int, rung: int = 0) -> float:
        """Return the seconds from a rung, counted from 0, to the end, with fresh seeds of the last two candidates."""
        rule, epochs, pace = self.config.task.rule, self.config.epochs, load.pace
        reached, *rungs = [0, *rule.rungs(epochs)][rung:]
        total = 0.0
        counts = zip(rule.counts(load.candidates, rungs), rungs, load.passed[rung:])
        for number, (count, until, passed) in enumerate(counts, start=rung):
            if number > 0:  # the baseline with each rate and the best of the others always go on
                count = max(min(len(self.config.rates) + 1, load.candidates), count)
            total += makespan([(until - reached) * pace.epoch + pace.overhead] * (count - passed), self.workers)
            reached = until
        # a candidate that is still to be trained may win, and then wants fresh seeds of its own
        judged = min(load.judged, fresh) if total else load.judged
        return total + makespan([epochs * pace.epoch + pace.overhead] * (2 * fresh - judged), self.workers)


def mean_pace(runs: Sequence[Mapping[str, Any]]) -> Pace:
    """Return the mean pace of runs of the ledger; of two epochs the faster one counts, as the first one is slow."""
    return Pace(
        statistics.mean(statistics.median_low(run["seconds"]) for run in runs),
        statistics.mean(run["around_seconds"] for run in runs),
    )


def makespan(seconds: Sequence[float], workers: int) -> float:
    """Return the time of jobs that take these seconds each and begin in this order on as many workers."""
    free = [0.0] * workers  # when each worker is
    for job in seconds:
        heapq.heapreplace(free, free[0] + job)
    return max(free)


def max_fitting(counts: Iterable[int], seconds: Callable[[int], float], limit: float, default: int) -> int:
    """Return the first of some counts, from the largest down, that takes no longer than a limit, or else a default."""
    return next((count for count in counts if seconds(count) <= limit), default)
