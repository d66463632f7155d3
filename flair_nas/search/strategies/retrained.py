"""A search whose last epochs train the derived genotype alone, as each stage of CAS does."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from flair_nas.genotype import Genotype
from flair_nas.search.bilevel import ModelOptimizer, Reduce
from flair_nas.search.config import SearchSettings
from flair_nas.search.protocols import JSON, Objective, StepFigures, Strategy
from flair_nas.search.registry import strategy_class


class Retrained(Strategy):
    """Strategy of the settings for all epochs but the last `retrain_epochs`; then its genotype with the same weights.

    A falling learning rate begins anew with these.
    """

    def __init__(self, objective: Objective, config: SearchSettings, reduce: Reduce | None) -> None:
        self.objective, self.config = objective, config
        self.searched = config.epochs - config.retrain_epochs
        of_search = dataclasses.replace(config, epochs=self.searched, retrain_epochs=0)
        self.search = strategy_class(config.strategy)(objective, of_search, reduce)
        self.bears_nan, self.finishing = self.search.bears_nan, self.search.finishing  # type: ignore[misc]
        self.measure_end = self.search.measure_end  # type: ignore[method-assign]
        self.optimizer = ModelOptimizer(objective, config, reduce)
        self.found: Genotype | None = None

    @staticmethod
    def method(config: SearchSettings) -> str:
        """Return the method of the search."""
        return strategy_class(config.strategy).method(config)

    def step(self, epoch: int, step: int) -> StepFigures:
        """Make a step of the search, or of the genotype alone."""
        if epoch <= self.searched:
            return self.search.step(epoch, step)
        if self.found is None:
            self.search.finish(False)
            self._choose(self.search.genotype())
        self.optimizer.done = (epoch - 1 - self.searched) / self.config.retrain_epochs
        loss = self.optimizer.step(epoch, step, self.objective.training_batch(epoch, step))
        return StepFigures(loss, None, self.optimizer.gradient_norm)

    def _choose(self, genotype: Genotype) -> None:
        self.found = genotype
        supernet: Any = self.objective.supernet
        supernet.choose(genotype)
        self.objective.module.train()

    def figures(self) -> JSON:
        """Return the figures of the search."""
        return self.search.figures() if self.found is None else {}

    def end_epoch(self) -> JSON:
        """Return the figures of the search, or that the genotype trains alone."""
        return self.search.end_epoch() if self.found is None else {"alone": True}

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return what the search says of its genotype."""
        return self.search.verdict(history[: self.searched])

    def converged(self) -> bool:
        """Return False: the genotype has all of its epochs."""
        return False

    def finish(self, progress: bool) -> None:
        """Do nothing: the search was finished before its genotype trained."""

    def genotype(self) -> Genotype:
        """Return the genotype of the search."""
        return self.found or self.search.genotype()

    def state_dict(self) -> JSON:
        """Return the state of the search, and its genotype."""
        return {"search": self.search.state_dict(), "found": self.found and self.found.to_json()}

    def load_state_dict(self, state: JSON) -> None:
        """Restore a state."""
        self.search.load_state_dict(state["search"])
        if state["found"]:
            self._choose(Genotype.from_json(state["found"]))
