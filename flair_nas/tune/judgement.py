"""The end of a tuning: dev chooses among those that came to their last epoch, and fresh seeds judge the choice."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from flair_nas.errors import FlairNasError
from flair_nas.tune.candidates import Candidate
from flair_nas.tune.clock import max_fitting
from flair_nas.tune.study import FINALISTS, MIN_JUDGES, Goal, Study

_OVERTIME = 1.05  # fraction of the budget by which the last fresh seed must end


def choose(study: Study) -> tuple[list[Candidate], list[int]]:
    """Choose by dev: the best candidate, then the fastest near it or the best within the limit, if it is another.

    Returns:
        These, and the seeds that chose.
    """
    config, ranked = study.config, study.finishers()
    if not ranked:
        return [], config.seeds[:1]
    order = list(dict.fromkeys([ranked[0], *_find_fast(study, ranked, [config.seeds[0]]), *ranked]))

    def goals(count: int) -> list[Goal]:
        return [Goal(c, seed, config.epochs) for seed in config.seeds[1:] for c in order[:count]]

    left = study.left - study.time_for_seeds(min(MIN_JUDGES, config.fresh_seeds), others=1)
    counts = range(min(FINALISTS, len(order)), 1, -1)
    count = study.ledger.decide("finalists", lambda: max_fitting(counts, lambda n: study.remaining(goals(n)), left, 0))
    if not count or len(config.seeds) == 1:
        return _add_fast(study, ranked, config.seeds[:1]), config.seeds[:1]
    study.train(goals(count), f"{count} finalists with {len(config.seeds)} seeds, which choose")
    good = [c for c in order[:count] if all(study.has_ended(c, seed) for seed in config.seeds)]
    if not good:
        return ranked[:1], config.seeds[:1]
    good.sort(key=lambda c: _mean_cost(study, c, config.seeds))
    return _add_fast(study, good, config.seeds), config.seeds


def _add_fast(study: Study, ranked: Sequence[Candidate], seeds: Sequence[int]) -> list[Candidate]:
    """Return the best, and the fast one if it is another and there is time to judge it."""
    both = list(dict.fromkeys([ranked[0], *_find_fast(study, ranked, seeds)]))
    few = study.config.fresh()[:MIN_JUDGES]
    goals = [Goal(c, seed, study.config.epochs, score=True) for seed in few for c in _judged(study, both)]
    end = _OVERTIME * study.config.seconds
    if len(both) == 1 or study.ledger.decide(
        "judges fast", lambda: study.remaining(goals) <= end - study.ledger.seconds
    ):
        return both
    study.warn(f"there was no time to judge a fast one, {both[1].name}")
    return both[:1]


def _mean_cost(study: Study, candidate: Candidate, seeds: Sequence[int]) -> float:
    task, epochs = study.config.task, study.config.epochs
    return statistics.mean(task.cost(study.run(candidate, seed), epochs) for seed in seeds)


def _find_fast(study: Study, ranked: Sequence[Candidate], seeds: Sequence[int]) -> list[Candidate]:
    """Return the best candidate within the limit, or without a limit the fastest one near the best."""
    limit, costs = study.config.at_most_ms, {c.name: _mean_cost(study, c, seeds) for c in ranked}
    if limit is not None:
        return [c for c in ranked if study.milliseconds(c) <= limit][:1]
    near = [c for c in ranked if costs[c.name] <= costs[ranked[0].name] + study.config.task.near]
    return sorted(near, key=study.milliseconds)[:1]


def judge(study: Study, finalists: list[Candidate], chose: Sequence[int]) -> tuple[list[Candidate], list[int]]:
    """Score the baseline and finalists with fresh seeds, or if there is no time, with the first one that chose.

    Returns:
        The finalists without a fast one that failed, and the seeds that scored all.

    Raises:
        FlairNasError: nothing could be scored.
    """
    config, fresh, end = study.config, study.config.fresh(), _OVERTIME * study.config.seconds
    judged = _judged(study, finalists)

    def goals(seeds: Sequence[int]) -> list[Goal]:
        return [Goal(c, seed, config.epochs, score=True) for seed in seeds for c in judged]

    if finalists:
        names, left = " and ".join(c.name for c in judged), end - study.ledger.seconds
        count = study.ledger.decide(
            f"{config.fresh_seeds} fresh of {names}",
            lambda: max_fitting(range(len(fresh), 0, -1), lambda n: study.remaining(goals(fresh[:n])), left, 0),
        )
        study.train(goals(fresh[:count]), f"{count} fresh seeds of {names}", end)
        failed = {c.run(seed): c for c in judged for seed in fresh if "error" in study.run(c, seed)}
        for fast in finalists[1:]:
            if fast in failed.values():
                study.warn(f"{fast.name} failed with a fresh seed, so it is left out")
                finalists, failed = finalists[:1], {name: c for name, c in failed.items() if c is not fast}
        if failed:
            study.warn(f"{' and '.join(failed)} failed, so what the others have with that seed does not count")
        judged = _judged(study, finalists)
        if scored := _scored(study, judged, fresh):
            if len(scored) < config.fresh_seeds and not failed:
                study.warn(f"there was time for {len(scored)} of {config.fresh_seeds} fresh seeds")
            return finalists, scored
    study.warn("the seeds that chose judge, too, which flatters the winner")
    study.train(goals(chose[:1]), "their score")  # the baseline has no other
    if not (scored := _scored(study, judged, chose[:1])):
        raise FlairNasError(f"no settings could be scored: {study.errors()}")
    return finalists, scored


def warn_of_limit(study: Study) -> None:
    """Keep a caution if no candidate that came to the end meets the limit."""
    limit, times = study.config.at_most_ms, list(map(study.milliseconds, study.finishers()))
    if limit is not None and times and min(times) > limit:
        study.warn(
            f"no others that came to the end take at most {limit:g} ms a sentence; the fastest, {min(times):.2f} ms"
        )


def _judged(study: Study, finalists: Sequence[Candidate]) -> list[Candidate]:
    """Return finalists with the baseline, unless that failed."""
    return [*([study.baseline] if study.has_ended(study.baseline) else []), *finalists]


def _scored(study: Study, judged: Sequence[Candidate], seeds: Sequence[int]) -> list[int]:
    return [seed for seed in seeds if all("counts" in study.run(c, seed) for c in judged)]
