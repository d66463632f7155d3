"""Gradient-based search: architecture weights descend the validation loss, model weights the training loss, in turn.

DARTS (algorithm 1) and I-DARTS learn the cell; ESS (figure 4) learns cell and gates in alternating phases.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.search.bilevel import Reduce, first_order, second_order
from flair_nas.search.config import SearchConfig
from flair_nas.search.descent import WeightDescent, check_finite
from flair_nas.search.objectives import Objective
from flair_nas.search.strategies import StepFigures, Strategy

CURVE = 20
"""Points of an epoch's MAD curve in the history."""


class GradientStrategy(Strategy):
    """First or second order, of the cell, the gates, or both in phases.

    Args:
        objective: losses and supernet.
        config: the settings.
        reduce: averages tensors over processes, in place.

    Raises:
        FlairNasError: phases that are too short to tell whether MAD has settled.
    """

    def __init__(self, objective: Objective, config: SearchConfig, reduce: Reduce | None) -> None:
        self.objective, self.config, self.reduce = objective, config, reduce
        if config.learn == "joint" and config.convergence and config.convergence_steps >= self._phase_steps(1):
            raise FlairNasError(
                f"convergence_steps {config.convergence_steps} must be less than the steps of a phase, "
                f"{self._phase_steps(1)}: a phase would always end first"
            )
        self.descent = WeightDescent(objective, config, reduce)
        groups = objective.supernet.architecture()
        self.phases = ["intra", "inter"] if config.learn == "joint" else [config.learn]
        rates = {"intra": config.arch_learning_rate, "inter": config.inter_learning_rate}
        self.groups = {name: groups[name] for name in self.phases}
        self.optimizers = {
            name: torch.optim.Adam(self.groups[name], lr=rates[name], weight_decay=config.arch_weight_decay)
            for name in self.phases
        }
        self.windows = {name: Convergence(config.convergence, config.convergence_steps) for name in self.phases}
        self.phase, self.steps_in_phase = 0, 0
        self.curve: list[dict[str, float]] = []  # MAD in the course of this epoch

    @staticmethod
    def contradictions(config: SearchConfig) -> list[str]:
        """Without an epoch there is no gradient."""
        return ["epochs must be at least 1 for strategy gradient"] if config.epochs == 0 else []

    @staticmethod
    def least_sequences(config: SearchConfig) -> int:
        """A mixture of cells has batch normalisation, a fixed cell has none."""
        return 1 if config.learn == "inter" else 2

    @staticmethod
    def method(config: SearchConfig) -> str:
        """Relaxation, order, and what was searched."""
        order = ("first", "second")[config.order - 1]
        what = {"intra": "cell", "inter": f"gates around {config.fixed}", "joint": "cell and gates"}[config.learn]
        return f"{config.relaxation}, {order} order, {what}, n = {config.edges_per_node}, seed {config.seed}"

    def steps(self, epoch: int) -> int:
        """Those of the objective: one pass over the training data."""
        return self.objective.steps(epoch)

    def step(self, epoch: int, step: int) -> StepFigures:
        """A step of the architecture weights whose phase it is, then one of the model weights."""
        name = self._turn(epoch)
        training = self.objective.training_batch(epoch, step)
        validation = self.objective.validation_batch(epoch, step)
        group = self.groups[name]
        options: dict[str, Any] = {"architecture": group, "reduce": self.reduce}
        if self.config.order == 1:
            validation_loss, gradients = first_order(self.objective, training, validation, **options)
        else:
            validation_loss, gradients = second_order(
                self.objective,
                training,
                validation,
                learning_rate=self.descent.learning_rate(epoch, training),
                weight_decay=self.config.weight_decay,
                clip=self.config.clip,
                **options,
            )
        check_finite(self.objective, "validation", epoch, step, validation_loss, group, gradients)
        for parameter, gradient in zip(group, gradients):
            parameter.grad = gradient
        self.optimizers[name].step()
        self.optimizers[name].zero_grad()
        training_loss = self.descent.step(epoch, step, training)
        deviations = self.deviations()
        self.windows[name].add(deviations[name])
        self.steps_in_phase += 1
        if step == 0:
            self.curve = []
        if (step + 1) % max(1, self.steps(epoch) // CURVE) == 0:
            self.curve.append({"step": step + 1, **deviations})
        return StepFigures(training_loss, validation_loss, self.descent.gradient_norm)

    def _turn(self, epoch: int) -> str:
        """The part that is learned now: in a joint search the phases alternate, by convergence or budget."""
        if len(self.phases) == 1:
            return self.phases[0]
        if self.steps_in_phase >= self._phase_steps(epoch) or self.windows[self.phases[self.phase]].converged:
            self.phase = 1 - self.phase
            self.steps_in_phase = 0
            self.windows[self.phases[self.phase]].restart()
        return self.phases[self.phase]

    def _phase_steps(self, epoch: int) -> int:
        return self.config.phase_steps or -(-self.steps(epoch) // 2)

    def deviations(self) -> dict[str, float]:
        """MAD of the parts that are learned."""
        found = self.objective.supernet.mean_absolute_deviations()
        return {name: found[name] for name in self.phases}

    def figures(self) -> dict[str, Any]:
        """MAD of each part now and in the course of the epoch, and whose turn it is."""
        return {"mad": self.deviations(), "mad_curve": self.curve, "phase": self.phases[self.phase]}

    def converged(self) -> bool:
        """Whether every part's MAD has settled; in a joint search, in the part's last phase."""
        return all(window.settled for window in self.windows.values())

    def finish(self, progress: bool) -> None:
        """Nothing is left to do."""

    def genotype(self) -> Genotype:
        """The one that the architecture weights stand for now."""
        return self.objective.supernet.genotype(self.config.edges_per_node, self.config.avoid_first)

    def state_dict(self) -> dict[str, Any]:
        """Optimizers, phases and convergence."""
        return {
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "windows": {name: window.state() for name, window in self.windows.items()},
            "phase": self.phase,
            "steps_in_phase": self.steps_in_phase,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts them back."""
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
            self.windows[name].restore(state["windows"][name])
        self.phase, self.steps_in_phase = state["phase"], state["steps_in_phase"]


class Convergence:
    """Whether MAD has settled: over a window of steps it has changed by less than a share of itself.

    Args:
        tolerance: that share; 0 for never.
        steps: length of the window.

    Attributes:
        converged: whether it has settled in this phase.
        settled: whether it had when last there was a whole window, in this phase or one before.
    """

    def __init__(self, tolerance: float, steps: int) -> None:
        self.tolerance = tolerance
        self.values: deque[float] = deque(maxlen=steps + 1)
        self.converged = self.settled = False

    def add(self, deviation: float) -> None:
        """Takes the MAD after a step."""
        self.values.append(deviation)
        if len(self.values) == self.values.maxlen:
            change = abs(self.values[-1] - self.values[0])
            self.converged = self.settled = change < self.tolerance * self.values[-1]

    def restart(self) -> None:
        """A new phase begins."""
        self.values.clear()
        self.converged = False

    def state(self) -> dict[str, Any]:
        """What `restore` takes."""
        return {"values": list(self.values), "converged": self.converged, "settled": self.settled}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from a state."""
        self.values.extend(state["values"])
        self.converged = state["converged"]
        self.settled = state.get("settled", self.converged)
