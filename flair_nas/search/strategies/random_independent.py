"""Random search that trains each candidate (Li and Talwalkar, UAI 2019), or successive halving of candidates."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection

from torch import Tensor

from flair_nas.errors import FlairNasError, NotFiniteError
from flair_nas.genotype import Genotype
from flair_nas.search.bilevel import Reduce
from flair_nas.search.config import SearchSettings, parse_genotype
from flair_nas.search.protocols import JSON, Objective, StepFigures
from flair_nas.search.strategies.whole_cells import Candidates

log = logging.getLogger("flair_nas")


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
        if rung != self.rung:
            self._end_turn()
            self.alive = self._better_half()
            self.rung, self.place = rung, 0
            self._begin_turn()
        place = (self.steps_done - steps.start) * len(self.alive) // len(steps)
        if place != self.place:
            self._end_turn()
            self.place = place
            self._begin_turn()
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

    def _begin_turn(self) -> None:
        self.supernet.choose(self.architecture(self.candidate))
        self.objective.module.load_state_dict(self.weights.pop(self.candidate, self.first_weights))
        self.objective.restart()

    def _end_turn(self) -> None:
        if self.scores.get(self.candidate) == math.inf:
            return
        self.scores[self.candidate] = self.score()
        if self.rung + 1 < self.config.rungs:
            state = self.objective.module.state_dict()
            self.weights[self.candidate] = {name: value.clone() for name, value in state.items()}

    def _better_half(self) -> list[int]:
        ranked = sorted(self.alive, key=lambda number: (self.scores[number], number))
        kept = sorted(ranked[: -(-len(ranked) // 2)])
        self.weights = {number: self.weights[number] for number in kept if number in self.weights}
        return kept

    def figures(self) -> JSON:
        """Return the best score of the candidates that are left, and the rung."""
        best = self.objective.metric.best(min(self._compared_scores(), default=math.inf))
        return {"candidates": len(self.scores), **best, "rung": self.rung + 1, "alive": len(self.alive)}

    def compared(self) -> Collection[int]:
        """Return the candidates that are left."""
        return self.alive

    def finish(self, progress: bool) -> None:
        """Score the last candidate."""
        self._end_turn()
        self.finished = True

    def genotype(self) -> Genotype:
        """Return the best of the candidates that are left; before any is scored, the first."""
        left = [number for number in self.alive if number in self.scores] or self.alive[:1]
        return self.architecture(min(left, key=lambda number: (self.scores.get(number, math.inf), number)))

    def load_state_dict(self, state: JSON) -> None:
        """Go on with the candidate whose turn it was.

        Raises:
            FlairNasError: a candidate of the settings is another genotype now.
        """
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
        return {
            **super().state_dict(),
            "named": self._describe_named(),
            "alive": self.alive,
            "rung": self.rung,
            "place": self.place,
            "trained": self.trained,
            "weights": self.weights,
            "first_weights": self.first_weights,
        }
