"""Random search (Li and Talwalkar, UAI 2019): strategies that draw whole cells at random and compare them."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tqdm import tqdm

from flair_nas.errors import FlairNasError
from flair_nas.search.protocols import JSON, Candidate, Objective, StepFigures
from flair_nas.search.settings import CommonSettings, StrategySettings
from flair_nas.search.strategies import candidates
from flair_nas.settings.fields import COUNT, setting

if TYPE_CHECKING:
    from torch import Tensor

FINALISTS = 10
"""Candidates of random search with shared weights that are scored on the whole validation part."""


@dataclass
class RandomSharedSettings(candidates.CandidateSettings):
    """Settings of random search with shared weights (Li and Talwalkar, 2019).

    Example:
        >>> from flair_nas import RandomSharedSettings, SearchConfig
        >>> SearchConfig(text="demo", strategy=RandomSharedSettings(samples=20)).strategy.samples
        20
    """

    samples: int = setting(100, "number of architectures to draw and compare", low=1, high=1_000_000)
    sample_segments: int = setting(10, "validation segments of the first score of a candidate, or of a choice", **COUNT)


@dataclass
class RandomIndependentSettings(candidates.TrainedSettings):
    """Settings of random search that trains each candidate on its own, or of successive halving.

    Example:
        >>> from flair_nas import RandomIndependentSettings, SearchConfig
        >>> SearchConfig(text="demo", strategy=RandomIndependentSettings(samples=16, rungs=3)).strategy.rungs
        3
    """

    samples: int = setting(100, "number of architectures to draw and compare", low=0, high=1_000_000)
    rungs: int = setting(1, "number of comparisons; after each, the better half goes on", low=1, high=20)

    def problems(self, config: CommonSettings) -> list[str]:
        """Return a sentence for too few candidates, and for what `TrainedSettings` refuses."""
        problems = super().problems(config)
        count, minimum = self.samples + len(self.candidates), 2 ** (self.rungs - 1)
        if not count:
            problems.append("samples must be at least 1 without candidates")
        elif count < minimum:
            problems.append(
                f"rungs {self.rungs} halve {count} candidates to less than one: at least {minimum} are needed, by "
                "samples and candidates"
            )
        return problems

    def extendable(self, config: CommonSettings) -> bool:
        """Return False: with more epochs, each candidate would train longer."""
        return False


class SharedRandomSearch(candidates.Candidates):
    """One set of weights, trained on a random architecture per step, that scores the candidates at the end."""

    settings: ClassVar[type[StrategySettings]] = RandomSharedSettings

    def __init__(self, objective: Objective, config: CommonSettings, settings: Any) -> None:
        super().__init__(objective, config, settings)
        self.samples: int = settings.samples

    def draw(self) -> Candidate:
        """Draw the cell of the present step; numbers below `samples` belong to the candidates."""
        return self.space.draw(self.samples + self.steps_done)

    def step(self, epoch: int, step: int) -> StepFigures:
        """Draw an architecture and update its weights."""
        self.finished = False  # of a search that is extended
        self.supernet.choose(self.draw())
        self.steps_done += 1
        loss = self.model_optimizer.step(epoch, step, self.objective.training_batch(epoch, step))
        if step + 1 == self.objective.steps(epoch):  # the epoch is evaluated with one cell
            self.supernet.choose(self.architecture(0))
        return StepFigures(loss, None, self.model_optimizer.gradient_norm)

    def finish(self, progress: bool) -> None:
        """Score all candidates on a few segments, and the best of them on the whole validation part."""
        from flair_nas.search.bilevel import validation_loss

        first: dict[int, float] = {}
        for number in tqdm(range(self.samples), "candidates", disable=not progress, leave=False):
            self.supernet.choose(self.architecture(number))
            loss = validation_loss(self.objective, range(self.own.sample_segments))
            first[number] = math.inf if math.isnan(loss) else loss
        finalists = sorted(first, key=lambda number: (first[number], number))[:FINALISTS]
        self.scores, self.figures_by = {}, {}  # those of a search that was extended are of other weights
        for number in tqdm(finalists, "finalists", disable=not progress, leave=False):
            self.supernet.choose(self.architecture(number))
            self.score(number)
        self.finished = True


class IndependentRandomSearch(candidates.TrainedCandidates):
    """Search that trains random candidates one after another.

    With several rungs it is successive halving (Jamieson and Talwalkar, 2016). Each rung takes as many steps, which its
    candidates share. The better half goes on to the next rung.

    Raises:
        FlairNasError: fewer steps than candidates.
    """

    settings = RandomIndependentSettings
    kept = (*candidates.TrainedCandidates.kept, "alive", "rung", "place", "trained", "weights", "optimizers")
    longer = "Give each candidate more steps by more --epochs or a smaller --samples."

    def __init__(self, objective: Objective, config: CommonSettings, settings: Any) -> None:
        super().__init__(objective, config, settings)
        self.samples, self.rungs = settings.samples, settings.rungs
        self.alive = list(range(self.samples + len(self.named)))
        if self._steps_of(0).stop < len(self.alive):
            raise FlairNasError(
                f"{len(self.alive)} candidates cannot share {self.total} steps in {self.rungs} "
                f"rung{'s' if self.rungs > 1 else ''}: each needs one; set a smaller --samples or more --epochs"
            )
        self.rung, self.place = 0, 0  # whose turn it is
        self.trained: dict[int, int] = {}  # steps of each candidate
        self.weights: dict[int, dict[str, Tensor]] = {}  # of those that will go on
        self.optimizers: dict[int, JSON] = {}  # their states
        counts = [-(-len(self.alive) // 2**rung) for rung in range(self.rungs)]  # candidates in each rung
        self.planned_steps = sum(len(self._steps_of(rung)) / count for rung, count in enumerate(counts))
        self.supernet.choose(self.architecture(self.candidate))

    @property
    def candidate(self) -> int:
        """Number of the candidate whose turn it is."""
        return self.alive[self.place]

    def architecture(self, number: int) -> Candidate:
        """Return the candidate of a number: the random ones come first, then those of the settings."""
        return self.named[number - self.samples] if number >= self.samples else super().architecture(number)

    def _steps_of(self, rung: int) -> range:
        """Return the steps of a rung, counted over the whole search."""
        first, last = (-(-at * self.total // self.rungs) for at in (rung, rung + 1))
        return range(first, last)

    def step(self, epoch: int, step: int) -> StepFigures:
        """Make a training step of the candidate whose turn it is."""
        rung = self.steps_done * self.rungs // self.total
        steps = self._steps_of(rung)
        place = (self.steps_done - steps.start) * len(self.alive) // len(steps)
        if (rung, place) != (self.rung, self.place):
            self._end_turn()
            if rung != self.rung:  # the better half goes on
                ranked = sorted(self.alive, key=lambda number: (self.scores[number], number))
                self.alive = sorted(ranked[: -(-len(ranked) // 2)])
                self.weights = {number: self.weights[number] for number in self.alive if number in self.weights}
                self.optimizers = {n: state for n, state in self.optimizers.items() if n in self.weights}
            self.rung, self.place = rung, place
            states = (kept.pop(self.candidate, None) for kept in (self.weights, self.optimizers))
            self.begin(self.architecture(self.candidate), *states)
        if self.scores.get(self.candidate) == math.inf:  # it has failed
            self.steps_done += 1
            return StepFigures(None, None, 0.0)
        before = self.trained.get(self.candidate, 0)
        self.trained[self.candidate] = before + 1
        return self.train(self.candidate, before)

    def _end_turn(self) -> None:
        if self.scores.get(self.candidate) == math.inf:
            return
        self.score(self.candidate)
        if self.rung + 1 < self.rungs:
            state = self.objective.module.state_dict()
            self.weights[self.candidate] = {name: value.clone() for name, value in state.items()}
            self.optimizers[self.candidate] = copy.deepcopy(self.model_optimizer.optimizer.state_dict())

    def end_epoch(self) -> JSON:
        """Return the best score of the candidates that are left, and the rung."""
        return {**super().end_epoch(), "rung": self.rung + 1, "alive": len(self.alive)}

    def compared(self) -> dict[int, float]:
        """Return the scores of the candidates that are left, by number."""
        return {number: self.scores[number] for number in self.alive if number in self.scores}

    def finish(self, progress: bool) -> None:
        """Score the last candidate."""
        self._end_turn()
        self.finished = True

    def load_state_dict(self, state: JSON) -> None:
        """Go on with the candidate whose turn it was."""
        super().load_state_dict({"optimizers": {}} | state)  # former checkpoints have none
        self.supernet.choose(self.architecture(self.candidate))
