"""The time that the rest of a selection takes, by what its runs have taken so far, and what makes it shorter."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flair_nas.experiments.successive_halving import Rule
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
    """Return the mean pace of runs of the ledger; of two epochs the faster one counts, as the first one is slow."""
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


def reductions(config: SelectSettings, least_epochs: int, cell: str) -> Iterator[dict[str, Any]]:
    """Yield the settings that change, step by step, as a selection is made smaller; the baseline always stays.

    Controls go first, then layers that nobody named, then learning rates and epochs; layers that were named go last.

    Args:
        config: the settings.
        least_epochs: as many stay.
        cell: the bundled cell that stays where no candidates are named.
    """
    if config.random is None:
        yield {"random": 0}
    if config.match:
        yield {"match": False}
    if config.gates:
        yield {"gates": 0}
    if not config.candidates:
        yield {"candidates": [cell]}
    if len(config.rates) > 1:
        yield {"rates": config.rates[:1]}
    for tenth in range(9, 0, -1):
        if least_epochs < config.epochs:
            yield {"epochs": max(least_epochs, config.epochs * tenth // 10)}
    others = [name for name in config.candidates if name.lower() not in ("lstm", config.rnn.lower())]
    random = config.random or 0
    for halvings in range(1, random.bit_length() + 1):
        if random >> halvings or others or not config.candidates:  # something stays to be compared
            yield {"random": random >> halvings}
    for count in range(len(others) - 1, 0, -1):
        yield {"candidates": others[:count]}
    if config.searches:
        yield {"searches": []}


def left_out(config: SelectSettings, less: Mapping[str, Any]) -> list[str]:
    """Say what changes of `reductions` leave out, one clause each."""
    names = ("candidates", "rates", "epochs", "random")
    layers, rates, epochs, random = (less.get(name, getattr(config, name)) for name in names)
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
    return [clauses[name] for name in less]
