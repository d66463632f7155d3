"""Candidates of a tuning, and all that its ledger knows of them."""

from __future__ import annotations

import math

from flair_nas.experiments.ledger import Ledger, Run
from flair_nas.tune.candidates import BASELINE, Candidate, make_candidate
from flair_nas.tune.config import TuneSettings
from flair_nas.tune.sampler import Known


class Trials:
    """Candidates of a tuning, in the order in which they were drawn, and their runs."""

    def __init__(self, config: TuneSettings, ledger: Ledger) -> None:
        self.config, self.ledger = config, ledger
        self.candidates = [make_candidate(config, point) for point in ledger.points]

    @property
    def baseline(self) -> Candidate:
        """The candidate of the settings themselves."""
        return self.candidates[BASELINE]

    @property
    def rungs(self) -> list[int]:
        """Epochs after which candidates are compared."""
        return self.config.task.rule.rungs(self.config.epochs)

    def run(self, candidate: Candidate, seed: int | None = None) -> Run:
        """Return the run with a seed, by default the first; empty if it was not begun."""
        return self.ledger.runs.get(candidate.run(self.config.seeds[0] if seed is None else seed), {})

    def has_ended(self, candidate: Candidate, seed: int | None = None) -> bool:
        """Return True if a run came to its last epoch, or stopped learning before."""
        run = self.run(candidate, seed)
        return len(run.get("dev", ())) >= self.config.epochs or run.get("exhausted", False)

    def finishers(self) -> list[Candidate]:
        """Return the candidates but the baseline whose first run has ended, best first."""
        seed, epochs, cost = self.config.seeds[0], self.config.epochs, self.config.task.cost
        ended = [c for c in self.candidates[BASELINE + 1 :] if self.has_ended(c)]
        return sorted(ended, key=lambda c: cost(self.run(c, seed), epochs))

    def milliseconds(self, candidate: Candidate) -> float:
        """Return the milliseconds that a sentence takes on one thread; infinity if that is not known."""
        beside, own = (self.ledger.runs.get(c.shape, {}) for c in (self.baseline, candidate))
        return beside["ms"] * own["ratio"] if "ms" in beside and "ratio" in own else math.inf

    def errors(self) -> str:
        """Return a few of the errors."""
        return "; ".join(sorted({run["error"] for run in self.ledger.runs.values() if "error" in run})[:3])

    def count_passed(self, candidate: Candidate) -> int:
        """Return the number of rungs that a candidate has reached with the first seed."""
        return sum(len(self.run(candidate).get("dev", ())) >= epochs for epochs in self.rungs)

    def known(self, candidate: Candidate) -> Known:
        """Return what a sampler may know of a candidate."""
        run = self.run(candidate)
        dev, best = run.get("dev", ()), self.config.task.best
        figures = {rung: best(dev[:epochs]) for rung, epochs in enumerate(self.rungs) if len(dev) >= epochs}
        if run.get("exhausted"):
            figures[len(self.rungs) - 1] = best(dev)
        return Known(candidate.point, figures, self.has_ended(candidate), "error" in run)
