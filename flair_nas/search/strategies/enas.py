"""ENAS (Pham et al., ICML 2018): a controller learns by REINFORCE which architectures do well with shared weights."""

from __future__ import annotations

import dataclasses
import logging
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flair_nas.errors import NotFiniteError
from flair_nas.genotype import Genotype
from flair_nas.search.protocols import JSON, REMEDY, Objective, StepFigures
from flair_nas.search.settings import CommonSettings
from flair_nas.search.strategies.random_cells import RandomSharedSettings, SharedRandomSearch
from flair_nas.settings.fields import COUNT, setting

if TYPE_CHECKING:
    from flair_nas.search.controller import Draw

log = logging.getLogger("flair_nas")

DRAWS = 10
"""Draws at the end for each candidate, as the controller may draw a cell more than once."""


@dataclass
class EnasSettings(RandomSharedSettings):
    """Settings of ENAS (Pham et al., 2018).

    Example:
        >>> from flair_nas import EnasSettings, SearchConfig
        >>> SearchConfig(text="demo", strategy=EnasSettings(controller_steps=5)).strategy.controller_size
        64
    """

    controller_learning_rate: float = setting(
        1e-3, "learning rate of Adam for the controller (as published: 5e-5); 0: its untrained prior alone",
        low=0, high=1,
    )  # fmt: skip
    controller_steps: int = setting(25, "steps of the controller after each epoch", **COUNT)
    controller_draws: int = setting(10, "cells that a step of the controller draws", **COUNT)
    controller_entropy: float = setting(1e-5, "weight of the entropy in the reward", low=0, high=1e6)
    controller_decay: float = setting(
        0.95, "decay of the running mean that rewards are compared with (as published: 0.999)", low=0, high=1
    )
    controller_locality: float = setting(
        6.0, "the logit of a tail k nodes back falls by k^2 / this, as in the authors' code; 0: it does not",
        low=0, high=1e9,
    )  # fmt: skip
    controller_size: int = setting(64, "size of the controller's LSTM", **COUNT)

    def problems(self, config: CommonSettings) -> list[str]:
        """Return a sentence for gates and several edges, and for what `RandomSharedSettings` refuses."""
        checks = {
            "strategy enas searches cells without gates: learn must be intra": config.learn != "intra",
            "strategy enas draws one edge for each node: edges_per_node must be 1": config.edges_per_node > 1,
        }
        return super().problems(config) + [message for message, wrong in checks.items() if wrong]


