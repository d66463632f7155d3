"""Gradient-based search: steps of architecture weights on the validation loss, of model weights on the training loss.

DARTS (algorithm 1) and I-DARTS learn the cell; ESS (figure 4) learns cell and gates in alternating phases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.runs.random_state import random_state, restore_random_state
from flair_nas.search import health
from flair_nas.search.bilevel import (
    ModelOptimizer,
    Reduce,
    apply_gradients,
    check_finite,
    clip_gradients,
    first_order,
    second_order,
)
from flair_nas.search.config import SearchSettings
from flair_nas.search.perturbation import select_by_perturbation
from flair_nas.search.protocols import JSON, Objective, StepFigures, Strategy
from flair_nas.settings.fields import changed

_PHASE_STEPS = 115  # of joint search, from the costs that ESS publishes
_CURVE = 20  # points of an epoch's MAD curve in the history


class GradientStrategy(Strategy):
    """Gradient-based search, first or second order, of the cell, the gates, or both in phases.

    Raises:
        FlairNasError: phases that are too short to tell whether MAD has settled.
    """

    def __init__(self, objective: Objective, config: SearchSettings, reduce: Reduce | None) -> None:
        self.objective, self.config, self.reduce = objective, config, reduce
        self.half_epochs = False  # True for a search of an older version, which began with such phases
        if config.learn == "joint" and config.convergence and config.convergence_steps >= self._phase_steps(1):
            raise FlairNasError(
                f"convergence_steps {config.convergence_steps} must be less than the steps of a phase, "
                f"{self._phase_steps(1)}: a phase would always end first"
            )
        self.model_optimizer = ModelOptimizer(objective, config, reduce)
        if config.sampling != "none":
            self.judged_on = "train"
        if config.selection == "perturbation":
            self.finishing = "deciding the nodes"
        groups = objective.supernet.architecture()
        self.phases = ["intra", "inter"] if config.learn == "joint" else [config.learn]
        rates = {"intra": config.arch_learning_rate, "inter": config.inter_learning_rate}
        self.groups = {name: groups[name] for name in self.phases}
        self.optimizers = {
            name: torch.optim.Adam(
                self.groups[name], lr=rates[name], betas=(0.9, config.arch_beta2), weight_decay=config.arch_weight_decay
            )
            for name in self.phases
        }
        self.paths = {name: [health.flatten(group)] for name, group in self.groups.items()}  # in this epoch
        self.earlier: deque[list[str]] = deque(maxlen=health.EPOCHS)  # the nodes after the last epochs
        self.health: health.Health | None = None  # at the end of the last epoch
        self.selected: Genotype | None = None  # by perturbation, at the end
        self.margins: list[float] = []  # of its decisions
        self.windows = {name: health.Convergence(config.convergence, config.convergence_steps) for name in self.phases}
        self.phase, self.steps_in_phase = 0, 0
        self.curve: list[dict[str, float]] = []  # MAD in the course of this epoch

    @staticmethod
    def contradictions(config: SearchSettings) -> list[str]:
        """Return a sentence for each setting without effect, and for too few epochs."""
        sampled, perturbed = config.sampling != "none", config.selection == "perturbation"
        checks = [
            (config.epochs == 0, "epochs must be at least 1 for strategy gradient"),
            (0 < config.epochs <= config.warmup_epochs,
             f"warmup_epochs {config.warmup_epochs} must be less than epochs {config.epochs}: else no architecture "
             "weight learns"),
            (not sampled and changed(config, "temperature", "temperature_end"),
             "temperature and temperature_end belong to sampling gumbel and straight-through, not none"),
            (sampled and config.temperature_end > config.temperature,
             f"temperature {config.temperature} must not be below temperature_end, {config.temperature_end}"),
            (not perturbed and changed(config, "selection_steps"),
             f"selection_steps belongs to selection perturbation, not {config.selection}"),
            (perturbed and config.most_identity is not None,
             "most_identity belongs to selection argmax: perturbation keeps what the supernet misses the most"),
        ]  # fmt: skip
        return [message for wrong, message in checks if wrong]

    @staticmethod
    def extendable(config: SearchSettings) -> bool:
        """Return True if neither learning rate nor temperature depends on the number of epochs."""
        return Strategy.extendable(config) and config.sampling == "none"

    @staticmethod
    def count_min_sequences(config: SearchSettings) -> int:
        """Return 2 for a relaxed cell, whose states are normalised over the batch."""
        return 1 if config.learn == "inter" else 2

    @staticmethod
    def method(config: SearchSettings) -> str:
        """Return relaxation, order and searched parts."""
        order = ("first", "second")[config.order - 1]
        parts = {"intra": "cell", "inter": f"gates around {config.fixed}", "joint": "cell and gates"}[config.learn]
        return f"{config.relaxation}, {order} order, {parts}, n = {config.edges_per_node}, seed {config.seed}"

    def step(self, epoch: int, step: int) -> StepFigures:
        """Make a step of the architecture weights of the present phase, then one of the model weights."""
        self.selected, self.margins = None, []
        self._set_temperature(epoch, step)
        if step == 0:
            self.curve = []
            self.paths = {name: [health.flatten(group)] for name, group in self.groups.items()}
        training = self.objective.training_batch(epoch, step)
        if epoch <= self.config.warmup_epochs:
            training_loss = self.model_optimizer.step(epoch, step, training)
            return StepFigures(training_loss, None, self.model_optimizer.gradient_norm)
        name = self._turn(epoch)
        validation = self.objective.validation_batch(epoch, step)
        group = self.groups[name]
        options: dict[str, Any] = {"architecture": group, "reduce": self.reduce}
        if self.config.order == 1:
            validation_loss, gradients = first_order(self.objective, validation, **options)
        else:
            options |= {"weight_decay": self.config.weight_decay, "clip": self.model_optimizer.clip(training)}
            options["learning_rate"] = self.model_optimizer.learning_rate(epoch, training)
            validation_loss, gradients = second_order(self.objective, training, validation, **options)
        check_finite(self.objective, "validation", epoch, step, validation_loss, group, gradients)
        clip_gradients(gradients, self.config.arch_clip)
        apply_gradients(self.optimizers[name], group, gradients)
        training_loss = self.model_optimizer.step(epoch, step, training)
        deviations = self.deviations()
        self.windows[name].add(deviations[name], group)
        self.paths[name].append(health.flatten(group))
        self.steps_in_phase += 1
        if (step + 1) % max(1, self.steps(epoch) // _CURVE) == 0:
            self.curve.append({"step": step + 1, **deviations})
        return StepFigures(training_loss, validation_loss, self.model_optimizer.gradient_norm)

    def _turn(self, epoch: int) -> str:
        """Return the part to learn now: in a joint search the phases alternate, by convergence or budget."""
        if len(self.phases) == 1:
            return self.phases[0]
        if self.steps_in_phase >= self._phase_steps(epoch) or self.windows[self.phases[self.phase]].converged:
            self.phase, self.steps_in_phase = 1 - self.phase, 0
            name = self.phases[self.phase]
            self.windows[name].restart()
            if self.config.fresh_moments:
                self.optimizers[name].state.clear()
        return self.phases[self.phase]

    def _set_temperature(self, epoch: int, step: int) -> None:
        """Lower the temperature of sampled mixing weights evenly, from the first step to the last."""
        config, sampler = self.config, self.objective.supernet.sampler
        if config.sampling != "none":
            done = min(1.0, (epoch - 1 + step / max(1, self.steps(epoch) - 1)) / config.epochs)
            sampler.temperature = config.temperature + done * (config.temperature_end - config.temperature)
            sampler.straight_through = config.sampling == "straight-through"

    def _phase_steps(self, epoch: int) -> int:
        """Return the steps of a phase: if not set, about 115, an odd number of phases an epoch, three at least.

        Both streams of data begin anew with an epoch. With an even number, cell and gates would each learn on the same
        part of the data in every epoch.
        """
        if self.config.phase_steps:
            return self.config.phase_steps
        steps = self.steps(epoch)
        if self.half_epochs:
            return -(-steps // 2)
        count = 2 * round((steps / _PHASE_STEPS - 1) / 2) + 1
        phase = -(-steps // max(3, count))
        return phase if steps % (2 * phase) else phase + 1

    def deviations(self) -> dict[str, float]:
        """Compute MAD of the parts that are learned."""
        deviations = self.objective.supernet.mean_absolute_deviations()
        return {name: deviations[name] for name in self.phases}

    def figures(self) -> JSON:
        """Return MAD of each part, now and in the course of the epoch, and the present phase."""
        return {"mad": self.deviations(), "mad_curve": self.curve, "phase": self.phases[self.phase]}

    def end_epoch(self) -> JSON:
        """Return the figures, the health of the search in this epoch, and the mixing weights after it."""
        supernet, config = self.objective.supernet, self.config
        margins = supernet.margins(config.edges_per_node, config.avoid_first)
        self.health = health.measure_health(self.paths, margins, self.genotype(), self.earlier)
        tables = supernet.mixing_tables()
        mixing = {name: [[round(p, 4) for p in row] for row in table.tolist()] for name, table in tables.items()}
        return {**self.figures(), "health": self.health, "mixing": mixing}

    def cost(self, history: Sequence[JSON]) -> float | None:
        """Return the cost on the validation part; for sampled cells on the training part, where alone they run."""
        if self.judged_on == "valid":
            return super().cost(history)
        loss: float | None = history[-1]["train_loss"]
        return loss if self.objective.metric.from_loss else None

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return a plain sentence on the genotype."""
        if self.selected:  # older searches kept no margins
            return health.judge_decisions(self.margins) if self.margins else "decided by perturbation"
        sampled = self.config.sampling != "none"  # then the mixture that is evaluated was never trained
        losses = [] if sampled else [line["dev_loss"] for line in history]
        training = [line["train_loss"] for line in history]
        return health.judge_weights(self.health, losses, training) if self.health else ""

    def converged(self) -> bool:
        """Return True if every part's MAD has settled; in a joint search, in the part's last phase."""
        return all(window.settled for window in self.windows.values())

    def finish(self, progress: bool) -> None:
        """Select the genotype by perturbation, if the settings say so."""
        if self.config.selection == "perturbation":
            last = self.config.epochs
            self._set_temperature(last, self.steps(last) - 1)  # a search that goes on here has made no step
            randomness = random_state()
            self.selected, self.margins = select_by_perturbation(
                self.objective, self.config, self.model_optimizer, self.reduce, progress
            )
            restore_random_state(randomness)  # for a search that is extended

    def genotype(self) -> Genotype:
        """Return the genotype that perturbation selected, or derive one from the present architecture weights."""
        config = self.config
        return self.selected or self.objective.supernet.genotype(
            config.edges_per_node, config.avoid_first, config.most_identity
        )

    def state_dict(self) -> JSON:
        """Return the state of optimizers, phases, convergence and health."""
        return {
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "windows": {name: window.state() for name, window in self.windows.items()},
            "phase": self.phase,
            "steps_in_phase": self.steps_in_phase,
            "half_epochs": self.half_epochs,
            "changes": list(self.earlier),
            "health": self.health,
            "selected": self.selected and self.selected.to_json(),
            "margins": self.margins,
        }

    def load_state_dict(self, state: JSON) -> None:
        """Restore a state; older versions kept less."""
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
            self.windows[name].restore(state["windows"][name])
        self.phase, self.steps_in_phase = state["phase"], state["steps_in_phase"]
        self.earlier.extend(state.get("changes", []))
        self.health = state.get("health")
        self.selected = Genotype.from_json(state["selected"]) if state.get("selected") else None
        self.margins = state.get("margins", [])
        self.half_epochs = state.get("half_epochs", True)
