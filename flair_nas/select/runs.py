"""The runs of a selection: what they have come to, as the ledger has it, and having more of it done."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flair_nas.errors import FlairNasError
from flair_nas.experiments.jobs import Job, Pool
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.tasks import Task
from flair_nas.runs.duration import duration
from flair_nas.select.candidates import Candidate, Layer, lstm_of_size
from flair_nas.select.config import SelectSettings
from flair_nas.select.schedule import Pace, pace_of

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


def wanted_of(candidates: Sequence[Candidate], seeds: Sequence[int], epochs: int, score: bool = False) -> list[Wanted]:
    """The runs of all candidates with the first seed, then with the next ones."""
    return [Wanted(candidate, seed, epochs, score) for seed in seeds for candidate in candidates]


class Runs:
    """The runs of one selection.

    Args:
        config: its settings.
        ledger: what is done.
        pool: what does the rest.
        folder: in which each run has one of its own.

    Attributes:
        is_new: whether anything was trained by this object.
        estimates: entries of a ledger of one epoch, which tell the pace before anything is trained.
        is_prepared: whether all words are embedded that are embedded once.
    """

    def __init__(self, config: SelectSettings, ledger: Ledger, pool: Pool, folder: Path) -> None:
        self.config, self.ledger, self.pool, self.folder = config, ledger, pool, folder
        self.task: Task = config.task
        self.is_new = False
        self.estimates: list[dict[str, Any]] = []
        self.is_prepared = False

    def with_settings(self, config: SelectSettings) -> Runs:
        """Return the runs of the same folder under other settings; estimates are shared."""
        found = Runs(config, self.ledger, self.pool, self.folder)
        found.estimates = self.estimates
        return found

    # --- to have more of it done ---

    def train_first_seeds(self, candidates: Sequence[Candidate], epochs: int, what: str) -> None:
        """Has candidates come to an epoch with the first seed."""
        self.train(wanted_of(candidates, self.config.seeds[:1], epochs), f"{what}, to epoch {epochs}")

    def train(self, wanted: Sequence[Wanted], what: str, until: float = math.inf) -> None:
        """Has runs come to their epochs, and to a score; those that are there already are left alone.

        Args:
            wanted: the runs.
            what: it is, in words.
            until: seconds of the selection after which none should be at work; from the first that would be, none is
                begun that was not begun before.
        """
        jobs, seconds = [], dict[str, float]()
        for run in self._in_order(self.to_do(wanted)):
            candidate, seed, epochs, score = run
            name, settings = candidate.run(seed), candidate.settings(self.config, seed, epochs)
            jobs.append(Job(name, self.task.work.train, (settings, str(self.folder / name), score)))
            seconds[name] = self.seconds(run)

        def may_begin(job: Job) -> bool:
            stopped = job.name not in self.ledger.runs and (self.folder / job.name).exists()  # how late is not known
            return stopped or self.ledger.seconds + seconds[job.name] <= until

        if jobs:
            log.info("%s: %d runs, %s spent of %s", what, len(jobs), duration(self.ledger.seconds), self.config.budget)
        for done, outcome in enumerate(self.pool.run(jobs, may_begin), start=1):
            self.is_new = True
            if self.ledger.note(outcome):
                result = outcome.result
                figure = f"best {self.task.title} on {self.task.dev} {self.task.best(result['dev']):.2f}"
                figure += f" (least loss {min(result['dev_loss']):.4f})"  # which decides where figures are level
                spent = duration(self.ledger.seconds)
                log.info("%d of %d, %s: %s; %s spent", done, len(jobs), outcome.job.name, figure, spent)

    def estimated_pace(self, candidates: Sequence[Candidate]) -> Pace:
        """Return the pace by a few batches, which are timed once."""
        if not self.estimates:
            self._estimate(candidates)
        return pace_of(self.estimates)

    @property
    def embedding_seconds(self) -> float:
        """The estimated time to embed all words; 0 once that is done."""
        return 0.0 if self.is_prepared else max((run["embedding_seconds"] for run in self.estimates), default=0.0)

    def _estimate(self, candidates: Sequence[Candidate]) -> None:
        """Time a few batches of the first layer and of the last, in the processes that will train them."""
        two = list({candidate.layer: candidate for candidate in (candidates[0], candidates[-1])}.values())
        log.info("a few batches of %s tell what an epoch takes", " and ".join(c.layer.name for c in two))
        settings = [candidate.settings(self.config, self.config.seeds[0], 1) for candidate in two]
        jobs = [Job(c.name, self.task.work.estimate, (given,)) for c, given in zip(two, settings)]
        outcomes = list(self.pool.run(jobs))
        self.estimates += [outcome.result for outcome in outcomes if outcome.error is None]
        if not self.estimates:
            raise FlairNasError(f"no layer works: {outcomes[0].error}") from outcomes[0].error

    def _in_order(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Seed by seed, as what one has is of no use for the comparison before all have it; the longest of each first.

        So at the end no process waits long for another. What takes nobody knows how long comes before that.
        """
        seeds = list(dict.fromkeys(run.seed for run in wanted))
        return sorted(wanted, key=lambda run: (seeds.index(run.seed), -self.seconds(run)))  # stable

    # --- what is done, and what the rest takes ---

    def to_do(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Those that have not come to their epochs, or to a score."""
        return [run for run in wanted if not self.is_done(*run)]

    def seconds(self, run: Wanted) -> float:
        """What one takes from where it is, by the pace of the first seed; infinite where that is not known."""
        pace, first = self.pace([run.candidate]), self.of(run.candidate, self.config.seeds[0])
        until = len(first["dev"]) if first.get("exhausted") else run.epochs
        reached = len(self.of(run.candidate, run.seed).get("dev", ()))
        return math.inf if pace is None else pace.epoch * max(0, until - reached) + pace.around

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

    def has_failed(self, candidate: Candidate, seed: int | None = None) -> bool:
        """Whether its run with a seed has, the first one unless another is given."""
        return "error" in self.ledger.runs.get(candidate.run(self.config.seeds[0] if seed is None else seed), {})

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

    def to_search(self) -> dict[str, str]:
        """Return the searches that have not ended, by their names in the ledger."""
        return {name: by for name, by in self._searches().items() if name not in self.ledger.runs}

    def searched(self) -> list[Layer]:
        """Return the cells that were searched; a search that failed gives none."""
        runs = {by: self.ledger.runs.get(name, {}) for name, by in self._searches().items()}
        size = self.config.hidden_size
        return [Layer(f"found by {by}", run["genotype"], size) for by, run in runs.items() if "genotype" in run]

    def _searches(self) -> dict[str, str]:
        return {f"search-{by}-{self.config.search_epochs}-epochs": by for by in self.config.searches}

    def matched(self) -> list[Layer]:
        """The LSTMs that were trained because they were as large as the largest layer of their time."""
        found = (re.match(r"lstm-(\d+)-[0-9a-f]{6}-rate", name) for name in self.ledger.runs)
        return [lstm_of_size(size) for size in sorted({int(match[1]) for match in found if match})]

    def others(self, candidates: Sequence[Candidate]) -> list[str]:
        """What was trained, and is none of these."""
        trained = {name.rpartition("-seed")[0] for name, run in self.ledger.runs.items() if "dev" in run}
        return sorted(trained - {candidate.name for candidate in candidates})

    def errors(self) -> str:
        """What went wrong, a few of it."""
        found = {run["error"] for run in self.ledger.runs.values() if "error" in run}
        return "; ".join(sorted(found)[:3])
