"""The time of a selection: layers to compare, places in each rung, and seeds of the best."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import operator
from collections.abc import Sequence
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.experiments.config import budget_of, seconds_of
from flair_nas.experiments.successive_halving import Rule, survivors
from flair_nas.select.candidates import (
    Candidate,
    Layer,
    bundled_best_first,
    candidates_of,
    is_to_beat,
    named_layers,
    random_layers,
)
from flair_nas.select.runs import Runs, Wanted, wanted_of
from flair_nas.select.schedule import Done, Pace, left_out, reductions, rest, side_by_side

log = logging.getLogger("flair_nas")

_SHARE = 0.85  # of the time left that is planned with; the rest is for what takes longer than measured
_OVER = 1.05
_JUDGES = 2  # fresh seeds that a comparison has at least: of one each, nobody can tell which layer is better
_MOST_RANDOM = 1000
_FEW = 4  # runs a process that are trained at once however few have been before


class Budget:
    """Decides by measured time, and keeps what it has decided in the plan of the ledger.

    Args:
        runs: what is trained.
        rule: how candidates are thinned out.

    Attributes:
        rungs: after how many epochs that is.
        cautions: what there was no time for.
    """

    def __init__(self, runs: Runs, rule: Rule) -> None:
        self.runs, self.rule = runs, rule
        self.config, self.ledger = runs.config, runs.ledger
        self.rungs = rule.rungs(self.config.epochs)
        self.seconds = seconds_of(self.config.budget) or math.inf
        self.cautions: list[str] = []

    @property
    def end(self) -> float:
        """Seconds after which no run of a fresh seed is to be at work: none should be lost for a little more."""
        return _OVER * self.seconds

    def left(self) -> float:
        """Return the seconds that are left, which are never less than none."""
        return max(0.0, self.seconds - self.ledger.seconds)

    # --- before the first rung ---

    def fitted(self) -> Budget:
        """Return a budget whose settings ask for no more than there is time for; its cautions say what is left out.

        Raises:
            FlairNasError: the time is too short even for the smallest comparison.
        """
        config, plan = self.config, self.ledger.plan
        asked = [config.candidates, config.searches, config.random, config.rates, config.match]
        if set(plan) <= {"budget"} or plan.get("asked", asked) != asked:  # an older plan has no "asked", and stays
            plan |= {"asked": asked, "less": self._less()}
        less: dict[str, Any] = plan.get("less", {})
        fitted = self._smaller(less)
        for caution in left_out(config, less):
            fitted._beware(f"the budget of {config.budget} is small, so {caution}")
        return fitted

    def _less(self) -> dict[str, Any]:
        """Choose the settings that change: the first of the reductions that there is time for."""
        judges = min(_JUDGES, self.config.fresh_seeds)
        begun = max((len(run.get("dev", ())) for run in self.ledger.runs.values()), default=0)
        steps = reductions(self.config, max(begun, self.rungs[0]), bundled_best_first()[0])
        for less in itertools.accumulate(steps, operator.or_, initial=dict[str, Any]()):
            smaller = self._smaller(less)
            if smaller.needs(judges) <= _SHARE * self.left() or not smaller.needs(0):  # what is at its end stays
                return less
        if smaller.needs(0) <= self.left():
            return less  # and is undecided, unless it is faster than that
        wanted = (smaller.needs(0), smaller.needs(judges), self.needs(judges))
        least, judged, whole = (budget_of(seconds / _SHARE + self.ledger.seconds) for seconds in wanted)
        layers = " and ".join(dict.fromkeys(candidate.layer.name for candidate in smaller.named()))
        raise FlairNasError(
            f"the budget of {self.config.budget} is too small: an epoch takes about {smaller.pace().epoch:.1f} s, and "
            f"{layers} with {smaller.config.epochs} epochs and one seed want --budget {least}. With {judges} fresh "
            f"seed{'s' * (judges > 1)} they want --budget {judged}, and all that is asked for wants --budget {whole}"
        )

    def _smaller(self, less: dict[str, Any]) -> Budget:
        """Return a budget of the same runs with other settings."""
        return Budget(self.runs.with_settings(dataclasses.replace(self.config, **less)), self.rule)

    def pace(self, bundled: Sequence[str] = ()) -> Pace:
        """Return the pace of the candidates that are `named`, or an estimate where none of them has begun."""
        return self.runs.pace(self.named(bundled)) or self.runs.estimated_pace(self._named(bundled))

    def named(self, bundled: Sequence[str] = ()) -> list[Candidate]:
        """Return the candidates that there are whatever the time: one bundled and one random cell, and those begun.

        Those that have failed are left out.

        Args:
            bundled: these bundled cells in place of one.
        """
        return [candidate for candidate in self._named(bundled) if not self.runs.has_failed(candidate)]

    def _named(self, bundled: Sequence[str]) -> list[Candidate]:
        config, runs = self.config, self.runs
        random = max(1, self._random_begun()) if config.random is None else config.random
        layers = named_layers(config, bundled or self._bundled_begun() or bundled_best_first()[:1])
        layers += [*runs.searched(), *(runs.matched() if config.match else []), *random_layers(config, random)]
        return candidates_of(config, layers)

    def needs(self, fresh: int, bundled: Sequence[str] = ()) -> float:
        """Return the seconds that these settings still take, with so many fresh seeds of two.

        Args:
            fresh: how many.
            bundled: as for `named`.
        """
        config, runs, named = self.config, self.runs, self.named(bundled)
        later = len(runs.to_search()) + (config.match and not runs.matched())
        pace, done = self.pace(bundled), self._done(named)
        return runs.embedding_seconds + self._rest(fresh, len(named) + later * len(config.rates), done, pace)

    def bundled(self) -> list[str]:
        """The bundled cells to compare where none is named: as many as there is time for, and those that were begun."""
        plan, names, fresh = self.ledger.plan, bundled_best_first(), self.config.fresh_seeds
        if self.config.candidates:
            return []
        if "bundled" not in plan:
            counts, left = range(len(names), 1, -1), _SHARE * self.left()
            count = next((count for count in counts if self.needs(fresh, names[:count]) <= left), 1)
            stay = {*self._bundled_begun(), *names[:count]}
            plan["bundled"] = [name for name in names if name in stay]
        found: list[str] = plan["bundled"]
        if len(found) < len(names):
            self._beware(
                f"the time is enough for {len(found)} of the {len(names)} bundled cells; --budget compares more, "
                "--candidates others"
            )
        return found

    def _bundled_begun(self) -> list[str]:
        """Return the bundled cells that have been trained, with an earlier budget; they stay."""
        if not self.ledger.runs:
            return []
        everyone = candidates_of(self.config, named_layers(dataclasses.replace(self.config, candidates=[])))
        begun = {candidate.layer.rnn for candidate in everyone if self.runs.epochs(candidate)}
        return [name for name in bundled_best_first() if name in begun]

    def random(self, layers: list[Layer]) -> int:
        """How many random cells; the first rung of the layers that are named tells what they would take.

        Many side by side may take longer than those few did, so no more are trained at once than have been before.
        """
        config, plan, runs = self.config, self.ledger.plan, self.runs
        if config.random is not None:
            return config.random
        if "random" not in plan:
            named = candidates_of(config, [*layers, *random_layers(config, 1)])
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
        left = _SHARE * self.left()

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
