"""Random search (Li and Talwalkar, UAI 2019): with shared weights, with short training of each; plain sampling."""

from __future__ import annotations

import dataclasses
import logging
import math
from typing import Any

import torch
from tqdm import tqdm

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype, random_genotype
from flair_nas.search.bilevel import Reduce
from flair_nas.search.config import SearchConfig
from flair_nas.search.descent import NotFinite, WeightDescent
from flair_nas.search.objectives import Objective
from flair_nas.search.strategies import StepFigures, Strategy
from flair_nas.supernet import CellSupernet

log = logging.getLogger("flair_nas")

FINALISTS = 10
"""Candidates of shared random search that are scored on the whole validation part."""


def draw(config: SearchConfig, number: int) -> Genotype:
    """The architecture of that number, of the space that the settings describe."""
    seed = config.seed * 1_000_003 + number  # any two pairs of small numbers give two seeds
    drawn = random_genotype(seed, config.nodes, config.edges_per_node, config.history)
    return dataclasses.replace(drawn, gate=config.gate)


class _WholeCells(Strategy):
    """What all strategies share that draw whole cells, and learn no architecture weights."""

    bears_nan = True  # a random cell has no normalisation, and one that fails is no reason to stop

    @staticmethod
    def contradictions(config: SearchConfig) -> list[str]:
        """Settings that belong to a gradient."""
        found, name = [], config.strategy
        if config.order == 2:
            found.append(f"order 2 belongs to strategy gradient, not {name}")
        if config.learn == "inter":
            found.append(f"strategy {name} draws whole cells: learn must be intra or joint")
        if config.fixed is not None:
            found.append(f"strategy {name} draws whole cells: fixed must be left out")
        if config.avoid_first:
            found.append(f"strategy {name} draws all edges alike: avoid_first must be left out")
        return found


