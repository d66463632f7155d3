"""Basis of strategies that compare whole cells: one supernet runs one architecture at a time."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flair_nas.errors import FlairNasError, NotFiniteError
from flair_nas.runs.metric import Metric
from flair_nas.search.health import judge_scores
from flair_nas.search.protocols import JSON, Candidate, Objective, StepFigures, Strategy, carry_step
from flair_nas.search.settings import CommonSettings, StrategySettings
from flair_nas.search.space import make_space
from flair_nas.settings.fields import setting

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("flair_nas")


@dataclass
class CandidateSettings(StrategySettings):
    """Settings of strategies that compare whole cells."""

    def problems(self, config: CommonSettings) -> list[str]:
        """Return a sentence if a part is fixed: whole cells are drawn."""
        wrong = {
            "learn must be intra or joint": config.learn == "inter",
            "fixed must be left out": config.fixed is not None,
        }
        return [f"the strategy draws whole cells: {message}" for message in wrong if wrong[message]]


@dataclass
class TrainedSettings(CandidateSettings):
    """Settings of strategies that train each candidate on its own."""

    candidates: list[str] = setting(
        [], "genotypes: random-independent compares them besides the random ones; others begin with them"
    )
    trained_alone = True

    def problems(self, config: CommonSettings) -> list[str]:
        """Return a sentence for candidates outside the space."""
        problems = super().problems(config)
        for text in self.candidates:
            try:
                make_space(config).parse(text)
            except FlairNasError as error:
                problems.append(f"candidates: {error}")
        return problems


class Candidates(Strategy):
    """Search among whole cells: one supernet that runs one architecture at a time, and the scores so far.

    It is judged by its best candidate, once all are compared.

    Attributes:
        kept: names of the attributes that a checkpoint holds.
        kept_cells: names of those that are lists of genotypes.
    """

    bears_nan = True  # a cell has no normalisation, and one that fails is no reason to stop
    finishing = "comparing the candidates"
    kept: tuple[str, ...] = ("steps_done", "finished", "scores", "figures_by")
    kept_cells: tuple[str, ...] = ()

    def __init__(self, objective: Objective, config: CommonSettings, settings: Any) -> None:
        from flair_nas.search.bilevel import ModelOptimizer

        self.objective, self.config, self.own = objective, config, settings
        self.space = make_space(config)
        self.supernet: Any = objective.supernet  # of a cell, which can run one genotype
        self.model_optimizer = ModelOptimizer(objective, config)
        self.scores: dict[int, float] = {}  # by number of the architecture, the smaller the better
        self.figures_by: dict[int, JSON] = {}  # those of the objective, by number of the architecture
        self.finished = False
        self.steps_done = 0

    def end_epoch(self) -> JSON:
        """Return the best score of the last comparison."""
        best = self.objective.metric.best(min(self.compared().values(), default=math.inf))
        return {"candidates": len(self.scores), **best}

    def score(self, number: int) -> float:
        """Evaluate the chosen architecture, and keep its cost under a number. NaN counts as infinite."""
        import torch

        from flair_nas.search.processes import average

        evaluation = self.objective.evaluate()
        shared = torch.tensor(self.objective.metric.cost(evaluation), dtype=torch.float64)
        average([shared])  # all processes go on alike
        self.scores[number] = cost = math.inf if shared.isnan() else float(shared)
        if evaluation.figures:
            self.figures_by[number] = dict(evaluation.figures)
        return cost

    def compared(self) -> dict[int, float]:
        """Return the scores of the last comparison, by number of the architecture."""
        return self.scores

    def best(self) -> int:
        """Return the number of the best candidate; 0 before any is scored."""
        return min(self.compared(), key=lambda number: (self.scores[number], number), default=0)

    def genotype(self) -> Candidate:
        """Return the best candidate; before any is scored, the first."""
        return self.architecture(self.best())

    def architecture(self, number: int) -> Candidate:
        """Return the candidate of a number."""
        return self.space.draw(number)

    def state_dict(self) -> JSON:
        """Return what is kept."""
        cells = {name: [cell.to_dict() for cell in getattr(self, name)] for name in self.kept_cells}
        return {name: getattr(self, name) for name in self.kept} | cells

    def load_state_dict(self, state: JSON) -> None:
        """Restore what is kept."""
        for name in self.kept:
            setattr(self, name, state[name])
        for name in self.kept_cells:
            setattr(self, name, [self.space.read(cell) for cell in state[name]])

    def cost(self, history: Sequence[JSON], metric: Metric) -> float | None:
        """Return the cost of the best candidate."""
        return min(self.compared().values()) if self.finished else None

    def figures(self, history: Sequence[JSON]) -> JSON:
        """Return the objective's figures of the best candidate."""
        return self.figures_by.get(self.best(), {}) if self.finished else {}

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return a sentence on the lead of the best candidate."""
        metric = self.objective.metric
        unit = "loss" if metric.from_loss else metric.title
        return judge_scores(self.compared().values(), unit) if self.finished else ""


class TrainedCandidates(Candidates):
    """Search that trains each candidate on its own, from the same first weights and on the same text."""

    kept = (*Candidates.kept, "first_weights")
    planned_steps: float  # of a candidate that is trained to the end; with schedule cosine its rate is 0 then

    def __init__(self, objective: Objective, config: CommonSettings, settings: Any) -> None:
        super().__init__(objective, config, settings)
        self.named = [self.space.parse(text) for text in settings.candidates]
        self.descriptions = [f"{genotype.one_line()} {genotype.options}" for genotype in self.named]
        self.first_weights = {name: value.clone() for name, value in objective.module.state_dict().items()}
        self.total = sum(objective.steps(epoch) for epoch in range(1, config.epochs + 1))

    def begin(
        self, genotype: Candidate, weights: Mapping[str, Tensor] | None = None, optimizer: JSON | None = None
    ) -> None:
        """Let the supernet run a candidate, with the first weights or others, and with a state of the optimizer."""
        self.supernet.choose(genotype)
        self.objective.module.load_state_dict(self.first_weights if weights is None else weights)
        self.model_optimizer.restart(optimizer)
        self.objective.restart()

    def train(self, number: int, steps_before: int) -> StepFigures:
        """Make a candidate's next step; all candidates read the text in the same order.

        A candidate that fails gets the worst score: one bad architecture does not end the search.
        """
        self.steps_done += 1
        self.model_optimizer.done = min(steps_before / self.planned_steps, 1.0)
        self.model_optimizer.steps = steps_before + 1
        epoch, step = carry_step(self.objective, 1, steps_before)
        try:
            loss = self.model_optimizer.step(epoch, step, self.objective.training_batch(epoch, step))
        except NotFiniteError as error:
            log.warning("candidate %d counts as the worst: %s", number, error)
            self.scores[number] = math.inf
            return StepFigures(None, None, 0.0)
        return StepFigures(loss, None, self.model_optimizer.gradient_norm)

    def state_dict(self) -> JSON:
        """Return what is kept, the candidates of the settings, and the state of the optimizer."""
        optimizer = self.model_optimizer.optimizer.state_dict()
        return super().state_dict() | {"named": self.descriptions, "optimizer": optimizer}

    def load_state_dict(self, state: JSON) -> None:
        """Restore what is kept, unless a candidate of the settings is another genotype now."""
        super().load_state_dict(state)
        if state["named"] != self.descriptions:
            raise FlairNasError(
                "a genotype among the candidates has changed since this search began; choose another folder, or give "
                "it back"
            )
        self.model_optimizer.restart(state.get("optimizer"))
