"""Basis of strategies whose next candidate depends on the scores so far."""

from __future__ import annotations

import dataclasses
import math
import random
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flair_nas.errors import FlairNasError, NotFiniteError
from flair_nas.search.protocols import JSON, Candidate, Objective, StepFigures
from flair_nas.search.settings import CommonSettings
from flair_nas.search.strategies.candidates import TrainedCandidates, TrainedSettings
from flair_nas.settings.fields import COUNT, setting

TRIES = 10
"""Largest number of draws of a child, until one was not trained before."""


@dataclass
class ChildSettings(TrainedSettings):
    """Settings of strategies that train one child after another."""

    child_steps: list[int] = setting(
        [], "training steps of a child; evolution: in each stage, if there are hurdles", **COUNT
    )

    def problems(self, config: CommonSettings) -> list[str]:
        """Return a sentence for missing steps of a child, and for what `TrainedSettings` refuses."""
        missing = "child_steps, the training steps of a child, must be set, such as 300"
        return super().problems(config) + [missing] * (not self.child_steps)

    def extendable(self, config: CommonSettings) -> bool:
        """Return True: more epochs are more children."""
        return True


class ChildSearch(TrainedCandidates):
    """Search that trains one child after another, and learns from its score which one is next.

    Attributes:
        title: the name of the strategy in sentences.
        enough: smallest number of children with which it was ahead of random cells (docs/arena.md).

    Raises:
        FlairNasError: fewer steps than a child takes.
    """

    finishing = "scoring each child"
    longer = "Give each child more steps by a larger --child-steps, and as many children by more --epochs."
    kept = (*TrainedCandidates.kept, "stage", "trained")
    kept_cells: tuple[str, ...] = ("children",)
    title: str
    enough: int
    own: ChildSettings

    def __init__(self, objective: Objective, config: CommonSettings, settings: Any) -> None:
        super().__init__(objective, config, settings)
        self.planned_steps = sum(settings.child_steps)
        if self.total < self.planned_steps:
            raise FlairNasError(
                f"{config.epochs} epochs are {self.total} steps, and a child takes {self.planned_steps}: set more "
                "--epochs, or smaller --child-steps"
            )
        self.random = random.Random(config.seed)
        self.children: list[Candidate] = []  # the present one is the last
        self._begin_child()

    @abstractmethod
    def propose(self) -> Candidate:
        """Return the next child to train."""

    @abstractmethod
    def take(self, number: int, cost: float) -> None:
        """Learn the cost of a child that trains no longer."""

    def clears(self, cost: float) -> bool:
        """Return True if the present child trains for another stage."""
        return False

    def architecture(self, number: int) -> Candidate:
        """Return the child of a number."""
        return self.children[number]

    def draw_random(self) -> Candidate:
        """Draw a child from the whole space."""
        return self.draw_new(lambda: self.space.draw(self.random.randrange(10**6)))

    def draw_near(self, parent: Candidate) -> Candidate:
        """Draw a neighbour of a child."""
        around = self.space.neighbours(parent)
        return self.draw_new(lambda: self.random.choice(around))

    def draw_new(self, make: Callable[[], Candidate]) -> Candidate:
        """Draw a child that was not trained before, in `TRIES` draws at most."""
        for _ in range(TRIES):
            if (child := make()) not in self.children:
                break
        return child

    def _begin_child(self) -> None:
        number = len(self.children)
        child = self.named[number] if number < len(self.named) else self.propose()
        self.children.append(dataclasses.replace(child, origin={}))
        self.stage, self.trained = 1, 0  # of the child, and its steps in all
        self.begin(self.children[-1])

    def step(self, epoch: int, step: int) -> StepFigures:
        """Make a training step of the present child; begin the next one if it has made all of its steps."""
        self.finished = False  # of a search that is extended
        number = len(self.children) - 1
        if self._stage_is_over():
            cost = self.score(number)
            if self.stage < len(self.own.child_steps) and self.clears(cost):
                self.stage += 1
            else:
                self.take(number, cost)
                self._begin_child()
                number += 1
        figures = self.train(number, self.trained)
        self.trained += 1
        if self.scores.get(number) == math.inf:  # it has failed
            self.take(number, math.inf)
            self._begin_child()
        return figures

    def _stage_is_over(self) -> bool:
        return self.trained == sum(self.own.child_steps[: self.stage])

    def finish(self, progress: bool) -> None:
        """Score the last child, if it has made its steps.

        Raises:
            NotFiniteError: all children failed.
        """
        import torch

        if self._stage_is_over():
            with torch.random.fork_rng():  # a search that is extended scores it again
                self.score(len(self.children) - 1)
        if not any(map(math.isfinite, self.scores.values())):
            raise NotFiniteError(f"none of {len(self.scores)} children has a finite loss: set a smaller learning_rate")
        self.finished = True

    def state_dict(self) -> JSON:
        """Return what is kept, and the state of the generator."""
        return super().state_dict() | {"random": self.random.getstate()}

    def load_state_dict(self, state: JSON) -> None:
        """Go on with the child whose turn it was."""
        super().load_state_dict(state)
        self.random.setstate(state["random"])
        self.supernet.choose(self.children[-1])

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return a sentence on the lead of the best child, and on too few children."""
        count, lead = len(self.scores), super().verdict(history)
        is_measured = self.config.transformer.sublayers is None
        if not self.finished or count >= self.enough or not is_measured:
            return lead
        trained = "1 child was trained" if count == 1 else f"{count} children were trained"
        few = (
            f"{trained}; with fewer than {self.enough}, {self.title} was not ahead of random "
            "cells: give it more --epochs or a smaller --child-steps"
        )
        return "; ".join(filter(None, (few, lead)))