class _Candidates(_WholeCells):
    """What both searches share: one supernet that runs one architecture at a time, and the scores so far."""

    finishing = "comparing the candidates"

    def __init__(self, objective: Objective, config: SearchConfig, reduce: Reduce | None) -> None:
        self.objective, self.config, self.reduce = objective, config, reduce
        assert isinstance(objective.supernet, CellSupernet)
        self.supernet = objective.supernet
        self.descent = WeightDescent(objective, config, reduce)
        self.scores: dict[int, float] = {}  # by number of the architecture, the smaller the better
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

    def converged(self) -> bool:
        """Never: every candidate counts."""
        return False

    def genotype(self) -> Genotype:
        """The best candidate; before any is scored, the one at hand."""
        best = min(self.scores, key=lambda number: (self.scores[number], number), default=0)
        return draw(self.config, best)

    def state_dict(self) -> dict[str, Any]:
        """Scores and place."""
        return {"scores": dict(self.scores), "steps_done": self.steps_done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts them back."""
        self.scores, self.steps_done = dict(state["scores"]), state["steps_done"]


class SharedRandomSearch(_Candidates):
    """One set of weights, trained on another random architecture at each step; then candidates are compared with it.

    Args:
        objective: losses and supernet.
        config: the settings.
        reduce: averages tensors over processes, in place.
    """

    def step(self, epoch: int, step: int) -> StepFigures:
        """Draws an architecture and descends its training loss."""
        # numbers below `samples` belong to the candidates
        self.supernet.choose(draw(self.config, self.config.samples + self.steps_done))
        self.steps_done += 1
        loss = self.descent.step(epoch, step, self.objective.training_batch(epoch, step))
        self.supernet.choose(draw(self.config, 0))
        return StepFigures(loss, None, self.descent.gradient_norm)

    def finish(self, progress: bool) -> None:
        """Scores all candidates on a few segments, and the best of them on the whole validation part."""
        module = self.objective.module.eval()
        first: dict[int, float] = {}
        for number in tqdm(range(self.config.samples), "candidates", disable=not progress, leave=False):
            self.supernet.choose(draw(self.config, number))
            total = torch.zeros((), dtype=torch.float64)
            with torch.no_grad():
                for segment in range(self.config.sample_segments):
                    for batch in self.objective.validation_batch(1, segment):
                        total += float(self.objective.validation_loss(batch, keep_state=True))
            if self.reduce is not None:
                self.reduce([total])
            first[number] = math.inf if math.isnan(total) else float(total)
        finalists = sorted(first, key=lambda number: (first[number], number))[:FINALISTS]
        scores: dict[int, float] = {}  # those of a search that was extended are of other weights
        for number in tqdm(finalists, "finalists", disable=not progress, leave=False):
            self.supernet.choose(draw(self.config, number))
            scores[number] = self.score()
        self.scores = scores
        module.train()


class IndependentRandomSearch(_Candidates):
    """Each candidate is trained on its own, from the same first weights, for its share of all steps.

    Args:
        objective: losses and supernet.
        config: the settings.
        reduce: averages tensors over processes, in place.

    Raises:
        FlairNasError: fewer steps than candidates.
    """

    extendable = False  # with more epochs, each candidate would have a longer share

    @staticmethod
    def contradictions(config: SearchConfig) -> list[str]:
        """A schedule would favour the first candidates, too."""
        found = _Candidates.contradictions(config)
        if config.schedule != "constant":
            found.append(f"strategy {config.strategy} trains candidates alike: schedule must be constant")
        return found

    def __init__(self, objective: Objective, config: SearchConfig, reduce: Reduce | None) -> None:
        super().__init__(objective, config, reduce)
        self.first_weights = {name: value.clone() for name, value in objective.module.state_dict().items()}
        self.total = sum(self.steps(epoch) for epoch in range(1, config.epochs + 1))
        if self.total < config.samples:
            raise FlairNasError(
                f"{config.samples} samples cannot share {self.total} steps: each needs one; set fewer samples or more "
                "epochs"
            )
        self.candidate = 0
        self.supernet.choose(draw(config, 0))

    def step(self, epoch: int, step: int) -> StepFigures:
        """A training step of the candidate whose turn it is."""
        candidate = self.steps_done * self.config.samples // self.total
        if candidate != self.candidate:
            self._score()
            self.candidate = candidate
            self.supernet.choose(draw(self.config, candidate))
            self.objective.module.load_state_dict(self.first_weights)
            self.objective.load_state_dict({})
        self.steps_done += 1
        if self.candidate in self.scores:  # it has failed
            return StepFigures(None, None, 0.0)
        try:
            loss = self.descent.step(epoch, step, self.objective.training_batch(epoch, step))
        except NotFinite as error:  # one bad architecture does not end the search
            log.warning("candidate %d counts as the worst: %s", self.candidate, error)
            self.scores[self.candidate] = math.inf
            return StepFigures(None, None, 0.0)
        return StepFigures(loss, None, self.descent.gradient_norm)

    def _score(self) -> None:
        if self.candidate not in self.scores:
            self.scores[self.candidate] = self.score()

    def finish(self, progress: bool) -> None:
        """Scores the last candidate."""
        self._score()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on with the candidate whose turn it was."""
        super().load_state_dict(state)
        self.candidate = state["candidate"]
        self.first_weights = state["first_weights"]
        self.supernet.choose(draw(self.config, self.candidate))

    def state_dict(self) -> dict[str, Any]:
        """Scores, place, and the weights that each candidate begins with."""
        return {**super().state_dict(), "candidate": self.candidate, "first_weights": self.first_weights}


class Sampling(_WholeCells):
    """One random architecture, untrained: what every search must beat.

    Args:
        objective: not used.
        config: the settings.
        reduce: not used.
    """

    def __init__(self, objective: Objective, config: SearchConfig, reduce: Reduce | None) -> None:
        self.config = config

    def steps(self, epoch: int) -> int:
        """None."""
        return 0

    def step(self, epoch: int, step: int) -> StepFigures:
        """There is none."""
        raise NotImplementedError("sampling has no steps")

    def figures(self) -> dict[str, Any]:
        """None."""
        return {}

    def converged(self) -> bool:
        """At once."""
        return True

    def finish(self, progress: bool) -> None:
        """Nothing is left to do."""

    def genotype(self) -> Genotype:
        """The architecture that the seed draws."""
        return draw(self.config, 0)

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing."""
