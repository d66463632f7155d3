"""How long the rest of a selection takes, by what its runs have taken so far."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flair_nas.select.config import SelectSettings
from flair_nas.select.rule import Rule


class Pace(NamedTuple):
    """What a run takes, in seconds.

    Args:
        epoch: each epoch, with its evaluation.
        around: each job besides its epochs: to build a tagger, read its checkpoint, write figures.
    """

    epoch: float
    around: float


def pace_of(runs: Sequence[Mapping[str, Any]]) -> Pace:
    """The mean pace of runs of the ledger; of two epochs the faster one counts, as the first one is slow."""
    return Pace(
        statistics.mean(statistics.median_low(run["seconds"]) for run in runs),
        statistics.mean(run["around_seconds"] for run in runs),
    )


def side_by_side(jobs: Sequence[float], workers: int) -> float:
    """Seconds for jobs of so many seconds, begun in this order, with so many at work."""
    free = [0.0] * workers  # when each worker is
    for seconds in jobs:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


class Done(NamedTuple):
    """What of a selection is done already, and so takes no time.

    Args:
        through: by rung: how many of the candidates have come through it with their first seed.
        fresh: how many runs of fresh seeds are trained and scored.
    """

    through: Sequence[int]
    fresh: int = 0


def rest(
    rule: Rule,
    config: SelectSettings,
    fresh: int,
    candidates: int,
    done: Done,
    pace: Pace,
    workers: int,
    rung: int = 0,
) -> float:
    """Seconds from a rung to the end.

    Args:
        rule: which candidates go on after how many epochs.
        config: the settings.
        fresh: seeds of the last two.
        candidates: how many there are in that rung.
        done: what of it is done.
        pace: of a run.
        workers: how many train side by side.
        rung: which one, from 0.
    """
    epochs = config.epochs
    reached, *rungs = [0, *rule.rungs(epochs)][rung:]
    total = 0.0
    counts = zip(rule.counts(candidates, rungs), rungs, done.through[rung:])
    for number, (count, until, through) in enumerate(counts, start=rung):
        count = count if number == 0 else max(min(len(config.rates) + 1, candidates), count)
        total += side_by_side([(until - reached) * pace.epoch + pace.around] * (count - through), workers)
        reached = until
    # while candidates are to be trained, another one than before may be the best beside the layer to beat
    more = min(done.fresh, fresh) if total else done.fresh
    return total + side_by_side([epochs * pace.epoch + pace.around] * (2 * fresh - more), workers)
