"""Random search (Li and Talwalkar, UAI 2019): strategies that draw whole cells at random and compare them."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Collection, Sequence

from torch import Tensor
from tqdm import tqdm

from flair_nas.errors import FlairNasError, NotFiniteError
from flair_nas.genotype import Genotype, random_genotype
from flair_nas.nn.init import default_range
from flair_nas.search.bilevel import ModelOptimizer, Reduce
from flair_nas.search.config import SearchSettings, parse_genotype
from flair_nas.search.health import judge_scores
from flair_nas.search.perturbation import sum_segment_losses
from flair_nas.search.protocols import JSON, Objective, StepFigures, Strategy
from flair_nas.settings.fields import changed
from flair_nas.supernet import InterCellSupernet

log = logging.getLogger("flair_nas")

FINALISTS = 10
"""Candidates of random search with shared weights that are scored on the whole validation part."""


def draw(config: SearchSettings, number: int) -> Genotype:
    """Draw the architecture of a number, from the space that the settings describe."""
    seed = config.seed * 1_000_003 + number  # any two pairs of small numbers give two seeds
    drawn = random_genotype(seed, config.nodes, config.edges_per_node, config.history, config.gate_links)
    return dataclasses.replace(drawn, gate=config.gate, carry=config.carry, recurrence=config.recurrence)


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
        self.finished = False
        self.steps_done = 0

    def figures(self) -> JSON:
        """Return the best score of the last comparison."""
        best = self.objective.metric.best(min(self._compared_scores(), default=math.inf))
        return {"candidates": len(self.scores), **best}

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
        return [self.scores[number] for number in self.compared()]

    def compared(self) -> Collection[int]:
        """Return the scored candidates of the last comparison."""
        return self.scores

    def converged(self) -> bool:
        """Return False: every candidate counts."""
        return False

    def genotype(self) -> Genotype:
        """Return the best candidate; before any is scored, the first."""
        best = min(self.compared(), key=lambda number: (self.scores[number], number), default=0)
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


class SharedRandomSearch(Candidates):
    """One set of weights, trained on a random architecture per step, that scores the candidates at the end."""

    def step(self, epoch: int, step: int) -> StepFigures:
        """Draw an architecture and update its weights."""
        self.finished = False  # of a search that is extended
        # numbers below `samples` belong to the candidates
        self.supernet.choose(draw(self.config, self.samples + self.steps_done))
        self.steps_done += 1
        loss = self.model_optimizer.step(epoch, step, self.objective.training_batch(epoch, step))
        self.supernet.choose(draw(self.config, 0))
        return StepFigures(loss, None, self.model_optimizer.gradient_norm)

    def finish(self, progress: bool) -> None:
        """Score all candidates on a few segments, and the best of them on the whole validation part."""
        module = self.objective.module.eval()
        first: dict[int, float] = {}
        for number in tqdm(range(self.samples), "candidates", disable=not progress, leave=False):
            self.supernet.choose(draw(self.config, number))
            loss = sum_segment_losses(self.objective, self.config.sample_segments, self.reduce)
            first[number] = math.inf if math.isnan(loss) else loss
        finalists = sorted(first, key=lambda number: (first[number], number))[:FINALISTS]
        self.scores = {}  # those of a search that was extended are of other weights
        for number in tqdm(finalists, "finalists", disable=not progress, leave=False):
            self.supernet.choose(draw(self.config, number))
            self.scores[number] = self.score()
        self.finished = True
        module.train()


class IndependentRandomSearch(Candidates):
    """Search that trains each candidate on its own, from the same first weights and on the same text.

    With several rungs it is successive halving (Jamieson and Talwalkar, 2016). All rungs take as many steps, shared by
    the candidates that are left. After each rung but the last, the worse half is out, and the others go on.

    Raises:
        FlairNasError: fewer steps than candidates.
    """

    @staticmethod
    def contradictions(config: SearchSettings) -> list[str]:
        """Return a sentence for a schedule, for too few candidates, and for candidates outside the space."""
        problems = Candidates.contradictions(config)
        if config.schedule != "constant":
            problems.append(f"strategy {config.strategy} trains candidates alike: schedule must be constant")
        count, minimum = config.samples + len(config.candidates), 2 ** (config.rungs - 1)
        if count < max(minimum, 1):
            problems.append(
                f"rungs {config.rungs} halve {count} candidates to less than one: at least {minimum} are needed, by "
                "samples and candidates"
            )
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

    @staticmethod
    def extendable(config: SearchSettings) -> bool:
        """Return False: with more epochs, each candidate would train longer."""
        return False

    def __init__(self, objective: Objective, config: SearchSettings, reduce: Reduce | None) -> None:
        super().__init__(objective, config, reduce)
        self.named = [parse_genotype(text) for text in config.candidates]
        self.first_weights = {name: value.clone() for name, value in objective.module.state_dict().items()}
        self.total = sum(self.steps(epoch) for epoch in range(1, config.epochs + 1))
        self.alive = list(range(self.samples + len(self.named)))
        first_rung = self._steps_of(0)
        if first_rung.stop < len(self.alive):
            raise FlairNasError(
                f"{len(self.alive)} candidates cannot share {self.total} steps in {config.rungs} "
                f"rung{'s' if config.rungs > 1 else ''}: each needs one; set a smaller --samples or more --epochs"
            )
        self.rung, self.place = 0, 0  # whose turn it is
        self.trained: dict[int, int] = {}  # steps of each candidate
        self.weights: dict[int, dict[str, Tensor]] = {}  # of those that will go on
        self.supernet.choose(self.architecture(self.candidate))

    @property
    def candidate(self) -> int:
        """Number of the candidate whose turn it is."""
        return self.alive[self.place]

    def architecture(self, number: int) -> Genotype:
        """Return the candidate of a number: the random ones come first, then those of the settings."""
        return self.named[number - self.samples] if number >= self.samples else super().architecture(number)

    def _steps_of(self, rung: int) -> range:
        """Return the steps of a rung, counted over the whole search."""
        first, last = (-(-at * self.total // self.config.rungs) for at in (rung, rung + 1))
        return range(first, last)

    def step(self, epoch: int, step: int) -> StepFigures:
        """Make a training step of the candidate whose turn it is."""
        rung = self.steps_done * self.config.rungs // self.total
        steps = self._steps_of(rung)
        place = (self.steps_done - steps.start) * len(self.alive) // len(steps)
        if (rung, place) != (self.rung, self.place):
            self._end_turn()
            if rung != self.rung:  # the better half goes on
                ranked = sorted(self.alive, key=lambda number: (self.scores[number], number))
                self.alive = sorted(ranked[: -(-len(ranked) // 2)])
                self.weights = {number: self.weights[number] for number in self.alive if number in self.weights}
            self.rung, self.place = rung, place
            self.supernet.choose(self.architecture(self.candidate))
            self.objective.module.load_state_dict(self.weights.pop(self.candidate, self.first_weights))
            self.objective.restart()
        self.steps_done += 1
        if self.scores.get(self.candidate) == math.inf:  # it has failed
            return StepFigures(None, None, 0.0)
        try:
            loss = self._train()
        except NotFiniteError as error:  # one bad architecture does not end the search
            log.warning("candidate %d counts as the worst: %s", self.candidate, error)
            self.scores[self.candidate] = math.inf
            return StepFigures(None, None, 0.0)
        return StepFigures(loss, None, self.model_optimizer.gradient_norm)

    def _train(self) -> float:
        """Make the candidate's next step; all candidates read the text in the same order."""
        epoch, step = 1, self.trained.get(self.candidate, 0)
        self.trained[self.candidate] = step + 1
        while step >= self.objective.steps(epoch):
            step -= self.objective.steps(epoch)
            epoch += 1
        return self.model_optimizer.step(epoch, step, self.objective.training_batch(epoch, step))

    def _end_turn(self) -> None:
        if self.scores.get(self.candidate) == math.inf:
            return
        self.scores[self.candidate] = self.score()
        if self.rung + 1 < self.config.rungs:
            state = self.objective.module.state_dict()
            self.weights[self.candidate] = {name: value.clone() for name, value in state.items()}

    def figures(self) -> JSON:
        """Return the best score of the candidates that are left, and the rung."""
        return {**super().figures(), "rung": self.rung + 1, "alive": len(self.alive)}

    def compared(self) -> Collection[int]:
        """Return the scored ones of the candidates that are left."""
        return [number for number in self.alive if number in self.scores]

    def finish(self, progress: bool) -> None:
        """Score the last candidate."""
        self._end_turn()
        self.finished = True

    def load_state_dict(self, state: JSON) -> None:
        """Go on with the candidate whose turn it was, unless a candidate of the settings is another genotype now."""
        super().load_state_dict(state)
        if state["named"] != self._describe_named():
            raise FlairNasError(
                "a genotype among the candidates has changed since this search began; choose another folder, or give "
                "it back"
            )
        self.first_weights = state["first_weights"]
        self.alive, self.rung, self.place = state["alive"], state["rung"], state["place"]
        self.trained, self.weights = dict(state["trained"]), dict(state["weights"])
        self.supernet.choose(self.architecture(self.candidate))

    def _describe_named(self) -> list[str]:
        return [f"{genotype.one_line()} {genotype.options}" for genotype in self.named]

    def state_dict(self) -> JSON:
        """Return scores and progress, and the weights of the candidates that go on."""
        own = ("alive", "rung", "place", "trained", "weights", "first_weights")
        state = {**super().state_dict(), "named": self._describe_named()}
        return state | {name: getattr(self, name) for name in own}
