"""Basis of strategies that compare whole cells: one supernet runs one architecture at a time."""

from __future__ import annotations

import dataclasses
import logging
import math
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from flair_nas.errors import FlairNasError, NotFiniteError
from flair_nas.genotype import Genotype, random_genotype
from flair_nas.nn.init import default_range
from flair_nas.search.bilevel import ModelOptimizer, Reduce
from flair_nas.search.config import SearchSettings, parse_genotype
from flair_nas.search.health import judge_scores
from flair_nas.search.protocols import JSON, Objective, StepFigures, Strategy
from flair_nas.settings.fields import changed
from flair_nas.supernet import InterCellSupernet

log = logging.getLogger("flair_nas")


def draw(config: SearchSettings, number: int) -> Genotype:
    """Draw the architecture of a number, from the space that the settings describe."""
    seed = config.seed * 1_000_003 + number  # any two pairs of small numbers give two seeds
    drawn = random_genotype(seed, config.nodes, config.edges_per_node, config.history, config.gate_links)
    return dataclasses.replace(drawn, gate=config.gate, carry=config.carry, recurrence=config.recurrence)


class Candidates(Strategy):
    """Search among whole cells: one supernet that runs one architecture at a time, and the scores so far."""

    finishing = "comparing the candidates"
    bears_nan = True  # a cell has no normalisation, and one that fails is no reason to stop

    @staticmethod
    def contradictions(config: SearchSettings) -> list[str]:
        """Return a sentence for each setting of a gradient, and for nothing to compare."""
        name = config.strategy
        checks = {
            f"samples must be at least 1 for strategy {name}": config.samples == 0 and not config.candidates,
            f"order 2 belongs to strategy gradient, not {name}": config.order == 2,
            f"strategy {name} draws whole cells: learn must be intra or joint": config.learn == "inter",
            f"strategy {name} draws whole cells: fixed must be left out": config.fixed is not None,
            f"strategy {name} draws all edges alike: avoid_first must be left out": config.avoid_first,
        }
        settings = changed(
            config, "sampling", "temperature", "temperature_end", "selection", "selection_steps", "most_identity",
            "warmup_epochs", "arch_clip", "arch_beta2", "fresh_moments",
        )  # fmt: skip
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
        self.figures_by: dict[int, JSON] = {}  # those of the objective, by number of the architecture
        self.finished = False
        self.steps_done = 0

    def figures(self) -> JSON:
        """Return the best score of the last comparison."""
        best = self.objective.metric.best(min(self._compared_scores(), default=math.inf))
        return {"candidates": len(self.scores), **best}

    def score(self) -> float:
        """Score the chosen architecture on the whole validation part; not a number is the worst."""
        cost = self.objective.metric.cost(self.objective.evaluate())
        if self.reduce is not None:  # all processes go on alike
            self.reduce([shared := torch.tensor(cost, dtype=torch.float64)])
            cost = float(shared)
        return math.inf if math.isnan(cost) else cost

    def note(self, number: int) -> float:
        """Score the chosen architecture, and keep score and figures under its number."""
        self.scores[number] = cost = self.score()
        if figures := self.objective.figures():
            self.figures_by[number] = figures
        return cost

    def cost(self, history: Sequence[JSON]) -> float | None:
        """Return the cost of the best candidate, once all are compared."""
        return min(self._compared_scores()) if self.finished else None

    def judged_figures(self, history: Sequence[JSON]) -> JSON:
        """Return the objective's figures of the best candidate, once all are compared."""
        return self.figures_by.get(self._best(), {}) if self.finished else {}

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return a sentence on the lead of the best candidate, once all are compared."""
        if not self.finished:
            return ""
        unit = "loss" if self.objective.metric.from_loss else self.objective.metric.title
        return judge_scores(self._compared_scores(), unit)

    def _compared_scores(self) -> list[float]:
        return [self.scores[number] for number in self.compared()]

    def compared(self) -> Collection[int]:
        """Return the scored candidates of the last comparison."""
        return self.scores

    def converged(self) -> bool:
        """Return False: every candidate counts."""
        return False

    def genotype(self) -> Genotype:
        """Return the best candidate; before any is scored, the first."""
        return self.architecture(self._best())

    def _best(self) -> int:
        return min(self.compared(), key=lambda number: (self.scores[number], number), default=0)

    def architecture(self, number: int) -> Genotype:
        """Return the candidate of a number."""
        return draw(self.config, number)

    def state_dict(self) -> JSON:
        """Return scores and progress."""
        kept = {"scores": dict(self.scores), "figures_by": dict(self.figures_by)}
        return {**kept, "steps_done": self.steps_done, "finished": self.finished}

    def load_state_dict(self, state: JSON) -> None:
        """Restore scores and progress."""
        self.scores, self.steps_done = dict(state["scores"]), state["steps_done"]
        self.finished = state.get("finished", False)  # older searches kept neither
        self.figures_by = dict(state.get("figures_by", {}))


class TrainedCandidates(Candidates):
    """Search that trains each candidate on its own, from the same first weights and on the same text."""

    @staticmethod
    def contradictions(config: SearchSettings) -> list[str]:
        """Return a sentence for candidates outside the space."""
        problems = Candidates.contradictions(config)
        for text in config.candidates:
            try:
                genotype = parse_genotype(text)
            except FlairNasError as error:
                problems.append(f"candidates: {error}")
                continue
            histories = {gate.history if gate else 0 for gate in (genotype.state_gate, genotype.input_gate)}
            if len(genotype.nodes) != config.nodes or not genotype.highway or histories != {config.history}:
                problems.append(
                    f"candidates: {text} is not of this space, highway cells of {config.nodes} nodes with gates over "
                    f"{config.history} steps"
                )
            elif genotype.recurrence != config.recurrence:
                problems.append(
                    f"candidates: {text} has recurrence={genotype.recurrence}, and all cells of a search have that of "
                    f"the setting recurrence, {config.recurrence}"
                )
        return problems

    def __init__(self, objective: Objective, config: SearchSettings, reduce: Reduce | None) -> None:
        super().__init__(objective, config, reduce)
        self.named = [parse_genotype(text) for text in config.candidates]
        self.first_weights = {name: value.clone() for name, value in objective.module.state_dict().items()}
        self.total = sum(self.steps(epoch) for epoch in range(1, config.epochs + 1))

    def begin(self, genotype: Genotype, weights: Mapping[str, Tensor] | None = None) -> None:
        """Let the supernet run a candidate, with the first weights or others."""
        self.supernet.choose(genotype)
        self.objective.module.load_state_dict(self.first_weights if weights is None else weights)
        self.objective.restart()

    @abstractmethod
    def planned_steps(self) -> float:
        """Return the steps of a candidate that is trained to the end; with schedule cosine its rate is 0 then."""

    def train(self, number: int, steps_before: int) -> StepFigures:
        """Make a candidate's next step; all candidates read the text in the same order.

        A candidate that fails gets the worst score: one bad architecture does not end the search.
        """
        self.steps_done += 1
        self.model_optimizer.done = min(steps_before / self.planned_steps(), 1.0)
        epoch, step = 1, steps_before
        while step >= self.objective.steps(epoch):
            step -= self.objective.steps(epoch)
            epoch += 1
        try:
            loss = self.model_optimizer.step(epoch, step, self.objective.training_batch(epoch, step))
        except NotFiniteError as error:
            log.warning("candidate %d counts as the worst: %s", number, error)
            self.scores[number] = math.inf
            return StepFigures(None, None, 0.0)
        return StepFigures(loss, None, self.model_optimizer.gradient_norm)

    def state_dict(self) -> JSON:
        """Return scores, progress and the first weights."""
        return {**super().state_dict(), "named": self._describe_named(), "first_weights": self.first_weights}

    def load_state_dict(self, state: JSON) -> None:
        """Restore scores and progress, unless a candidate of the settings is another genotype now."""
        super().load_state_dict(state)
        if state["named"] != self._describe_named():
            raise FlairNasError(
                "a genotype among the candidates has changed since this search began; choose another folder, or give "
                "it back"
            )
        self.first_weights = state["first_weights"]

    def _describe_named(self) -> list[str]:
        return [f"{genotype.one_line()} {genotype.options}" for genotype in self.named]
