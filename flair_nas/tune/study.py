"""The search of a tuning: settings are drawn, trained and pruned within the budget.

Settings are pruned by asynchronous successive halving (Li et al., MLSys 2020): whenever a process is free, a candidate
among the better ones of its rung goes on, or else a new one begins. All state is in the ledger.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flair_nas.errors import FlairNasError
from flair_nas.experiments.jobs import Job, Outcome, Pool, run_here
from flair_nas.experiments.ledger import Ledger, Run
from flair_nas.experiments.worker_setup import time_beside
from flair_nas.runs.duration import duration, format_time
from flair_nas.tune.candidates import BASELINE, Candidate, first_points, make_candidate
from flair_nas.tune.clock import Pace, makespan, max_fitting, mean_pace
from flair_nas.tune.config import TuneSettings
from flair_nas.tune.mirror import copy_trials, open_storage
from flair_nas.tune.parts import Point, Space
from flair_nas.tune.sampler import draw, has_optuna
from flair_nas.tune.trials import Trials

log = logging.getLogger("flair_nas")

MIN_JUDGES = 2
"""Minimum fresh seeds of a comparison: with one, chance decides."""
FINALISTS = 4
"""Candidates that further seeds choose from."""
_CHOOSING = 0.15  # of the budget is for further seeds of the best
_JUDGING = 0.4  # of the budget is for fresh seeds, or what two of them need
_FEW = 6  # candidates that must at least begin
_AT_WORK = "at work"  # key of the plan


class Goal(NamedTuple):
    """A run and its last epoch; with `score`, its model is then scored on test."""

    candidate: Candidate
    seed: int
    epochs: int
    score: bool = False


class Study(Trials):
    """One tuning.

    Args:
        config: the settings.
        space: values of each dimension.
        learnt: best settings of earlier runs.
        ledger: what is known.
        pool: processes that train.
        folder: parent of the run folders.
    """

    def __init__(
        self,
        config: TuneSettings,
        space: Space,
        learnt: Sequence[dict[str, Any]],
        ledger: Ledger,
        pool: Pool,
        folder: Path,
    ) -> None:
        first = first_points(config, space, learnt)
        ledger.points = ledger.points or first[:1]
        super().__init__(config, ledger)
        self.space, self.pool, self.folder = space, pool, folder
        self.cautions: list[str] = []  # sentences for the report
        self.is_new = False  # True once something was trained
        self.is_prepared = False  # True once frozen embeddings are computed
        self._first = first
        self._sampler = config.sampler or ("tpe" if has_optuna() else "random")
        self._at_work: set[str] = set()
        self._copies: Any = None  # study of Optuna that gets a copy of the trials
        if others := sorted({name for point in ledger.points for name in point} - {*space}):
            self.warn(f"varied earlier, and not now: {', '.join(others)}", logging.WARNING)

    def warn(self, caution: str, level: int = logging.INFO) -> None:
        """Keep a caution for the report, and log it."""
        self.cautions.append(caution)
        log.log(level, "%s", caution)

    # --- time ---

    def pace(self, candidate: Candidate) -> Pace:
        """Return the pace of a candidate, or of those that are most like it."""
        heavy = bool(candidate.settings.get("taught_weight"))  # sentences that teachers have labelled take most time
        known = [c for c in self.candidates if self.run(c).get("seconds")]
        known = [c for c in known if bool(c.settings.get("taught_weight")) == heavy]
        if candidate in known:
            return mean_pace([self.run(candidate)])
        if not known:
            return mean_pace([self._estimate()])

        def likeness(other: Candidate) -> int:
            return sum(
                candidate.settings.get(name) == other.settings.get(name) for name in ("embeddings", "batch_size", "rnn")
            )

        most = max(map(likeness, known))
        return mean_pace([self.run(c) for c in known if likeness(c) == most])

    def _estimate(self, here: bool = False) -> Run:
        """Return the pace of the baseline by a few batches."""
        if "estimate" not in self.ledger.plan:
            log.info("a few batches of the baseline tell what an epoch takes")
            settings = self.baseline.settings | self.config.task.work.seeded(self.config.seeds[0])
            settings |= {"taught_weight": 1.0} if settings.get("taught") else {}
            job = Job("estimate", self.config.task.work.estimate, (settings,))
            (outcome,) = run_here([job]) if here else self.pool.run([job])
            if outcome.error is not None:
                raise FlairNasError(f"the baseline does not work: {outcome.error}") from outcome.error
            self.ledger.plan["estimate"] = outcome.result
        estimate: Run = self.ledger.plan["estimate"]
        return estimate

    def seconds(self, goal: Goal) -> float:
        """Return the time left of a run."""
        run, first = self.run(goal.candidate, goal.seed), self.run(goal.candidate)
        until = min(goal.epochs, len(first["dev"])) if first.get("exhausted") else goal.epochs
        return self.pace(goal.candidate).seconds(until - len(run.get("dev", ())))

    def remaining(self, goals: Sequence[Goal]) -> float:
        """Return the time left of runs, side by side."""
        return makespan(map(self.seconds, filter(self._is_due, goals)), self.pool.workers)

    @property
    def left(self) -> float:
        """Seconds left of the budget."""
        return max(0.0, self.config.seconds - self.ledger.seconds)

    def time_for_seeds(self, count: int, others: int, *, baseline: bool = True) -> float:
        """Return the seconds of full trainings of some candidates, and perhaps the baseline, with further seeds."""
        epochs = self.config.epochs
        paces = [self.pace(c) for c in self.finishers()[:FINALISTS]] or [self.pace(self.baseline)]
        other = statistics.mean(pace.seconds(epochs) for pace in paces)
        jobs = [*([self.pace(self.baseline).seconds(epochs)] * baseline), *([other] * others)]
        return makespan(jobs * count, self.pool.workers)

    @property
    def end_of_search(self) -> float:
        """Second of the tuning at which the search has to end."""
        wanted = self.time_for_seeds(self.config.fresh_seeds, others=2)
        least = self.time_for_seeds(min(MIN_JUDGES, self.config.fresh_seeds), others=1)
        choosing = self.time_for_seeds(len(self.config.seeds) - 1, others=FINALISTS, baseline=False)
        judging = min(wanted, max(least, _JUDGING * self.config.seconds))
        return self.config.seconds - judging - min(choosing, _CHOOSING * self.config.seconds)

    def fit_epochs(self, here: bool = False) -> None:
        """Lower the epochs until a small comparison fits into the budget.

        Raises:
            FlairNasError: even with the epochs of the first rung it does not.
        """
        asked, least = self.config.epochs, self.rungs[0]
        embedding = float(self._estimate(here)["embedding_seconds"]) if not self.is_prepared else 0.0
        judges = min(MIN_JUDGES, self.config.fresh_seeds)

        def needs(epochs: int, judges: int, few: int) -> float:
            pace, first = self.pace(self.baseline), self.config.task.rule.rungs(epochs)[0]
            jobs = [pace.seconds(epochs)] * (2 + 2 * judges) + [pace.seconds(first)] * few
            return (embedding + makespan(jobs, self.pool.workers)) / (1 - _CHOOSING)

        def choose() -> int:
            begun = max((len(run.get("dev", ())) for run in self.ledger.runs.values()), default=0)
            tries = [max(least, begun, asked * tenth // 10) for tenth in range(10, 0, -1)]
            epochs = max_fitting(tries, lambda epochs: needs(epochs, judges, _FEW), self.left, tries[-1])
            if needs(epochs, 0, 0) > self.left and not begun:
                smallest, whole = (
                    format_time(needs(*these) + self.ledger.seconds) for these in ((least, 0, 0), (asked, judges, _FEW))
                )
                raise FlairNasError(
                    f"the budget of {self.config.budget} is too small: an epoch of the baseline takes about "
                    f"{self.pace(self.baseline).epoch:.1f} s. Two settings with {least} epochs and one seed need "
                    f"--budget {smallest}. With {asked} epochs and fresh seeds they need --budget {whole}"
                )
            return epochs

        epochs = self.ledger.decide("epochs", choose)
        if epochs < asked:
            self.warn(
                f"the budget of {self.config.budget} is small, so settings are trained for {epochs} of {asked} epochs, "
                "after which others may be ahead"
            )
        self.config = dataclasses.replace(self.config, epochs=epochs)

    # --- the search ---

    def search(self) -> None:
        """Draw settings and train them, rung by rung, until there is time for the rest only."""
        for outcome in self.pool.run(self._jobs()):
            self._at_work.discard(outcome.job.name)
            self.ledger.plan[_AT_WORK] = [name for name in self.ledger.plan[_AT_WORK] if name != outcome.job.name]
            self._note(outcome)
            self._copy()
        self._copy(is_over=True)
        if not any(self.has_ended(c) for c in self.candidates):
            raise FlairNasError(f"no settings worked: {self.errors() or 'none came to the last epoch'}")

    def open_mirror(self) -> None:
        """Open the storage of Optuna that gets a copy, if there is one."""
        if self.config.optuna_storage:
            name, is_higher = str(self.folder.parent.resolve()), self.config.task.higher_is_better
            self._copies = open_storage(self.config.optuna_storage, name, is_higher)

    def _copy(self, is_over: bool = False) -> None:
        if self._copies is not None:
            copy_trials(self._copies, [*map(self.known, self.candidates)], self.space, is_over)

    def _jobs(self) -> Iterator[Job | None]:
        begun = set(self.ledger.plan.setdefault(_AT_WORK, []))  # when an earlier call was stopped
        while True:
            job = self._next_job(begun)
            if job is not None:
                self._at_work.add(job.name)
                begun.discard(job.name)
                self.ledger.plan[_AT_WORK] = [*self._at_work, *begun]
                self.ledger.save()
            yield job

    def _next_job(self, begun: set[str]) -> Job | None:
        """Return the next job, or None if there is none now."""
        if (untimed := self._find_untimed()) is not None:
            return untimed
        for goal in self._next_goals(begun):
            if goal.candidate.run(goal.seed) in begun or self._fits(goal):
                return self._make_job(goal)
        further = self._begin_another() or self._continue_one()
        return None if further is None else self._make_job(further)

    def _begin_another(self) -> Goal | None:
        """Draw a candidate, if there is one and time for it."""
        is_full = self.config.trials is not None and len(self.candidates) >= self.config.trials
        if is_full or (point := self._draw()) is None:
            return None
        candidate = make_candidate(self.config, point)
        goal = Goal(candidate, self.config.seeds[0], self.rungs[0])
        if not self._fits(goal) and len(self.candidates) > 1:  # the first other always begins
            return None
        self.ledger.points.append(point)
        self.candidates.append(candidate)
        return goal

    def _continue_one(self) -> Goal | None:
        """Return the run of the best candidate that did not go on, if few came to the end and none can be drawn."""
        seed, rungs, others = self.config.seeds[0], self.rungs, self.candidates[BASELINE + 1 :]
        going = [c for c in others if self.has_ended(c) or c.run(seed) in self._at_work]
        idle = [c for c in others if c not in going and self.run(c).get("dev") and self._is_timed(c)]
        cost = self.config.task.early_cost
        idle.sort(key=lambda c: (-len(self.run(c)["dev"]), cost(self.run(c), self.config.epochs)))
        for candidate in idle if len(going) < FINALISTS else ():
            goal = Goal(candidate, seed, rungs[self.count_passed(candidate)])
            # without any other, there is nothing to be judged
            if self._fits(goal) or not going and self.seconds(goal._replace(epochs=rungs[-1])) <= self.left:
                return goal
        return None

    def _fits(self, goal: Goal) -> bool:
        is_baseline = goal.candidate is self.baseline  # it always comes to the end
        return is_baseline or self.ledger.seconds + self.seconds(goal) <= self.end_of_search

    def _next_goals(self, begun: set[str]) -> list[Goal]:
        """Return the runs of candidates to their next rungs, the furthest first, but those at work.

        Those that an earlier call has begun are among them.
        """
        seed, rungs, goals = self.config.seeds[0], self.rungs, list[Goal]()
        going = [self._find_better(epochs) for epochs in rungs[:-1]]
        for candidate in self.candidates:
            run = self.run(candidate)
            if candidate.run(seed) in self._at_work or "error" in run or self.has_ended(candidate):
                continue
            passed = self.count_passed(candidate)
            if candidate is self.baseline:
                goals.append(Goal(candidate, seed, rungs[-1]))
            elif passed == 0 or candidate.run(seed) in begun or candidate in going[passed - 1]:
                goals.append(Goal(candidate, seed, rungs[passed]))
        return sorted(goals, key=lambda goal: -goal.epochs)  # stable

    def _find_better(self, epochs: int) -> set[Candidate]:
        """Return the better candidates of those that came to a rung, in groups that can be compared."""
        task, groups = self.config.task, dict[tuple[Any, ...], list[tuple[float, Candidate]]]()
        for candidate in self.candidates[BASELINE + 1 :]:
            run = self.run(candidate)
            if self._is_timed(candidate) and (len(run.get("dev", ())) >= epochs or run.get("exhausted")):
                groups.setdefault(self._group(candidate), []).append((task.early_cost(run, epochs), candidate))
        better = set[Candidate]()
        for group in groups.values():
            places = math.floor(len(group) * task.rule.keep)
            ranked = [candidate for _, candidate in sorted(group, key=lambda entry: entry[0])]
            better |= {*ranked[:places]}
        return better

    def _is_timed(self, candidate: Candidate) -> bool:
        """Return True unless a limit is set and the time of a candidate is still measured."""
        return self.config.at_most_ms is None or candidate.shape in self.ledger.runs

    def _group(self, candidate: Candidate) -> tuple[Any, ...]:
        """Return what candidates have in common whose losses can be compared: the CRF, and a limit that they meet."""
        limit = self.config.at_most_ms
        return candidate.settings.get("crf"), limit is not None and self.milliseconds(candidate) <= limit

    def _draw(self) -> Point | None:
        known, is_higher = list(map(self.known, self.candidates)), self.config.task.higher_is_better

        def is_new(point: Point) -> bool:
            try:
                return make_candidate(self.config, point) not in self.candidates
            except FlairNasError:  # values that exclude one another
                return False

        first = next(filter(is_new, self._first), None)
        return first or draw(self.space, known, self.config.seeds[0], self._sampler, is_higher, is_new)

    def _make_job(self, goal: Goal) -> Job:
        candidate, seed, epochs, score = goal
        name, work = candidate.run(seed), self.config.task.work
        settings = candidate.settings | {"epochs": epochs} | work.seeded(seed)
        return Job(name, work.train, (settings, str(self.folder / name), score))

    def _note(self, outcome: Outcome) -> None:
        """Keep an outcome, and log it."""
        self.is_new, task = True, self.config.task
        if self.ledger.note(outcome) and "dev" in outcome.result:
            spent = f"{duration(self.ledger.seconds)} of {duration(self.config.seconds)}"
            metric = f"best {task.title} on {task.dev} {task.best(outcome.result['dev']):.2f}"
            log.info("%s: %s after %d epochs; %s", outcome.job.name, metric, len(outcome.result["dev"]), spent)

    # --- milliseconds ---

    def _find_untimed(self) -> Job | None:
        """Return a job that times a candidate that came to the end, or has begun if a limit decides what goes on."""
        due = self.has_ended if self.config.at_most_ms is None else lambda c: self.run(c).get("dev")
        return next(iter(self._timings([*filter(due, self.candidates)])), None)

    def _timings(self, candidates: Sequence[Candidate]) -> list[Job]:
        beside, jobs = self.baseline, dict[str, Job]()
        for candidate in [beside, *candidates]:
            if candidate.shape not in {*self.ledger.runs, *self._at_work}:
                arguments = (self.config.task.name, candidate.settings, beside.settings)
                jobs.setdefault(candidate.shape, Job(candidate.shape, time_beside, arguments))
        return [*jobs.values()]

    def time_finishers(self) -> None:
        """Time those that came to the end, and the baseline, where that is not done."""
        for outcome in self.pool.run(self._timings(self.finishers())):
            self._note(outcome)

    # --- trainings of chosen candidates ---

    def train(self, goals: Sequence[Goal], title: str, until: float = math.inf) -> None:
        """Train runs to their epochs and score them; skip those that are done.

        Once a run would end after `until`, in seconds of the tuning, no new run begins.
        """
        seeds = [goal.seed for goal in goals]
        due = sorted(filter(self._is_due, goals), key=lambda goal: (seeds.index(goal.seed), -self.seconds(goal)))
        if not due:
            return
        log.info("%s: %d runs", title, len(due))

        def jobs() -> Iterator[Job]:
            for goal in due:
                if self.ledger.seconds + self.seconds(goal) > until and not self._is_begun(goal):
                    return
                yield self._make_job(goal)

        self.ledger.save()  # with the plan that the jobs follow
        for outcome in self.pool.run(jobs()):
            self._note(outcome)

    def _is_begun(self, goal: Goal) -> bool:
        name = goal.candidate.run(goal.seed)
        return name not in self.ledger.runs and (self.folder / name).exists()

    def _is_due(self, goal: Goal) -> bool:
        run = self.run(goal.candidate, goal.seed)
        trained = self.has_ended(goal.candidate, goal.seed)
        return "error" not in run and not (trained and ("counts" in run or not goal.score))
