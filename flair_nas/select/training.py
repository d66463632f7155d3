"""The runs of a selection: what they have come to, as the ledger has it, and having more of it done."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flair_nas.search.display import duration
from flair_nas.select.candidates import Candidate
from flair_nas.select.config import SelectSettings
from flair_nas.select.ledger import Ledger
from flair_nas.select.schedule import Pace, pace_of
from flair_nas.select.tasks import Task
from flair_nas.select.workers import Job, Pool

if TYPE_CHECKING:
    from flair_nas.select.ray_pool import RayPool

log = logging.getLogger("flair_nas")


class Wanted(NamedTuple):
    """A run that is to be brought to an epoch.

    Args:
        candidate: of which layer.
        seed: with which seed.
        epochs: to which epoch.
        score: whether it is then scored on test.
    """

    candidate: Candidate
    seed: int
    epochs: int
    score: bool = False


class Runs:
    """The runs of one selection.

    Args:
        config: its settings.
        ledger: what is done.
        pool: what does the rest.
        folder: in which each run has one of its own.

    Attributes:
        is_new: whether anything was trained by this object.
    """

    def __init__(self, config: SelectSettings, ledger: Ledger, pool: Pool | RayPool, folder: Path) -> None:
        self.config, self.ledger, self.pool, self.folder = config, ledger, pool, folder
        self.task: Task = config.task
        self.is_new = False

    # --- to have more of it done ---

    def train_first_seeds(self, candidates: Sequence[Candidate], epochs: int, what: str) -> None:
        """Has candidates come to an epoch with the first seed."""
        wanted = [Wanted(candidate, self.config.seeds[0], epochs) for candidate in candidates]
        self.train(wanted, f"{what}, to epoch {epochs}")

    def train(self, wanted: Sequence[Wanted], what: str) -> None:
        """Has runs come to their epochs, and to a score; those that are there already are left alone."""
        jobs = []
        for candidate, seed, epochs, score in self._longest_first(wanted):
            name = candidate.run(seed)
            if not self.is_done(candidate, seed, epochs, score):
                settings = candidate.settings(self.config, seed, epochs)
                jobs.append(Job(name, self.task.work.train, (settings, str(self.folder / name), score)))
        if jobs:
            self.is_new = True
            log.info("%s: %d runs, %s spent of %s", what, len(jobs), duration(self.ledger.seconds), self.config.budget)
        for done, outcome in enumerate(self.pool.run(jobs), start=1):
            if self.ledger.note(outcome):
                result = outcome.result
                figure = f"best {self.task.title} on {self.task.dev} {self.task.best(result['dev']):.2f}"
                figure += f" (least loss {min(result['dev_loss']):.4f})"  # which decides where figures are level
                spent = duration(self.ledger.seconds)
                log.info("%d of %d, %s: %s; %s spent", done, len(jobs), outcome.job.name, figure, spent)

    def _longest_first(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """So that at the end no process waits long for another; what is not known comes first."""

        def seconds(job: Wanted) -> float:
            pace = self.pace([job.candidate])
            left = job.epochs - len(self.of(job.candidate, job.seed).get("dev", ()))
            return math.inf if pace is None else pace.epoch * left + pace.around

        return sorted(wanted, key=seconds, reverse=True)  # stable

    # --- what is done ---

    def of(self, candidate: Candidate, seed: int) -> dict[str, Any]:
        """The run with a seed, as the ledger has it."""
        return self.ledger.runs.get(candidate.run(seed), {"error": "it was not begun"})

    def is_done(self, candidate: Candidate, seed: int, epochs: int, score: bool) -> bool:
        """Whether a run has come to so many epochs, and to a score if that is wanted, or to its end before them."""
        run = self.ledger.runs.get(candidate.run(seed), {})
        if "error" in run:
            return True
        come = len(run.get("dev", ())) >= epochs or run.get("exhausted", False)
        return bool(come and ("counts" in run or not score))

    def has_failed(self, candidate: Candidate) -> bool:
        """Whether its run with the first seed has."""
        return "error" in self.ledger.runs.get(candidate.run(self.config.seeds[0]), {})

    def epochs(self, candidate: Candidate) -> int:
        """How many it has come to with the first seed."""
        return len(self.of(candidate, self.config.seeds[0]).get("dev", ()))

    def cost(self, candidate: Candidate, seed: int, epochs: int) -> float:
        """The smaller, the better after so many epochs; infinite where it has failed or was not begun."""
        run = self.of(candidate, seed)
        if "error" in run:
            return math.inf
        early = epochs < self.config.epochs
        return self.task.early_cost(run, epochs) if early else self.task.cost(run, epochs)

    def pace(self, candidates: Sequence[Candidate]) -> Pace | None:
        """What runs with the first seed take; None where none works."""
        runs = [self.of(candidate, self.config.seeds[0]) for candidate in candidates]
        good = [run for run in runs if "error" not in run]
        return pace_of(good) if good else None

    def errors(self) -> str:
        """What went wrong, a few of it."""
        found = {run["error"] for run in self.ledger.runs.values() if "error" in run}
        return "; ".join(sorted(found)[:3])
