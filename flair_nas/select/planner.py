"""The planner: counts of candidates, epochs and seeds for the time that is left. It reads no file and no clock."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flair_nas.experiments.successive_halving import Rule
from flair_nas.select.config import SelectSettings

MARGIN = 0.85
"""Fraction of the time left that is planned with; the rest is for runs that take longer than measured."""
MIN_JUDGES = 2
"""Fresh seeds that a comparison should have: one seed of each layer does not tell which is better."""


class Pace(NamedTuple):
    """The seconds of an epoch with its evaluation, and of a job besides its epochs, such as building the model."""

    epoch: float
    overhead: float


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


class Workload(NamedTuple):
    """Candidates of a rung, with what is done of them already."""

    candidates: int  # number of candidates
    pace: Pace  # pace of their runs
    passed: Sequence[int]  # by rung, the number of candidates that have come through it with their first seed
    judged: int = 0  # number of fresh runs that are trained and scored


def max_fitting(counts: Iterable[int], seconds: Callable[[int], float], limit: float, default: int) -> int:
    """Return the first of some counts, from the largest down, that takes no longer than a limit, or else a default."""
    return next((count for count in counts if seconds(count) <= limit), default)


@dataclass(frozen=True)
class Planner:
    """Time that the rest of a selection takes, with as many runs side by side as there are workers."""

    rule: Rule
    config: SelectSettings
    workers: int

    def remaining(self, load: Workload, fresh: int, rung: int = 0) -> float:
        """Return the seconds from a rung, counted from 0, to the end, with fresh seeds of the last two candidates."""
        epochs, pace = self.config.epochs, load.pace
        reached, *rungs = [0, *self.rule.rungs(epochs)][rung:]
        total = 0.0
        counts = zip(self.rule.counts(load.candidates, rungs), rungs, load.passed[rung:])
        for number, (count, until, passed) in enumerate(counts, start=rung):
            if number > 0:  # the baseline with each rate and the best of the others always go on
                count = max(min(len(self.config.rates) + 1, load.candidates), count)
            total += makespan([(until - reached) * pace.epoch + pace.overhead] * (count - passed), self.workers)
            reached = until
        # a candidate that is still to be trained may win, and then wants fresh seeds of its own
        judged = min(load.judged, fresh) if total else load.judged
        return total + makespan([epochs * pace.epoch + pace.overhead] * (2 * fresh - judged), self.workers)


def reductions(config: SelectSettings, min_epochs: int, usual: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the settings that change, step by step, as a selection is made smaller; the baseline always stays.

    Controls go first, then layers that nobody named but one usual one, then learning rates and epochs down to a
    minimum; layers that were named go last.
    """
    if config.random is None:
        yield {"random": 0}
    if config.match:
        yield {"match": False}
    if config.gates:
        yield {"gates": 0}
    if not config.candidates:
        yield {"candidates": list(usual[:1])}
    if len(config.rates) > 1:
        yield {"rates": config.rates[:1]}
    for tenth in range(9, 0, -1):
        if min_epochs < config.epochs:
            yield {"epochs": max(min_epochs, config.epochs * tenth // 10)}
    others = [name for name in config.candidates if name.lower() not in ("lstm", config.rnn.lower())]
    random = config.random or 0
    for halvings in range(1, random.bit_length() + 1):
        if random >> halvings or others or not config.candidates:  # something stays to be compared
            yield {"random": random >> halvings}
    for count in range(len(others) - 1, 0, -1):
        yield {"candidates": others[:count]}
    if config.searches:
        yield {"searches": []}


def describe_changes(config: SelectSettings, changes: Mapping[str, Any]) -> list[str]:
    """Return a clause for each change of `reductions`."""
    names = ("candidates", "rates", "epochs", "random")
    layers, rates, epochs, random = (changes.get(name, getattr(config, name)) for name in names)
    cells = f"only {random} random cell{'s are' if random != 1 else ' is'} compared"
    clauses = {
        "random": cells if random else "no random cell is compared",
        "match": "no LSTM of equal size is compared",
        "gates": "no random gates are compared",
        "candidates": f"of the other layers only {' '.join(layers)} is compared",
        "rates": f"the learning rate {config.learning_rate * rates[0]:g} alone is tried",
        "epochs": f"each layer is trained for {epochs} of {config.epochs} epochs, after which another may be ahead",
        "searches": "no cell is searched",
    }
    return [clauses[name] for name in changes]
