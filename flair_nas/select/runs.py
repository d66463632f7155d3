"""Runs of a selection: their state in the ledger, and their training."""

from __future__ import annotations

import itertools
import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from flair_nas.errors import FlairNasError
from flair_nas.experiments.jobs import Job, Pool, run_here
from flair_nas.experiments.layers import identity
from flair_nas.experiments.ledger import Ledger, Run
from flair_nas.runs.duration import duration
from flair_nas.select.candidates import Candidate, Layer, draw_layers, make_candidates, named_layers, random_layers
from flair_nas.select.clock import Clock, Pace, Workload, makespan, mean_pace
from flair_nas.select.config import SelectSettings

log = logging.getLogger("flair_nas")


class Goal(NamedTuple):
    """A run and its last epoch; with `score`, its model is then scored on test."""

    candidate: Candidate
    seed: int
    epochs: int
    score: bool = False


def make_goals(candidates: Sequence[Candidate], seeds: Sequence[int], epochs: int, score: bool = False) -> list[Goal]:
    """Return the runs of all candidates, seed by seed."""
    return [Goal(candidate, seed, epochs, score) for seed in seeds for candidate in candidates]


@dataclass
class Runs:
    """Runs of one selection."""

    config: SelectSettings
    ledger: Ledger
    pool: Pool
    folder: Path  # parent of the run folders
    usual: list[str]  # layers to compare if the settings name none
    estimates: list[Run] = field(default_factory=list)  # timed batches, the pace before the first training
    is_new: bool = False  # True once something was trained
    is_estimate: bool = False  # True if nothing will be trained, so no process needs to start
    is_prepared: bool = False  # True once frozen embeddings are computed

    @property
    def rungs(self) -> list[int]:
        """Epochs after which candidates are compared."""
        return self.config.task.rule.rungs(self.config.epochs)

    @property
    def clock(self) -> Clock:
        """Clock of these settings."""
        return Clock(self.config, self.ledger, self.pool.workers)

    # --- training ---

    def train_first_seeds(self, candidates: Sequence[Candidate], epochs: int, title: str) -> None:
        """Train candidates to an epoch with the first seed."""
        self.train(make_goals(candidates, self.config.seeds[:1], epochs), f"{title}, to epoch {epochs}")

    def train(self, goals: Sequence[Goal], title: str, until: float = math.inf) -> None:
        """Train runs to their epochs and score them; skip those that are done.

        Once a run would end after `until`, in seconds of the selection, no new run begins.
        """
        task, jobs, seconds = self.config.task, [], dict[str, float]()
        for goal in self._sort(self.to_do(goals)):
            candidate, seed, epochs, score = goal
            name, settings = candidate.run(seed), candidate.settings(self.config, seed, epochs)
            jobs.append(Job(name, task.work.train, (settings, str(self.folder / name), score)))
            seconds[name] = self.seconds(goal)

        def may_begin(job: Job) -> bool:
            stopped = job.name not in self.ledger.runs and (self.folder / job.name).exists()  # at an unknown epoch
            return stopped or self.clock.spent + seconds[job.name] <= until

        if not jobs:
            return
        self.ledger.save()  # with the plan that the jobs follow
        log.info("%s: %d runs, time spent: %s", title, len(jobs), self.clock)
        for done, outcome in enumerate(self.pool.run(jobs, may_begin), start=1):
            self.is_new = True
            if self.ledger.note(outcome):
                result, spent = outcome.result, duration(self.clock.spent)
                metric = f"best {task.title} on {task.dev} {task.best(result['dev']):.2f}"
                metric += f" (least loss {min(result['dev_loss']):.4f})"  # decides if the metrics are level
                log.info("%d of %d, %s: %s; %s spent", done, len(jobs), outcome.job.name, metric, spent)

    def _sort(self, goals: Sequence[Goal]) -> list[Goal]:
        """Sort runs by seed, the longest of each first; a run of unknown length counts as the longest.

        Then no process waits long for another at the end.
        """
        seeds = list(dict.fromkeys(goal.seed for goal in goals))
        return sorted(goals, key=lambda goal: (seeds.index(goal.seed), -self.seconds(goal)))  # stable

    # --- time ---

    def estimated_pace(self, candidates: Sequence[Candidate]) -> Pace:
        """Return the pace by a few batches of the first layer and the last. Time them once."""
        if not self.estimates:
            pair = list({candidate.layer: candidate for candidate in (candidates[0], candidates[-1])}.values())
            log.info("a few batches of %s tell what an epoch takes", " and ".join(c.layer.name for c in pair))
            work, seed = self.config.task.work, self.config.seeds[0]
            jobs = [Job(c.name, work.estimate, (c.settings(self.config, seed, 1),)) for c in pair]
            outcomes = list(run_here(jobs) if self.is_estimate else self.pool.run(jobs))
            self.estimates += [outcome.result for outcome in outcomes if outcome.error is None]
            if not self.estimates:
                raise FlairNasError(f"no layer works: {outcomes[0].error}") from outcomes[0].error
        return mean_pace(self.estimates)

    @property
    def embedding_seconds(self) -> float:
        """Estimated time to embed all words; 0 once that is done."""
        return 0.0 if self.is_prepared else max((run["embedding_seconds"] for run in self.estimates), default=0.0)

    def pace(self, candidates: Sequence[Candidate]) -> Pace | None:
        """Return the pace of runs with the first seed, or None if none works."""
        runs = [self.run(candidate, self.config.seeds[0]) for candidate in candidates]
        good = [run for run in runs if "error" not in run]
        return mean_pace(good) if good else None

    def seconds(self, goal: Goal) -> float:
        """Return the time left of a run, by the pace of the first seed; infinity if that is unknown."""
        pace, first = self.pace([goal.candidate]), self.run(goal.candidate, self.config.seeds[0])
        until = len(first["dev"]) if first.get("exhausted") else goal.epochs
        reached = len(self.run(goal.candidate, goal.seed).get("dev", ()))
        return math.inf if pace is None else pace.epoch * max(0, until - reached) + pace.overhead

    def remaining(self, goals: Sequence[Goal]) -> float:
        """Return the time left of runs, side by side."""
        return makespan(sorted(map(self.seconds, self.to_do(goals)), reverse=True), self.pool.workers)

    def workload(self, candidates: Sequence[Candidate], pace: Pace) -> Workload:
        """Return candidates with what is already done."""
        first, epochs = self.config.seeds[:1], self.config.epochs
        done = [len(candidates) - len(self.to_do(make_goals(candidates, first, rung))) for rung in self.rungs]
        judging = make_goals(candidates, self.config.fresh(), epochs, score=True)
        return Workload(len(candidates), pace, done, len(judging) - len(self.to_do(judging)))

    def named_workload(self, usual: Sequence[str] = ()) -> Workload:
        """Return the candidates of `named` that have not failed, and those to be searched or matched."""
        named = self.named(usual)
        good = [candidate for candidate in named if not self.has_failed(candidate)]
        load = self.workload(good, self.pace(good) or self.estimated_pace(named))
        return load._replace(candidates=len(good) + self.num_pending * len(self.config.rates))

    @property
    def num_pending(self) -> int:
        """Number of layers still to be searched or matched."""
        return len(self.searches_to_do()) + (self.config.match and not self.matched())

    # --- state ---

    def run(self, candidate: Candidate, seed: int) -> Run:
        """Return the run with a seed."""
        return self.ledger.runs.get(candidate.run(seed), {"error": "it was not begun"})

    def to_do(self, goals: Sequence[Goal]) -> list[Goal]:
        """Return the runs that are not done: neither failed, nor trained and scored as their goals ask."""

        def is_done(goal: Goal) -> bool:
            run = self.ledger.runs.get(goal.candidate.run(goal.seed), {})
            trained = len(run.get("dev", ())) >= goal.epochs or run.get("exhausted", False)
            return "error" in run or (trained and ("counts" in run or not goal.score))

        return [goal for goal in goals if not is_done(goal)]

    def has_failed(self, candidate: Candidate, seed: int | None = None) -> bool:
        """Return True if the run with a seed has failed, by default the first one."""
        return "error" in self.ledger.runs.get(candidate.run(self.config.seeds[0] if seed is None else seed), {})

    def cost(self, candidate: Candidate, seed: int, epochs: int) -> float:
        """Return the cost of a run after some epochs, the smaller the better; infinity if it has none."""
        run, task = self.run(candidate, seed), self.config.task
        if "error" in run:
            return math.inf
        return task.early_cost(run, epochs) if epochs < self.config.epochs else task.cost(run, epochs)

    def errors(self) -> str:
        """Return a few of the errors."""
        return "; ".join(sorted({run["error"] for run in self.ledger.runs.values() if "error" in run})[:3])

    # --- layers ---

    def named(self, usual: Sequence[str] = ()) -> list[Candidate]:
        """Return the candidates of any budget: the named ones or a usual one, a random cell, and all begun."""
        config = self.config
        random = max(1, self.num_random()) if config.random is None else config.random
        layers = named_layers(config, usual or self.begun_usual() or self.usual[:1])
        layers += [*self.searched(), *(self.matched() if config.match else []), *random_layers(config, random)]
        return make_candidates(config, layers)

    def _is_begun(self, candidate: Candidate) -> bool:
        return bool(self.run(candidate, self.config.seeds[0]).get("dev"))

    def begun_usual(self) -> list[str]:
        """Return the usual layers that were begun with an earlier budget; these stay."""
        candidates = make_candidates(self.config, named_layers(self.config, self.usual))
        begun = {identity(c.layer.rnn) for c in candidates if self._is_begun(c)}
        return [name for name in self.usual if identity(name) in begun]

    def num_random(self) -> int:
        """Return the number of random cells that were begun with an earlier budget; these stay."""

        def is_begun(layers: list[Layer]) -> bool:
            return any(map(self._is_begun, make_candidates(self.config, layers)))

        return sum(1 for _ in itertools.takewhile(is_begun, draw_layers(self.config)))

    def searches_to_do(self) -> dict[str, str]:
        """Return the searches that have not ended, by their keys in the ledger."""
        return {name: method for name, method in self._searches().items() if name not in self.ledger.runs}

    def searched(self) -> list[Layer]:
        """Return the cells that were searched; a search that failed gives none."""
        runs = {method: self.ledger.runs.get(name, {}) for name, method in self._searches().items()}
        size = self.config.hidden_size
        return [Layer(f"found by {method}", run["genotype"], size) for method, run in runs.items() if "genotype" in run]

    def _searches(self) -> dict[str, str]:
        return {f"search-{method}-{self.config.search_epochs}-epochs": method for method in self.config.searches}

    def matched(self) -> list[Layer]:
        """Return the trained LSTMs that matched the largest layer in size."""
        matches = (re.match(r"lstm-(\d+)-[0-9a-f]{6}-rate", name) for name in self.ledger.runs)
        sizes = sorted({int(match[1]) for match in matches if match})
        return [Layer(f"lstm-{size}", "lstm", size) for size in sizes]

    def others(self, candidates: Sequence[Candidate]) -> list[str]:
        """Return the names of other trained candidates."""
        trained = {name.rpartition("-seed")[0] for name, run in self.ledger.runs.items() if "dev" in run}
        return sorted(trained - {candidate.name for candidate in candidates})
