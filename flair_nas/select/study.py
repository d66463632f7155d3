"""Steps of a selection. Each decides by the time left, trains and prunes; decisions stay in the ledger's plan."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import operator
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.experiments.successive_halving import survivors
from flair_nas.runs.duration import MARGIN, format_time
from flair_nas.select.candidates import Candidate, Layer, is_baseline, make_candidates, random_layers
from flair_nas.select.clock import OVERTIME, max_fitting
from flair_nas.select.config import SelectSettings
from flair_nas.select.limit import apply_limit
from flair_nas.select.planner import describe_changes, reductions
from flair_nas.select.runs import Goal, Runs, make_goals

log = logging.getLogger("flair_nas")

MIN_JUDGES = 2
"""Minimum fresh seeds of a comparison: with one, chance decides."""
_MAX_RANDOM = 1000
_FEW_EACH = 4  # random cells for each worker that may train at once, however few have trained before


class Study:
    """A selection of one layer."""

    def __init__(self, runs: Runs) -> None:
        self.runs, self.ledger = runs, runs.ledger
        self.cautions: list[str] = []  # sentences for the report

    @property
    def config(self) -> SelectSettings:
        """Settings, as reduced to the budget."""
        return self.runs.config

    def warn(self, caution: str, level: int = logging.INFO) -> None:
        """Keep a caution for the report, and log it."""
        self.cautions.append(caution)
        log.log(level, "%s", caution)

    def needs(self, fresh: int, usual: Sequence[str] = (), changes: Mapping[str, Any] | None = None) -> float:
        """Return the seconds left of the selection, with fresh seeds of two candidates."""
        runs = self._change(changes or {})
        load = runs.named_workload(usual)  # first, as it may set `embedding_seconds`
        return runs.embedding_seconds + runs.clock.remaining(load, fresh)

    def _change(self, changes: Mapping[str, Any]) -> Runs:
        return dataclasses.replace(self.runs, config=dataclasses.replace(self.config, **changes))

    # --- before the first rung ---

    def fit_settings(self) -> None:
        """Leave out layers that are too slow, then reduce the settings to the budget; each change is a caution.

        Raises:
            FlairNasError: no layer is fast enough, or the smallest comparison exceeds the budget.
        """
        self.runs = apply_limit(self.runs, self.warn)
        config, plan = self.config, self.ledger.plan
        asked = [config.candidates, config.searches, config.random, config.rates, config.match]
        if plan.get("asked") != asked:
            plan |= {"asked": asked, "less": self._choose_changes()}
        changes = plan["less"]
        for clause in describe_changes(config, changes):
            self.warn(f"the budget of {config.budget} is small, so {clause}")
        self.runs = self._change(changes)

    def _choose_changes(self) -> dict[str, Any]:
        """Return the fewest changes that fit the selection into the budget, at worst without fresh seeds."""
        config, judges = self.config, min(MIN_JUDGES, self.config.fresh_seeds)
        begun = max((len(run.get("dev", ())) for run in self.ledger.runs.values()), default=0)
        steps = reductions(config, max(begun, self.runs.rungs[0]), self.runs.usual)
        self.runs.named_workload()  # first, as timing takes time
        left = self.runs.clock.left
        for changes in itertools.accumulate(steps, operator.or_, initial=dict[str, Any]()):
            fits = self.needs(judges, changes=changes) <= MARGIN * left
            if fits or not self.needs(0, changes=changes):  # one that is finished stays
                return changes
        needs = (self.needs(0, changes=changes), self.needs(judges, changes=changes), self.needs(judges))
        if needs[0] <= left:
            return changes
        least, judged, whole = (format_time(seconds / MARGIN + self.runs.clock.spent) for seconds in needs)
        runs = self._change(changes)
        epoch = runs.named_workload().pace.epoch
        layers = " and ".join(dict.fromkeys(c.layer.name for c in runs.named() if not runs.has_failed(c)))
        raise FlairNasError(
            f"the budget of {config.budget} is too small: an epoch takes about {epoch:.1f} s, "
            f"and {layers} with {runs.config.epochs} epochs and one seed need --budget {least}. With {judges} fresh "
            f"seed{'s' * (judges > 1)} they need --budget {judged}, and all that is asked for needs --budget {whole}"
        )

    def choose_usual(self) -> list[str]:
        """Return the usual layers to compare if no candidates are named: those begun, and more if there is time."""
        names, fresh, limit = self.runs.usual, self.config.fresh_seeds, self.runs.clock.planned
        if self.config.candidates:
            return []

        def choose() -> list[str]:
            counts = range(len(names), 1, -1)
            count = max_fitting(counts, lambda count: self.needs(fresh, names[:count]), limit, 1)
            chosen = {*self.runs.begun_usual(), *names[:count]}
            return [name for name in names if name in chosen]

        usual = self.ledger.decide(self._within_limit("usual"), choose)
        if len(usual) < len(names):
            self.warn(
                f"the time is enough for {len(usual)} of the {len(names)} usual layers; --budget compares more, "
                "--candidates others"
            )
        return usual

    def _within_limit(self, decision: str) -> str:
        """Return the name of a decision that depends on `at_most_seconds`."""
        limit = self.config.at_most_seconds
        return decision if limit is None else f"{decision} within {limit:g} times the LSTM"

    def count_random(self, layers: Sequence[Layer]) -> int:
        """Return the number of random cells to compare, by the time of the first rung.

        Many runs side by side may take longer than a few. So never more cells train at once than have trained before.
        """
        config, runs = self.config, self.runs

        def train(count: int, title: str) -> int:
            candidates = make_candidates(config, [*layers, *random_layers(config, count)])
            runs.train_first_seeds(candidates, runs.rungs[0], f"rung 1 of {len(runs.rungs)}, {title}")
            return len(candidates)

        def choose() -> int:
            trained, step = train(1, "what is named"), len(make_candidates(config, random_layers(config, 1)))
            count = max(1, runs.num_random())
            at_once = max(trained, _FEW_EACH * runs.pool.workers) // step
            while (total := self._max_random(layers, count, step)) - count > at_once:
                count += at_once
                at_once = train(count, f"{count} random cells") // step
            return total

        return config.random if config.random is not None else self.ledger.decide(self._within_limit("random"), choose)

    def _max_random(self, layers: Sequence[Layer], begun: int, step: int) -> int:
        """Return the number of random cells, of `step` candidates each, that the time left allows."""
        runs, limit = self.runs, self.runs.clock.planned
        candidates = make_candidates(self.config, [*layers, *random_layers(self.config, begun)])
        if (pace := runs.pace(candidates)) is None:
            raise FlairNasError(f"no run of rung 1 worked: {runs.errors()}")
        good = [candidate for candidate in candidates if not runs.has_failed(candidate)]
        load = runs.workload(good, pace)

        def fits(more: int) -> bool:
            larger = load._replace(candidates=load.candidates + more * step)
            return runs.clock.remaining(larger, self.config.fresh_seeds) <= limit

        return begun + sum(1 for _ in itertools.takewhile(fits, range(1, _MAX_RANDOM - begun + 1)))

    # --- the rungs ---

    def prune(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Train candidates rung by rung with the first seed; return those with the last epoch, best first."""
        runs, alive, places, costs = self.runs, list(candidates), len(candidates), dict[str, float]()
        for rung, epochs in enumerate(runs.rungs, start=1):
            runs.train_first_seeds(alive, epochs, f"rung {rung} of {len(runs.rungs)}")
            costs = {c.name: runs.cost(c, self.config.seeds[0], epochs) for c in alive}
            costs = {name: cost for name, cost in costs.items() if not math.isinf(cost)}
            if not costs:
                raise FlairNasError(f"no run of rung {rung} worked: {runs.errors()}")
            if rung < len(runs.rungs):
                places = self._count_places(rung, places, alive, costs)
                alive = self._survivors(alive, costs, places)
        return sorted((c for c in alive if c.name in costs), key=lambda candidate: costs[candidate.name])

    def _count_places(self, rung: int, places: int, alive: Sequence[Candidate], costs: Mapping[str, float]) -> int:
        """Return the number of candidates that go on: by the rule, or fewer if time for fresh seeds is short."""
        runs, by_rule = self.runs, self.config.task.rule.counts(places, self.runs.rungs)[1]
        left = runs.clock.left

        def seconds(count: int) -> float:
            going = self._survivors(alive, costs, count)
            pace = runs.pace(going)
            assert pace is not None  # they work
            load = runs.workload(going, pace)
            unfinished = runs.clock.remaining(load, 0, rung) > 0  # those that reached the end stay
            return runs.clock.remaining(load, self.config.fresh_seeds, rung) if unfinished else 0.0

        key = f"{places} after rung {rung}"  # decided anew with more candidates
        count = self.ledger.decide(key, lambda: max_fitting(range(by_rule, 1, -1), seconds, left, 1), part="places")
        going, expected = (len(self._survivors(alive, costs, count)) for count in (count, by_rule))
        if going < expected:
            after = f"{runs.rungs[rung - 1]} of {self.config.epochs} epochs"
            self.warn(f"time was short, so after {after} {going} and not {expected} of {len(alive)} went on")
        return count

    def _survivors(self, alive: Sequence[Candidate], costs: Mapping[str, float], places: int) -> list[Candidate]:
        """Return the candidates that go on: the baseline with each rate, and the best."""
        baselines = [c.name for c in alive if is_baseline(c.layer, self.config)]
        kept = survivors(costs, places, baselines)
        return [candidate for candidate in alive if candidate.name in kept]

    # --- after the last rung ---

    def choose(self, ranked: Sequence[Candidate]) -> tuple[list[Candidate], list[int]]:
        """Choose the best rate of the baseline and the best other candidate, by dev; return both and the seeds."""
        runs, epochs = self.runs, self.config.epochs
        finalists, seeds = self._plan_choice(ranked)
        names = " and ".join(candidate.name for candidate in finalists)
        runs.train(make_goals(finalists, seeds, epochs), f"{count_seeds(seeds)} of {names} choose")
        costs = {c: [runs.cost(c, seed, epochs) for seed in seeds] for c in finalists}
        # a seed counts only if one worked with it
        valid = [at for at in range(len(seeds)) if not all(math.isinf(row[at]) for row in costs.values())]
        means = {c: statistics.mean(row[at] for at in valid) for c, row in costs.items()}
        best = sorted((c for c in finalists if not math.isinf(means[c])), key=lambda c: means[c])
        if not best:
            raise FlairNasError(f"no layer worked with all of its seeds: {runs.errors()}")
        return [group[0] for group in self._groups(best)], [seeds[at] for at in valid]

    def _plan_choice(self, ranked: Sequence[Candidate]) -> tuple[list[Candidate], list[int]]:
        """Return the finalists and the seeds that choose: the first, or all if there is time."""
        config, runs, left = self.config, self.runs, self.runs.clock.left
        first = [group[0] for group in self._groups(ranked)]
        order = [*first, *(candidate for candidate in ranked if candidate not in first)]

        def seconds(count: int) -> float:
            further = make_goals(order[:count], config.seeds[1:], config.epochs)
            if not runs.to_do(further):
                return 0.0  # all are trained
            # fresh seeds of the slowest of each group
            pairs = ([self._judging([candidate]) for candidate in group] for group in self._groups(order[:count]))
            fresh = [goal for goals in pairs for goal in max(goals, key=runs.remaining)]
            return runs.remaining(further) + runs.remaining(fresh)

        counts = range(len(order), len(first), -1)
        count = self.ledger.decide("finalists", lambda: max_fitting(counts, seconds, left, len(first)))
        seeds = self.ledger.decide("seeds", lambda: len(config.seeds) if seconds(count) <= left else 1)
        return order[:count], config.seeds[:seeds]

    def _judging(self, candidates: Sequence[Candidate], count: int | None = None) -> list[Goal]:
        return make_goals(candidates, self.config.fresh()[:count], self.config.epochs, score=True)

    def _groups(self, candidates: Sequence[Candidate]) -> list[list[Candidate]]:
        """Split candidates into those of the baseline and the others; leave out an empty group."""
        groups = [[c for c in candidates if is_baseline(c.layer, self.config) is kind] for kind in (True, False)]
        return [group for group in groups if group]

    def judge(self, finalists: Sequence[Candidate]) -> list[int]:
        """Return the fresh seeds that have scored all finalists; none if there was no time for one."""
        config, runs, end = self.config, self.runs, OVERTIME * self.runs.clock.budget
        names, left = " and ".join(candidate.name for candidate in finalists), end - runs.clock.spent
        counts = range(config.fresh_seeds, 0, -1)
        count = self.ledger.decide(
            f"{config.fresh_seeds} of {names}",
            lambda: max_fitting(counts, lambda count: runs.remaining(self._judging(finalists, count)), left, 0),
            part="fresh",
        )
        title = f"{count_seeds(config.fresh()[:count], 'fresh ')} of {names}"
        runs.train(self._judging(finalists, count), title, end)
        scored = self._scored(finalists, config.fresh())
        failed = {c.run(seed): seed for seed in config.fresh() for c in finalists if runs.has_failed(c, seed)}
        if failed:
            self.warn(f"{' and '.join(failed)} failed, so what the other has with that seed does not count")
        if len({*scored, *failed.values()}) < config.fresh_seeds:
            self.warn(f"there was time for {len(scored)} of {config.fresh_seeds} fresh seeds")
        return scored

    def judge_by_choosers(self, finalists: Sequence[Candidate], chose: Sequence[int]) -> list[int]:
        """Score all finalists with the seeds that chose; return those that worked."""
        self.warn("the seeds that chose judge, too, which flatters the winner")
        self.runs.train(make_goals(finalists, chose, self.config.epochs, score=True), "their score")
        scored = self._scored(finalists, chose)
        if not scored:
            raise FlairNasError(f"no layer could be scored: {self.runs.errors()}")
        return scored

    def _scored(self, finalists: Sequence[Candidate], seeds: Sequence[int]) -> list[int]:
        return [seed for seed in seeds if all("counts" in self.runs.run(c, seed) for c in finalists)]


def count_seeds(seeds: Sequence[int], kind: str = "") -> str:
    """Return a number of seeds in words."""
    return f"{len(seeds)} {kind}seed{'s' * (len(seeds) != 1)}"
