"""The answer of a tuning: the best settings and fast ones, their lead over the baseline, and its probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flair_nas.experiments.counts import Counts, unpack_counts
from flair_nas.experiments.ledger import Run
from flair_nas.experiments.statistics import Estimate, compare
from flair_nas.experiments.tasks import Task
from flair_nas.tune.candidates import Candidate
from flair_nas.tune.config import TuneSettings

SURE = 0.95
"""Probability from which on settings count as better."""


@dataclass(frozen=True)
class Judged:
    """A candidate with its score."""

    candidate: Candidate
    figure: float  # mean metric over seeds, such as F1
    interval: tuple[float, float]  # 95 % confidence interval of the mean
    gain: Estimate | None  # lead over the baseline; None without a baseline, and for itself


@dataclass(frozen=True)
class Answer:
    """The baseline, the best candidate, and a fast one."""

    part: str  # part of the data that scores them: test, or dev if there is no test
    judges: tuple[int, ...]  # seeds that judge
    fresh: bool  # True if these took no part in the choice
    baseline: Judged | None  # None if it failed
    others: tuple[Judged, ...]  # the best one, then the fast one, if it is another

    @property
    def recommended(self) -> Judged:
        """Candidate to use: the best one if it is surely better than the baseline, or that failed."""
        best = self.others[:1]
        if self.baseline is None or best and self.is_sure(best[0]):
            return best[0]
        return self.baseline

    @property
    def found_nothing(self) -> bool:
        """True if no candidate finds anything."""
        return not any(judged.figure for judged in (self.baseline, *self.others) if judged)  # a perplexity never is 0

    def is_sure(self, judged: Judged) -> bool:
        """Return True if a candidate is better than the baseline with a probability of 0.95, over several seeds."""
        return len(self.judges) > 1 and judged.gain is not None and judged.gain.probability >= SURE


def make_answer(
    task: Task,
    baseline: Sequence[Run],
    finalists: Sequence[tuple[Candidate, Sequence[Run]]],
    judges: Sequence[int],
    *,
    first: Candidate,
    fresh: bool,
) -> Answer:
    """Return the answer from the runs of the judges.

    Args:
        task: task of the models.
        baseline: runs of the baseline, one for each judge; empty if it failed.
        finalists: the best candidate, and a fast one if it is another, with their runs.
        judges: seeds of the runs.
        first: the baseline.
        fresh: the judges took no part in the choice.
    """
    beside = [unpack_counts(run["counts"]) for run in baseline]
    any_run = [*baseline, *(run for _, runs in finalists for run in runs)][0]

    def judged(candidate: Candidate, counts: Sequence[Counts], is_baseline: bool = False) -> Judged:
        mean = compare(counts, [], task.figure)
        low, high = (min(max(end, 0.0), task.most) for end in mean.interval())
        lead = None if is_baseline or not beside else compare(counts, beside, task.figure, task.gain(1.0, 0.0))
        return Judged(candidate, mean.value, (low, high), lead)

    return Answer(
        task.dev if any_run["test"] is None else "test",
        tuple(judges),
        fresh,
        judged(first, beside, is_baseline=True) if beside else None,
        tuple(judged(c, [unpack_counts(run["counts"]) for run in runs]) for c, runs in finalists),
    )


def summarize(answer: Answer, config: TuneSettings) -> str:
    """Return the answer in one sentence."""
    title, best = config.task.title, answer.others[0] if answer.others else None
    if answer.found_nothing:
        return f"Undecided: no settings have learnt anything, as {title} is 0 everywhere."
    if best is None:
        return "Keep the baseline: no other settings came to the end."
    name = best.candidate.name
    if best.gain is None:
        return f"Take {name}: the baseline has failed."
    if len(answer.judges) == 1:
        return "Undecided, so keep the baseline: one seed of each does not tell which is better."
    if best.gain.value <= 0:
        return f"Keep the baseline: {name}, the best of the others, is not ahead."
    words = f"by {best.gain.value:.2f} {title}, with a probability of {best.gain.probability:.2f}"
    if answer.is_sure(best):
        return f"Take {name}: it is better than the baseline {words}."
    return f"Keep the baseline: {name} is ahead {words}, where {SURE} would be sure."
