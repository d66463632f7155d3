"""How long the rest of a selection takes, by what its runs have taken so far."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flair_nas.select.config import SelectSettings


class Pace(NamedTuple):
    """What a run takes, in seconds.

    Args:
        epoch: each epoch, with its evaluation.
        around: each job besides its epochs: to build a tagger, read its checkpoint, write figures.
    """

    epoch: float
    around: float


def pace_of(runs: Sequence[Mapping[str, Any]]) -> Pace:
    """The mean pace of runs of the ledger."""
    return Pace(
        statistics.mean(statistics.median(run["seconds"]) for run in runs),
        statistics.mean(run["around_seconds"] for run in runs),
    )


def side_by_side(jobs: Sequence[float], workers: int) -> float:
    """Seconds for jobs of so many seconds, begun in this order, with so many at work."""
    free = [0.0] * workers  # when each worker is
    for seconds in jobs:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def rest(
    config: SelectSettings, seeds: int, candidates: int, begun: int, pace: Pace, workers: int, rung: int = 0
) -> float:
    """Seconds from a rung to the end.

    Args:
        config: the settings: which candidates go on after how many epochs.
        seeds: of the last two.
        candidates: how many there are in that rung.
        begun: those of them that are through with it.
        pace: of a run.
        workers: how many train side by side.
        rung: which one, from 0.
    """
    rule, epochs = config.task.rule, config.epochs
    reached, *rungs = [0, *rule.rungs(epochs)][rung:]
    total = 0.0
    for number, (count, until) in enumerate(zip(rule.counts(candidates, rungs), rungs), start=rung):
        count = count - begun if number == 0 else max(len(config.rates) + 1, count)
        total += side_by_side([(until - reached) * pace.epoch + pace.around] * count, workers)
        reached = until
    scores = [pace.around] * 2  # of the first seed, which is trained by then
    return total + side_by_side(scores + [epochs * pace.epoch + pace.around] * 2 * (seeds - 1), workers)
