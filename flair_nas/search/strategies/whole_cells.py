"""Strategies that draw whole cells at random (Li and Talwalkar, UAI 2019) and compare them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any

from flair_nas.genotype import Genotype, random_genotype
from flair_nas.nn.init import default_range
from flair_nas.search.bilevel import Reduce
from flair_nas.search.config import SearchSettings
from flair_nas.search.health import judge_scores
from flair_nas.search.model_update import ModelOptimizer
from flair_nas.search.protocols import JSON, Objective, Strategy
from flair_nas.settings.fields import changed
from flair_nas.supernet import InterCellSupernet


def draw(config: SearchSettings, number: int) -> Genotype:
    """The architecture of that number, of the space that the settings describe."""
    seed = config.seed * 1_000_003 + number  # any two pairs of small numbers give two seeds
    drawn = random_genotype(seed, config.nodes, config.edges_per_node, config.history, config.gate_links)
    return dataclasses.replace(drawn, gate=config.gate, carry=config.carry)


_OF_GRADIENTS = (
    *("sampling", "temperature", "temperature_end", "selection", "selection_steps", "most_identity"),
    *("warmup_epochs", "arch_clip", "arch_beta2", "fresh_moments"),
)
"""Settings that only a gradient has a use for."""


class Candidates(Strategy):
    """A search among random cells: one supernet that runs one architecture at a time, and the scores so far."""

    finishing = "comparing the candidates"
    bears_nan = True  # a random cell has no normalisation, and one that fails is no reason to stop

    @staticmethod
    def contradictions(config: SearchSettings) -> list[str]:
        """Return what is wrong with the settings: those of a gradient, and nothing to compare."""
        found, name = [], config.strategy
        if config.order == 2:
            found.append(f"order 2 belongs to strategy gradient, not {name}")
        if config.learn == "inter":
            found.append(f"strategy {name} draws whole cells: learn must be intra or joint")
        if config.fixed is not None:
            found.append(f"strategy {name} draws whole cells: fixed must be left out")
        found += [f"{setting} belongs to strategy gradient, not {name}" for setting in changed(config, *_OF_GRADIENTS)]
        if config.avoid_first:
            found.append(f"strategy {name} draws all edges alike: avoid_first must be left out")
        if config.samples == 0 and not config.candidates:
            found.append(f"samples must be at least 1 for strategy {name}")
        return found

    @staticmethod
    def range_of(width: int) -> float:
        """Return the initialisation bound of a cell: nothing is mixed or normalised."""
        return default_range(width)

    def __init__(self, objective: Objective, config: SearchSettings, reduce: Reduce | None) -> None:
        self.objective, self.config, self.reduce = objective, config, reduce
        assert not isinstance(objective.supernet, InterCellSupernet)
        self.supernet, self.samples = objective.supernet, config.samples
        self.model_optimizer = ModelOptimizer(objective, config, reduce)
        self.scores: dict[int, float] = {}  # by number of the architecture, the smaller the better
        self.finished = False
        self.steps_done = 0

    def steps(self, epoch: int) -> int:
        """Those of the objective: one pass over the training data."""
        return self.objective.steps(epoch)

    def figures(self) -> dict[str, Any]:
        """The best score so far."""
        best = min(self.scores.values(), default=math.inf)
        return {"candidates": len(self.scores), **self.objective.measure.best(best)}

    def score(self) -> float:
        """That of the architecture at hand, on the whole validation part; one that is not a number is the worst."""
        cost = self.objective.measure.cost(self.objective.evaluate())
        return math.inf if math.isnan(cost) else cost

    def cost(self, history: Sequence[JSON]) -> float | None:
        """Return that of the best candidate, once all are compared."""
        return min(self._compared_scores()) if self.finished else None

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return how far the best is ahead, once all are compared."""
        if not self.finished:
            return ""
        unit = "loss" if self.objective.measure.of_loss else self.objective.measure.title
        return judge_scores(self._compared_scores(), unit)

    def _compared_scores(self) -> list[float]:
        return [self.scores[number] for number in self.compared() if number in self.scores]

    def compared(self) -> Collection[int]:
        """The candidates that the last comparison was between."""
        return self.scores

    def converged(self) -> bool:
        """Never: every candidate counts."""
        return False

    def genotype(self) -> Genotype:
        """The best candidate; before any is scored, the one at hand."""
        best = min(self.scores, key=lambda number: (self.scores[number], number), default=0)
        return self.architecture(best)

    def architecture(self, number: int) -> Genotype:
        """The candidate of that number."""
        return draw(self.config, number)

    def state_dict(self) -> dict[str, Any]:
        """Scores and place."""
        return {"scores": dict(self.scores), "steps_done": self.steps_done, "finished": self.finished}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts them back."""
        self.scores, self.steps_done = dict(state["scores"]), state["steps_done"]
        self.finished = state.get("finished", False)
