"""Random search with a training of each candidate (Li and Talwalkar, UAI 2019), or successive halving of them."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from typing import Any

from torch import Tensor

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.search.bilevel import Reduce
from flair_nas.search.config import SearchSettings, parse_genotype
from flair_nas.search.model_update import NotFinite
from flair_nas.search.protocols import Objective, StepFigures
from flair_nas.search.strategies.whole_cells import Candidates

log = logging.getLogger("flair_nas")


class IndependentRandomSearch(Candidates):
    """Each candidate is trained on its own, from the same first weights and on the same text.

    With several rungs it is successive halving (Jamieson and Talwalkar, 2016): all rungs take as many steps, shared by
    the candidates that are left; after each but the last, the worse half is out, and the others go on where they were.

    Args:
        objective: losses and supernet.
        config: the settings.
        reduce: averages tensors over processes, in place.

    Raises:
        FlairNasError: fewer steps than candidates.
    """

    @staticmethod
    def contradictions(config: SearchSettings) -> list[str]:
        """A schedule would favour the first candidates, too; and every rung needs candidates of this space."""
        found = Candidates.contradictions(config)
        if config.schedule != "constant":
            found.append(f"strategy {config.strategy} trains candidates alike: schedule must be constant")
        count, least = config.samples + len(config.candidates), 2 ** (config.rungs - 1)
        if count < max(least, 1):
            found.append(
                f"rungs {config.rungs} halve {count} candidates to less than one: at least {least} are needed, by "
                "samples and candidates"
            )
        for text in config.candidates:
            try:
                genotype = parse_genotype(text)
            except FlairNasError as error:
                found.append(f"candidates: {error}")
                continue
            histories = {gate.history if gate else 0 for gate in (genotype.state_gate, genotype.input_gate)}
            if len(genotype.nodes) != config.nodes or not genotype.highway or histories != {config.history}:
                found.append(
                    f"candidates: {text} is not of this space, highway cells of {config.nodes} nodes with gates over "
                    f"{config.history} steps"
                )
        return found

    @staticmethod
    def extendable(config: SearchSettings) -> bool:
        """No: with more epochs, each candidate would have a longer share."""
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
        """The number of the candidate whose turn it is."""
        return self.alive[self.place]

    def architecture(self, number: int) -> Genotype:
        """The random ones come first, then those that were named."""
        return self.named[number - self.samples] if number >= self.samples else super().architecture(number)

    def _steps_of(self, rung: int) -> range:
        """Which of all steps a rung takes."""
        first, last = (-(-at * self.total // self.config.rungs) for at in (rung, rung + 1))
        return range(first, last)

    def step(self, epoch: int, step: int) -> StepFigures:
        """A training step of the candidate whose turn it is."""
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
        except NotFinite as error:  # one bad architecture does not end the search
            log.warning("candidate %d counts as the worst: %s", self.candidate, error)
            self.scores[self.candidate] = math.inf
            return StepFigures(None, None, 0.0)
        return StepFigures(loss, None, self.model_optimizer.gradient_norm)

    def _train(self) -> float:
        """The next step of this candidate on its own way through the text, which is the same for all."""
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

    def figures(self) -> dict[str, Any]:
        """The best score of those that are left, and where the rungs are."""
        best = min((self.scores[number] for number in self.alive if number in self.scores), default=math.inf)
        of_best = self.objective.measure.best(best)
        return {"candidates": len(self.scores), **of_best, "rung": self.rung + 1, "alive": len(self.alive)}

    def compared(self) -> Collection[int]:
        """Those that are left."""
        return self.alive

    def finish(self, progress: bool) -> None:
        """Scores the last candidate."""
        self._end_turn()
        self.finished = True

    def genotype(self) -> Genotype:
        """The best of the candidates that are left; before any is scored, the first."""
        left = [number for number in self.alive if number in self.scores] or self.alive[:1]
        return self.architecture(min(left, key=lambda number: (self.scores.get(number, math.inf), number)))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on with the candidate whose turn it was.

        Raises:
            FlairNasError: a named candidate stands for another genotype now.
        """
        super().load_state_dict(state)
        if self.steps_done < self.total and "trained" not in state:
            raise FlairNasError(
                "this search was begun by a flair-nas whose candidates read other parts of the text; begin it anew in "
                "another folder"
            )
        if state.get("named", self._named()) != self._named():
            raise FlairNasError(
                "a genotype among the candidates has changed since this search began; choose another folder, or give "
                "it back"
            )
        self.first_weights = state["first_weights"]
        self.alive = state.get("alive", self.alive)  # older searches had no rungs
        self.rung, self.place = state.get("rung", 0), state.get("place", state.get("candidate", 0))
        self.trained, self.weights = dict(state.get("trained", {})), dict(state.get("weights", {}))
        self.supernet.choose(self.architecture(self.candidate))

    def _named(self) -> list[str]:
        return [f"{genotype.one_line()} {genotype.options}" for genotype in self.named]

    def state_dict(self) -> dict[str, Any]:
        """Scores and places, and the weights that candidates begin and go on with."""
        return {
            **super().state_dict(),
            "named": self._named(),
            "alive": self.alive,
            "rung": self.rung,
            "place": self.place,
            "trained": self.trained,
            "weights": self.weights,
            "first_weights": self.first_weights,
        }
