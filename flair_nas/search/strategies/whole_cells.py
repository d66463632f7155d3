"""Strategies that draw whole cells at random (Li and Talwalkar, UAI 2019) and compare them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence

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
    """Draw the architecture of a number, from the space that the settings describe."""
    seed = config.seed * 1_000_003 + number  # any two pairs of small numbers give two seeds
    drawn = random_genotype(seed, config.nodes, config.edges_per_node, config.history, config.gate_links)
    return dataclasses.replace(drawn, gate=config.gate, carry=config.carry)


_GRADIENT_SETTINGS = (
    *("sampling", "temperature", "temperature_end", "selection", "selection_steps", "most_identity"),
    *("warmup_epochs", "arch_clip", "arch_beta2", "fresh_moments"),
)
"""Settings of strategy gradient alone."""


class Candidates(Strategy):
    """Search among random cells: one supernet that runs one architecture at a time, and the scores so far."""

    finishing = "comparing the candidates"
    bears_nan = True  # a random cell has no normalisation, and one that fails is no reason to stop

    @staticmethod
    def contradictions(config: SearchSettings) -> list[str]:
        """Return a sentence for each setting of a gradient, and for nothing to compare."""
        name = config.strategy
        checks = {
            f"order 2 belongs to strategy gradient, not {name}": config.order == 2,
            f"strategy {name} draws whole cells: learn must be intra or joint": config.learn == "inter",
            f"strategy {name} draws whole cells: fixed must be left out": config.fixed is not None,
            f"strategy {name} draws all edges alike: avoid_first must be left out": config.avoid_first,
            f"samples must be at least 1 for strategy {name}": config.samples == 0 and not config.candidates,
        }
        settings = changed(config, *_GRADIENT_SETTINGS)
        return [
            *(message for message, wrong in checks.items() if wrong),
            *(f"{setting} belongs to strategy gradient, not {name}" for setting in settings),
        ]

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

    def figures(self) -> JSON:
        """Return the best score so far."""
        best = min(self.scores.values(), default=math.inf)
        return {"candidates": len(self.scores), **self.objective.metric.best(best)}

    def score(self) -> float:
        """Score the chosen architecture on the whole validation part; not a number is the worst."""
        cost = self.objective.metric.cost(self.objective.evaluate())
        return math.inf if math.isnan(cost) else cost

    def cost(self, history: Sequence[JSON]) -> float | None:
        """Return the cost of the best candidate, once all are compared."""
        return min(self._compared_scores()) if self.finished else None

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return a sentence on the lead of the best candidate, once all are compared."""
        if not self.finished:
            return ""
        unit = "loss" if self.objective.metric.from_loss else self.objective.metric.title
        return judge_scores(self._compared_scores(), unit)

    def _compared_scores(self) -> list[float]:
        return [self.scores[number] for number in self.compared() if number in self.scores]

    def compared(self) -> Collection[int]:
        """Return the candidates of the last comparison."""
        return self.scores

    def converged(self) -> bool:
        """Return False: every candidate counts."""
        return False

    def genotype(self) -> Genotype:
        """Return the best candidate; before any is scored, the first."""
        best = min(self.scores, key=lambda number: (self.scores[number], number), default=0)
        return self.architecture(best)

    def architecture(self, number: int) -> Genotype:
        """Return the candidate of a number."""
        return draw(self.config, number)

    def state_dict(self) -> JSON:
        """Return scores and progress."""
        return {"scores": dict(self.scores), "steps_done": self.steps_done, "finished": self.finished}

    def load_state_dict(self, state: JSON) -> None:
        """Restore scores and progress."""
        self.scores, self.steps_done = dict(state["scores"]), state["steps_done"]
        self.finished = state.get("finished", False)  # older searches did not keep it
