"""What the time of a selection is enough for: layers to compare, places in each rung, and seeds of the best."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Sequence
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.search.display import duration
from flair_nas.select.candidates import (
    Candidate,
    Layer,
    bundled_best_first,
    candidates_of,
    is_to_beat,
    named_layers,
    random_layers,
)
from flair_nas.select.config import budget_of, seconds_of
from flair_nas.select.rule import Rule, survivors
from flair_nas.select.schedule import Done, Pace, rest, side_by_side
from flair_nas.select.training import Runs, Wanted, wanted_of

log = logging.getLogger("flair_nas")

_SHARE = 0.85  # of the budget that is planned with; the rest is for what takes longer than measured
_OVER = 1.05
_MOST_RANDOM = 1000
_FEW = 4  # runs a process that are trained at once however few have been before


class Budget:
    """Decides by measured time, and keeps what it has decided in the plan of the ledger.

    Args:
        runs: what is trained.
        rule: how candidates are thinned out.

    Attributes:
        rungs: after how many epochs that is.
        later: how many layers will be found or matched in size, once the named ones are known.
        cautions: what there was no time for.
    """

    def __init__(self, runs: Runs, rule: Rule) -> None:
        self.runs, self.rule = runs, rule
        self.config, self.ledger = runs.config, runs.ledger
        self.rungs = rule.rungs(self.config.epochs)
        self.later = len(self.config.searches) + self.config.match
        self.seconds = seconds_of(self.config.budget) or math.inf
        self.cautions: list[str] = []

    @property
    def end(self) -> float:
        """Seconds after which no run of a fresh seed is to be at work: none should be lost for a little more."""
        return _OVER * self.seconds

    def left(self) -> float:
        """Seconds; what is done is never too much, so they are not less than none."""
        return max(0.0, self.seconds - self.ledger.seconds)

    # --- before the first rung ---

    def check(self, layers: list[Layer], later: int = 0) -> None:
        """Sees to it that the budget is enough for what is named, by the time of an epoch.

        Args:
            layers: those that are known.
            later: how many are still to come; what is proposed is enough for them, too.

        Raises:
            FlairNasError: it is not.
        """
        config, runs = self.config, self.runs
        named = [c for c in self._named(layers) if not runs.has_failed(c)]
        if all(runs.epochs(candidate) >= self.rungs[0] for candidate in named):
            return
        pace = self._probe(layers)
        needed = self._rest(0, len(named), self._done(named), pace)
        if needed > self.left():
            whole = duration(needed + self.ledger.seconds)
            raise FlairNasError(
                f"the budget of {config.budget} is not enough: an epoch takes {pace.epoch:.1f} s, so {len(named)} "
                f"layers and learning rates take about {whole} with one seed; {self._proposals(named, later, pace)}"
            )

    def bundled(self) -> list[str]:
        """The bundled cells to compare where none is named: as many as there is time for, and those that were begun."""
        config, plan, names = self.config, self.ledger.plan, bundled_best_first()
        if config.candidates:
            return []
        if "bundled" not in plan:
            least = named_layers(config, names[:1])
            self.check(least, self.later)
            pace, left = self._probe(least), _SHARE * self.seconds - self.ledger.seconds
            unknown = self.later * len(config.rates)

            def is_enough(count: int) -> bool:
                named = self._named(named_layers(config, names[:count]))
                candidates, done = len(named) + unknown, self._done(named)
                return self._rest(config.fresh_seeds, candidates, done, pace) <= left

            count = next((count for count in range(len(names), 1, -1) if is_enough(count)), 1)
            begun = {c.layer.rnn for c in candidates_of(config, named_layers(config)) if self.runs.epochs(c)}
            plan["bundled"] = [name for name in names if name in begun or name in names[:count]]
            self.ledger.save()
        found: list[str] = plan["bundled"]
        if len(found) < len(names):
            self._beware(
                f"the time is enough for {len(found)} of the {len(names)} bundled cells; --budget compares more, "
                "--candidates others"
            )
        return found

    def random(self, layers: list[Layer]) -> int:
        """How many random cells; the first rung of the layers that are named tells what they would take.

        Many side by side may take longer than those few did, so no more are trained at once than have been before.
        """
        config, plan, runs = self.config, self.ledger.plan, self.runs
        if config.random is not None:
            return config.random
        if "random" not in plan:
            named = self._named(layers)
            runs.train_first_seeds(named, self.rungs[0], f"rung 1 of {len(self.rungs)}, what is named")
            count, each = max(1, self._random_begun()), len(candidates_of(config, random_layers(config, 1)))
            at_once = max(len(named), _FEW * runs.pool.workers) // each
            while (more := self._further_random(layers, count)) > at_once:
                count += at_once
                them = candidates_of(config, [*layers, *random_layers(config, count)])
                runs.train_first_seeds(them, self.rungs[0], f"rung 1 of {len(self.rungs)}, {count} random cells")
                at_once = len(them) // each
            plan["random"] = count + more
            self.ledger.save()
        return int(plan["random"])

    def _further_random(self, layers: list[Layer], begun: int) -> int:
        """For how many random cells there is time, by what has been trained, besides those that were begun."""
        config, runs = self.config, self.runs
        everyone = candidates_of(config, [*layers, *random_layers(config, begun)])
        pace = runs.pace(everyone)
        if pace is None:
            raise FlairNasError(f"no run of rung 1 worked: {runs.errors()}")
        good = [candidate for candidate in everyone if not runs.has_failed(candidate)]
        each, done = len(candidates_of(config, random_layers(config, 1))), self._done(good)
        left = _SHARE * self.seconds - self.ledger.seconds

        def is_enough(more: int) -> bool:
            return self._rest(config.fresh_seeds, len(good) + more * each, done, pace) <= left

        more = 0
        while begun + more < _MOST_RANDOM and is_enough(more + 1):
            more += 1
        return more

    def _random_begun(self) -> int:
        """How many random cells have been trained, with an earlier budget; they stay."""
        config, count, each = self.config, 0, len(random_layers(self.config, 1))
        while any(map(self.runs.epochs, candidates_of(config, random_layers(config, count + 1)[-each:]))):
            count += 1
        return count

    def _named(self, layers: list[Layer]) -> list[Candidate]:
        """Candidates that there are whatever the time."""
        random = 1 if self.config.random is None else self.config.random
        return candidates_of(self.config, [*layers, *random_layers(self.config, random)])

    def _probe(self, layers: list[Layer]) -> Pace:
        """What an epoch of two of them takes: of the layer to beat, and of the last one or a random cell.

        The first one is slower than the next, so it is two where the first rung has as many.
        """
        named = [c for c in self._named(layers) if not self.runs.has_failed(c)]
        probes = [c for c in named if c.layer in (layers[0], named[-1].layer)][:: len(self.config.rates)]
        self.runs.train_first_seeds(probes, min(2, self.rungs[0]), "first, to measure the time of an epoch")
        return self.runs.pace(probes) or Pace(0.0, 0.0)  # if these do not work, the first rung tells

    def _proposals(self, named: list[Candidate], later: int, pace: Pace) -> str:
        """Which budgets would be enough, and for what this one would be in another folder, in words.

        The slowest run that was measured counts, as those that are not known yet may be no faster.
        """
        config, runs, workers = self.config, self.runs, self.runs.pool.workers
        slowest = max(filter(None, (runs.pace([candidate]) for candidate in named)), default=pace)
        count = len(named) + later * len(config.rates)
        least, whole = (
            budget_of((self._rest(seeds, count, self._done(named), slowest) + self.ledger.seconds) / _SHARE)
            for seeds in (0, config.fresh_seeds)
        )
        trained = [sum(run["seconds"]) + run["around_seconds"] for run in self.ledger.runs.values() if "seconds" in run]
        before = max(0.0, self.ledger.seconds - side_by_side(trained, workers))  # data, embeddings, processes

        def is_enough(count: int, **changes: Any) -> bool:  # with a fresh seed of two
            less = dataclasses.replace(config, **changes)
            nothing = Done([0] * len(self.rule.rungs(less.epochs)))
            needed = rest(self.rule, less, 1, count, nothing, slowest, workers)
            return needed + before <= _SHARE * self.seconds

        found = []
        if count > 3 and is_enough(3, rates=[1.0]):
            found.append("three layers alone: --candidates i-darts-ptb --random 1 --rates 1 --no-match")
        if epochs := next((n for n in range(config.epochs - 1, 0, -1) if is_enough(count, epochs=n)), 0):
            found.append(f"--epochs {epochs}")
        judged = f"{config.fresh_seeds} fresh seed{'s' * (config.fresh_seeds > 1)} of two"
        enough = f"--budget {least} is about the least for them, --budget {whole} has time for {judged}, too"
        return enough + (f"; or, in another folder, {', or '.join(found)}" if found else "")

    # --- after each rung ---

    def places(self, rung: int, places: int, alive: Sequence[Candidate], costs: dict[str, float]) -> int:
        """How many go on after so many rungs: by the rule, unless time would be short for the fresh seeds of two.

        Args:
            rung: how many rungs are done.
            places: how many there were in this one.
            alive: who was in it.
            costs: of those that worked.
        """
        of_rule, plan = self.rule.counts(places, self.rungs)[1], self.ledger.plan.setdefault("places", {})
        key = f"{places} after rung {rung}"  # with more candidates it is decided anew
        if key not in plan:
            left = self.left()

            def is_enough(count: int) -> bool:
                them = self.going_on(count, alive, costs)
                pace, done = self.runs.pace(them), self._done(them)
                assert pace is not None  # they work
                if not self._rest(0, len(them), done, pace, rung):
                    return True  # who has come to the end already stays
                return self._rest(self.config.fresh_seeds, len(them), done, pace, rung) <= left

            plan[key] = next((count for count in range(of_rule, 1, -1) if is_enough(count)), 1)
            self.ledger.save()
        of_time, by_rule = (len(self.going_on(count, alive, costs)) for count in (plan[key], of_rule))
        if of_time < by_rule:
            after = f"{self.rungs[rung - 1]} of {self.config.epochs} epochs"
            self._beware(f"time was short, so after {after} {of_time} and not {by_rule} of {len(alive)} went on")
        return int(plan[key])

    def going_on(self, places: int, alive: Sequence[Candidate], costs: dict[str, float]) -> list[Candidate]:
        """Who goes on where there are so many places: always the layer to beat and the best of the others, too.

        Nobody should think that the layer to beat had the wrong rate, so it comes to the end with each.
        """
        to_beat = [candidate.name for candidate in alive if is_to_beat(candidate.layer, self.config)]
        best = survivors({name: cost for name, cost in costs.items() if name not in to_beat}, 1)
        kept = {*to_beat, *best, *survivors(costs, places)} & set(costs)
        return [candidate for candidate in alive if candidate.name in kept]

    # --- after the last one ---

    def finalists(self, ranked: list[Candidate]) -> tuple[list[Candidate], list[int]]:
        """Among which the choice is made, and by which seeds: the first one, or all where there is time for that.

        Args:
            ranked: who came to the end with the first seed, the best on dev first.
        """
        config, plan, left = self.config, self.ledger.plan, self.left()
        first = [group[0] for group in self.groups(ranked)]
        order = [*first, *(candidate for candidate in ranked if candidate not in first)]

        def is_enough(count: int) -> bool:
            further = wanted_of(order[:count], config.seeds[1:], config.epochs)
            if not self.runs.to_do(further):
                return True  # seeds that have chosen do so again
            return self._seconds(further) + self._for_fresh(order[:count]) <= left

        if "finalists" not in plan:
            plan["finalists"] = next((n for n in range(len(order), len(first), -1) if is_enough(n)), len(first))
            plan["seeds"] = len(config.seeds) if is_enough(plan["finalists"]) else 1
            self.ledger.save()
        return order[: int(plan["finalists"])], config.seeds[: int(plan["seeds"])]

    def groups(self, candidates: Sequence[Candidate]) -> list[list[Candidate]]:
        """The layer to beat with each of its rates, and the others; one alone where the other has failed."""
        config = self.config
        groups = [[c for c in candidates if is_to_beat(c.layer, config) is to_beat] for to_beat in (True, False)]
        return [group for group in groups if group]

    def _for_fresh(self, finalists: Sequence[Candidate]) -> float:
        """Seconds for the fresh seeds of two of these at most: the slowest of either group."""
        seeds = self.config.fresh()
        return self._seconds(
            [
                run
                for group in self.groups(finalists)
                for run in max((self._judging([c], seeds) for c in group), key=self._seconds)
            ]
        )

    def fresh(self, compared: Sequence[Candidate]) -> list[int]:
        """The seeds that judge what was chosen: as many of the fresh ones as there is time for."""
        seeds, left, plan = self.config.fresh(), self.left(), self.ledger.plan.setdefault("fresh", {})
        key = f"{len(seeds)} of {' and '.join(candidate.name for candidate in compared)}"

        def is_enough(count: int) -> bool:
            return self._seconds(self._judging(compared, seeds[:count])) <= left

        if key not in plan:
            plan[key] = next((count for count in range(len(seeds), 0, -1) if is_enough(count)), 0)
            self.ledger.save()
        return seeds[: int(plan[key])]

    def _judging(self, candidates: Sequence[Candidate], seeds: Sequence[int]) -> list[Wanted]:
        return wanted_of(candidates, seeds, self.config.epochs, score=True)

    def _seconds(self, wanted: Sequence[Wanted]) -> float:
        """What is left of runs takes, side by side."""
        longest_first = sorted(map(self.runs.seconds, self.runs.to_do(wanted)), reverse=True)
        return side_by_side(longest_first, self.runs.pool.workers)

    # --- what all of it takes ---

    def _rest(self, fresh: int, candidates: int, done: Done, pace: Pace, rung: int = 0) -> float:
        """Seconds from a rung to the end; arguments as of `rest`."""
        return rest(self.rule, self.config, fresh, candidates, done, pace, self.runs.pool.workers, rung)

    def _done(self, candidates: Sequence[Candidate]) -> Done:
        first, fresh, is_done = self.config.seeds[0], self.config.fresh(), self.runs.is_done
        return Done(
            [sum(is_done(c, first, epochs, score=False) for c in candidates) for epochs in self.rungs],
            sum(is_done(c, seed, self.config.epochs, score=True) for c in candidates for seed in fresh),
        )

    def _beware(self, caution: str) -> None:
        self.cautions.append(caution)
        log.info("%s", caution)
