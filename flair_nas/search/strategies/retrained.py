"""Searches whose last epochs train the derived genotype alone, as each stage of CAS does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flair_nas.genotype import Genotype
from flair_nas.search.bilevel import ModelOptimizer
from flair_nas.search.protocols import JSON, Objective, StepFigures, Strategy
from flair_nas.search.settings import CommonSettings, StrategySettings


class Retrained(Strategy):
    """Strategy that trains the genotype of another one alone in the last epochs, with the same weights.

    A falling learning rate begins anew with these epochs. The search is judged by its genotype, trained alone.

    Args:
        search: the other strategy.
        searched: number of its epochs.
    """

    settings = StrategySettings  # those of the search

    def __init__(self, search: Strategy, searched: int, objective: Objective, config: CommonSettings) -> None:
        self.search, self.searched, self.objective = search, searched, objective
        self.bears_nan, self.finishing = search.bears_nan, search.finishing
        self.optimizer = ModelOptimizer(objective, config)
        self.alone: Genotype | None = None  # the genotype that trains alone

    def step(self, epoch: int, step: int) -> StepFigures:
        """Make a step of the search, or of the genotype alone."""
        if epoch <= self.searched:
            return self.search.step(epoch, step)
        if self.alone is None:
            self.search.finish(False)
            self._choose(self.search.genotype())
        self.optimizer.done = (epoch - 1 - self.searched) / (self.optimizer.config.epochs - self.searched)
        loss = self.optimizer.step(epoch, step, self.objective.training_batch(epoch, step))
        return StepFigures(loss, None, self.optimizer.gradient_norm)

    def _choose(self, genotype: Genotype) -> None:
        """Let the supernet run a genotype alone, in training mode."""
        self.alone = genotype
        supernet: Any = self.objective.supernet
        supernet.choose(genotype)
        self.objective.module.train()

    def end_epoch(self) -> JSON:
        """Return the figures of the search, or the sign that its genotype trains alone."""
        return self.search.end_epoch() if self.alone is None else {"alone": True}

    def genotype(self) -> Genotype:
        """Return the genotype of the search."""
        return self.alone or self.search.genotype()

    def state_dict(self) -> JSON:
        """Return the state of the search, and its genotype."""
        return {"search": self.search.state_dict(), "found": self.alone and self.alone.to_json()}

    def load_state_dict(self, state: JSON) -> None:
        """Restore a state."""
        self.search.load_state_dict(state["search"])
        if state["found"]:
            self._choose(Genotype.from_json(state["found"]))

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return the verdict of the search."""
        return self.search.verdict(history[: self.searched])

    def end_seconds(self) -> float:
        """Return the seconds that the search takes at the end of an epoch."""
        return self.search.end_seconds()