class ControllerSearch(SharedRandomSearch):
    """ENAS: model weights that all cells share, and a controller that draws the cells, learn in turn.

    The controller learns at the end of each epoch, by losses on validation batches. At the end of the search, `samples`
    cells are drawn and compared with the shared weights.
    """

    settings = EnasSettings
    kept = (*SharedRandomSearch.kept, "last")
    kept_cells = ("drawn",)
    own: EnasSettings

    def __init__(self, objective: Objective, config: CommonSettings, settings: Any) -> None:
        from flair_nas.search.controller import Controller, Reinforce

        super().__init__(objective, config, settings)
        controller = Controller(config.nodes, settings.controller_size, locality=settings.controller_locality or None)
        rates = (settings.controller_learning_rate, settings.controller_entropy, settings.controller_decay)
        self.controller = Reinforce(controller, config.seed, *rates)
        self.drawn: list[Genotype] = []  # the candidates, at the end
        self.last: JSON = {}  # figures of the last epoch
        self.supernet.choose(self.architecture(0))

    def draw(self) -> Genotype:
        """Draw the cell of the present step from the controller."""
        import torch

        with torch.no_grad():
            return self._form(self.controller.draw().genotype)

    def _form(self, genotype: Genotype) -> Genotype:
        return dataclasses.replace(genotype, recurrence=self.config.recurrence)

    def architecture(self, number: int) -> Genotype:
        """Return the candidate of a number; before candidates are drawn, the likeliest cell."""
        return self.drawn[number] if self.drawn else self._form(self.controller.controller.likeliest())

    def step(self, epoch: int, step: int) -> StepFigures:
        """Update the weights of a cell; at the end of an epoch let the controller learn."""
        self.drawn = []
        figures = super().step(epoch, step)
        if step + 1 == self.objective.steps(epoch):
            steps = [self.learn(epoch, number) for number in range(self.own.controller_steps)]
            draws = [draw for drawn, _ in steps for draw in drawn]
            self.last = {
                "reward": statistics.fmean([reward for _, rewards in steps for reward in rewards]),
                "spread": statistics.fmean([draw.spread for draw in draws]),
                "different_cells": len({draw.genotype for draw in draws}),
                "moved": statistics.fmean([self.controller.distance(draw) for draw in steps[-1][0]]),
            }
            self.supernet.choose(self.architecture(0))
        return figures

    def learn(self, epoch: int, number: int) -> tuple[list[Draw], list[float]]:
        """Make a step of the controller. Return its draws and their rewards.

        Raises:
            NotFiniteError: no draw has a finite loss.
        """
        count = self.own.controller_draws
        draws = [self.controller.draw() for _ in range(count)]
        losses = [self._loss(draw.genotype, epoch, number * count + place) for place, draw in enumerate(draws)]
        finite = sum(map(math.isfinite, losses))
        if not finite:
            raise NotFiniteError(
                f"epoch {epoch}: none of the {count} cells that the controller drew has a finite loss. {REMEDY}"
            )
        if finite < count:
            log.warning("epoch %d: %d of %d cells without a finite loss have no reward", epoch, count - finite, count)
        return draws, self.controller.learn(draws, losses)

    def _loss(self, genotype: Genotype, epoch: int, place: int) -> float:
        """Compute the loss of a cell on a validation batch, without dropout and from a state of zeros."""
        from flair_nas.search.bilevel import validation_loss

        self.supernet.choose(self._form(genotype))
        return validation_loss(self.objective, [place], epoch)

    def finish(self, progress: bool) -> None:
        """Draw candidates, all different if a few draws allow, and compare them with the shared weights."""
        generator = self.controller.generator
        before = generator.get_state()  # a search that is extended goes on from here
        drawn: dict[Genotype, None] = {}  # in their order
        for _ in range(DRAWS * self.own.samples):
            drawn[self.draw()] = None
            if len(drawn) == self.own.samples:
                break
        self.drawn = [*drawn]
        generator.set_state(before)
        self.samples = len(self.drawn)
        super().finish(progress)

    def end_epoch(self) -> JSON:
        """Return the best score of the last comparison, and figures of the controller in the last epoch."""
        return {**super().end_epoch(), **self.last, "mean_reward": self.controller.mean_reward}

    def state_dict(self) -> JSON:
        """Return what is kept, and the controller."""
        return super().state_dict() | {"reinforce": self.controller.state_dict()}

    def load_state_dict(self, state: JSON) -> None:
        """Restore what is kept, and the controller."""
        super().load_state_dict(state)
        self.controller.load_state_dict(state["reinforce"])
        self.supernet.choose(self.architecture(0))

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return a sentence on the lead of the best candidate, and on a controller that learned nothing or one cell."""
        note, last, own = "", self.last, self.own
        if last and last["moved"] < 0.1:
            note = "the controller draws as it did untrained" + ", which prefers chains" * bool(own.controller_locality)
            note += "; raise --controller-learning-rate" * bool(own.controller_learning_rate)
        elif last and last["spread"] < 0.05:
            note = "the controller draws nearly the same cell each time; lower --controller-learning-rate"
        return "; ".join(filter(None, (super().verdict(history), note)))

    def end_seconds(self) -> float:
        """Measure a step of the controller, and return the seconds of all its steps in an epoch."""
        started = time.perf_counter()
        self.learn(1, 0)
        return (time.perf_counter() - started) * self.own.controller_steps
