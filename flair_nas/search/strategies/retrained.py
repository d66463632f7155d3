"""A search whose last epochs train the derived genotype alone, as each stage of CAS does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flair_nas.genotype import Genotype
from flair_nas.search.bilevel import ModelOptimizer
from flair_nas.search.protocols import JSON, Description, Objective, Reduce, StepFigures, Strategy
from flair_nas.search.settings import CommonSettings, StrategySettings


class Retrained(Strategy):
    """Strategy for all epochs but the last `retrain_epochs`; then its genotype with the same weights.

    A falling learning rate begins anew with these.

    Args:
        search: the strategy.
        searched: number of its epochs.
        objective: model, data and losses.
        config: the settings.
        reduce: averages tensors over processes; None for one process.
    """

    settings = StrategySettings  # those of the search

    def __init__(
        self, search: Strategy, searched: int, objective: Objective, config: CommonSettings, reduce: Reduce | None
    ) -> None:
        self.search, self.searched, self.objective = search, searched, objective
        self.description = _RetrainedDescription(self)
        self.optimizer = ModelOptimizer(objective, config, reduce)
        self.found: Genotype | None = None

    def step(self, epoch: int, step: int) -> StepFigures:
        """Make a step of the search, or of the genotype alone."""
        if epoch <= self.searched:
            return self.search.step(epoch, step)
        if self.found is None:
            self.search.finish(False)
            self._choose(self.search.genotype())
        self.optimizer.done = (epoch - 1 - self.searched) / (self.optimizer.config.epochs - self.searched)
        loss = self.optimizer.step(epoch, step, self.objective.training_batch(epoch, step))
        return StepFigures(loss, None, self.optimizer.gradient_norm)

    def _choose(self, genotype: Genotype) -> None:
        self.found = genotype
        supernet: Any = self.objective.supernet
        supernet.choose(genotype)
        self.objective.module.train()

    def end_epoch(self) -> JSON:
        """Return the figures of the search, or that the genotype trains alone."""
        return self.search.end_epoch() if self.found is None else {"alone": True}

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


class _RetrainedDescription(Description):
    """Description of a search whose genotype was trained alone, on which it is judged."""

    def __init__(self, strategy: Retrained) -> None:
        self.strategy, of_search = strategy, strategy.search.description
        self.bears_nan, self.finishing = of_search.bears_nan, of_search.finishing

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return what the search says of its genotype."""
        return self.strategy.search.description.verdict(history[: self.strategy.searched])

    def end_seconds(self) -> float:
        """Measure what the search does at the end of an epoch."""
        return self.strategy.search.description.end_seconds()
