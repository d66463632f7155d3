"""Gradient-based search: steps of architecture weights on the validation loss, of model weights on the training loss.

DARTS (algorithm 1) and I-DARTS learn the cell; ESS (figure 4) learns cell and gates in alternating phases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.runs.metric import Metric
from flair_nas.search import health
from flair_nas.search.protocols import JSON, Objective, StepFigures, Strategy
from flair_nas.search.settings import CommonSettings, StrategySettings
from flair_nas.settings.fields import COUNT, changed, setting

_PHASE_STEPS = 115  # of joint search, from the costs that ESS publishes
_CURVE = 20  # points of an epoch's MAD curve in the history


def _known_relaxation(name: str) -> str:
    if name in ("i-darts", "darts"):  # those of the papers, without PyTorch
        return ""
    from flair_nas.supernet.relaxation import RELAXATIONS

    return "" if name in RELAXATIONS else f"must be one of {', '.join(RELAXATIONS)}"


@dataclass
class GradientSettings(StrategySettings):
    """Settings of a gradient-based search (DARTS, I-DARTS, ESS, SNAS, GDAS, DARTS-PT).

    Example:
        >>> from flair_nas import GradientSettings, SearchConfig
        >>> SearchConfig(text="demo", strategy=GradientSettings(relaxation="darts", order=2)).strategy.order
        2
    """

    relaxation: str = setting(
        "i-darts", "grouping of the softmax: darts (per pair) or i-darts (per node)", check=_known_relaxation
    )
    order: int = setting(1, "order of the architecture gradient, 1 or 2", low=1, high=2)
    avoid_first: bool = setting(False, "nodes after the first do not read s_0, as in the I-DARTS authors' code")
    most_identity: int | None = setting(
        None, "largest number of nodes with an identity edge in the genotype; the least certain take their next best",
        low=0, high=100,
    )  # fmt: skip
    arch_learning_rate: float = setting(3e-3, "learning rate of Adam for weights of the cell", low=1e-12, high=1e6)
    inter_learning_rate: float = setting(1e-3, "learning rate of Adam for weights of the gates", low=1e-12, high=1e6)
    arch_weight_decay: float = setting(1e-3, "weight decay of the architecture weights", low=0, high=1)
    arch_clip: float | None = setting(None, "largest norm of their gradient, of cell or gates", low=1e-12, high=1e12)
    arch_beta2: float = setting(
        0.999, "beta_2 of their Adam; the larger, the longer a large gradient keeps steps small", low=0, high=0.999999
    )
    fresh_moments: bool = setting(False, "learn joint: Adam forgets its moments when a phase begins")
    warmup_epochs: int = setting(0, "first epochs, in which the model weights learn alone", low=0, high=1_000_000)
    phase_steps: int | None = setting(
        None, "learn joint: most steps of a phase, before the other part's turn (about 115)", **COUNT
    )
    convergence: float = setting(
        0.0, "a phase, or a search, ends when MAD changes by less than this share of itself, and the architecture "
        "weights move on in no direction; 0: never", low=0, high=1,
    )  # fmt: skip
    convergence_steps: int = setting(100, "steps over which convergence is measured", **COUNT)
    sampling: str = setting(
        "none", "mixing weights in training: the softmax (none), with Gumbel noise (gumbel, as SNAS), or the strongest "
        "of those alone (straight-through, as GDAS)", choices=("none", "gumbel", "straight-through"),
    )  # fmt: skip
    temperature: float = setting(10.0, "sampling: temperature of the softmax in the first step", low=1e-3, high=1e3)
    temperature_end: float = setting(0.1, "sampling: temperature in the last step; it falls evenly", low=1e-3, high=1e3)
    selection: str = setting(
        "argmax", "derivation of the genotype at the end: argmax, the strongest edges; or perturbation, the edges that "
        "the supernet misses most (DARTS-PT)", choices=("argmax", "perturbation"),
    )  # fmt: skip
    selection_steps: int = setting(
        20, "selection perturbation: steps of the model weights between two decisions", low=0, high=1_000_000
    )
    sample_segments: int = setting(10, "validation segments of the first score of a candidate, or of a choice", **COUNT)

    def problems(self, config: CommonSettings) -> list[str]:
        """Return a sentence for each setting without effect, and for too few epochs."""
        sampled, perturbed, joint = self.sampling != "none", self.selection == "perturbation", config.learn == "joint"
        checks = [
            (config.epochs <= self.warmup_epochs,
             f"warmup_epochs {self.warmup_epochs} must be less than epochs {config.epochs}: else no architecture "
             "weight learns"),
            (config.learn == "inter" and (self.avoid_first or self.most_identity is not None),
             "avoid_first and most_identity are of a cell that is searched: learn must be intra or joint"),
            (config.learn == "intra" and changed(self, "inter_learning_rate"),
             "inter_learning_rate is of gates that are searched: learn must be inter or joint"),
            *((not joint, f"{name} belongs to learn joint, not {config.learn}")
              for name in changed(self, "fresh_moments", "phase_steps")),
            (self.convergence and self.phase_steps is not None and self.convergence_steps >= self.phase_steps,
             f"convergence_steps {self.convergence_steps} must be less than phase_steps {self.phase_steps}: a phase "
             "would always end first"),
            (not sampled and changed(self, "temperature", "temperature_end"),
             "temperature and temperature_end belong to sampling gumbel and straight-through, not none"),
            (sampled and self.temperature_end > self.temperature,
             f"temperature {self.temperature} must not be below temperature_end, {self.temperature_end}"),
            (not perturbed and changed(self, "selection_steps"),
             f"selection_steps belongs to selection perturbation, not {self.selection}"),
            (perturbed and self.most_identity is not None,
             "most_identity belongs to selection argmax: perturbation keeps what the supernet misses the most"),
        ]  # fmt: skip
        return [message for wrong, message in checks if wrong]

    def extendable(self, config: CommonSettings) -> bool:
        """Return True if neither learning rate nor temperature depends on the number of epochs."""
        return super().extendable(config) and self.sampling == "none"

    def method(self, config: CommonSettings) -> str:
        """Return relaxation, order and searched parts."""
        order = ("first", "second")[self.order - 1]
        parts = {"intra": "cell", "inter": f"gates around {config.fixed}", "joint": "cell and gates"}[config.learn]
        return f"{self.relaxation}, {order} order, {parts}, n = {config.edges_per_node}, seed {config.seed}"


class GradientStrategy(Strategy):
    """Gradient-based search, first or second order, of the cell, the gates, or both in phases.

    With sampled mixing weights it is judged on the training part: no mixture was trained.

    Raises:
        FlairNasError: phases that are too short to tell whether MAD has settled.
    """

    settings = GradientSettings
    own: GradientSettings

    def __init__(self, objective: Objective, config: CommonSettings, settings: Any) -> None:
        from flair_nas.search.bilevel import ArchitectureOptimizer, ModelOptimizer

        self.objective, self.config, self.own = objective, config, settings
        if config.learn == "joint" and settings.convergence and settings.convergence_steps >= self._phase_steps(1):
            raise FlairNasError(
                f"convergence_steps {settings.convergence_steps} must be less than the steps of a phase, "
                f"{self._phase_steps(1)}: a phase would always end first"
            )
        self.is_sampled = settings.sampling != "none"
        self.judged_on = "train" if self.is_sampled else "valid"
        self.finishing = "deciding the nodes" if settings.selection == "perturbation" else ""
        self.model_optimizer = ModelOptimizer(objective, config)
        groups = objective.supernet.architecture()
        self.phases = ["intra", "inter"] if config.learn == "joint" else [config.learn]
        rates = {"intra": settings.arch_learning_rate, "inter": settings.inter_learning_rate}
        self.groups = {name: groups[name] for name in self.phases}
        self.optimizers = {
            name: ArchitectureOptimizer(
                self.model_optimizer, group, settings.order, settings.arch_clip, lr=rates[name],
                betas=(0.9, settings.arch_beta2), weight_decay=settings.arch_weight_decay,
            )
            for name, group in self.groups.items()
        }  # fmt: skip
        self.paths = {name: [health.flatten(group)] for name, group in self.groups.items()}  # in this epoch
        self.earlier: deque[list[str]] = deque(maxlen=health.EPOCHS)  # the nodes after the last epochs
        self.health: health.Health | None = None  # at the end of the last epoch
        self.selected: Genotype | None = None  # by perturbation, at the end
        self.margins: list[float] = []  # of its decisions
        window = (settings.convergence, settings.convergence_steps)
        self.windows = {name: health.Convergence(*window) for name in self.phases}
        self.phase, self.steps_in_phase = 0, 0
        self.curve: list[dict[str, float]] = []  # MAD in the course of this epoch

    def step(self, epoch: int, step: int) -> StepFigures:
        """Make a step of the architecture weights of the present phase, then one of the model weights."""
        self.selected, self.margins = None, []
        self._set_temperature(epoch, step)
        if step == 0:
            self.curve = []
            self.paths = {name: [health.flatten(group)] for name, group in self.groups.items()}
        training, validation_loss = self.objective.training_batch(epoch, step), None
        if is_warm := epoch > self.own.warmup_epochs:
            name = self._turn(epoch)
            validation = self.objective.validation_batch(epoch, step)
            validation_loss = self.optimizers[name].step(epoch, step, training, validation)
        training_loss = self.model_optimizer.step(epoch, step, training)
        deviations = self._deviations()
        if is_warm:
            self.windows[name].add(deviations[name], self.groups[name])
            self.paths[name].append(health.flatten(self.groups[name]))
            self.steps_in_phase += 1
            if (step + 1) % max(1, self.objective.steps(epoch) // _CURVE) == 0:
                self.curve.append({"step": step + 1, **deviations})
        return StepFigures(training_loss, validation_loss, self.model_optimizer.gradient_norm, deviations)

    def _turn(self, epoch: int) -> str:
        """Return the part to learn now. In a joint search, a phase ends by convergence or by its budget."""
        ended = self.steps_in_phase >= self._phase_steps(epoch) or self.windows[self.phases[self.phase]].converged
        if ended and len(self.phases) > 1:
            self.phase, self.steps_in_phase = 1 - self.phase, 0
            name = self.phases[self.phase]
            self.windows[name].restart()
            if self.own.fresh_moments:
                self.optimizers[name].adam.state.clear()
        return self.phases[self.phase]

    def _set_temperature(self, epoch: int, step: int) -> None:
        """Lower the temperature of sampled mixing weights evenly, from the first step to the last."""
        own, sampler = self.own, self.objective.supernet.sampler
        if self.is_sampled:
            place = step / max(1, self.objective.steps(epoch) - 1)
            done = min(1.0, (epoch - 1 + place) / self.config.epochs)
            sampler.temperature = own.temperature + done * (own.temperature_end - own.temperature)
            sampler.straight_through = own.sampling == "straight-through"

    def _phase_steps(self, epoch: int) -> int:
        """Return the steps of a phase: if not set, about 115, with an odd number of phases in an epoch, at least three.

        With an even number, cell and gates would each learn on the same part of the data in every epoch.
        """
        if self.own.phase_steps:
            return self.own.phase_steps
        steps = self.objective.steps(epoch)
        count = 2 * round((steps / _PHASE_STEPS - 1) / 2) + 1
        phase = -(-steps // max(3, count))
        return phase if steps % (2 * phase) else phase + 1

    def _deviations(self) -> dict[str, float]:
        """Compute MAD of the parts that are learned."""
        deviations = self.objective.supernet.mean_absolute_deviations()
        return {name: deviations[name] for name in self.phases}

    def end_epoch(self) -> JSON:
        """Return MAD, the phase, the health of the search in this epoch, and the mixing weights after it."""
        margins = self.objective.supernet.margins(self.config.edges_per_node, self.own.avoid_first)
        self.health = health.measure_health(self.paths, margins, self.genotype(), self.earlier)
        tables = self.objective.supernet.mixing_tables()
        return {
            "mad": self._deviations(),
            "mad_curve": self.curve,
            "phase": self.phases[self.phase],
            "health": self.health,
            "mixing": {name: [[round(p, 4) for p in row] for row in table.tolist()] for name, table in tables.items()},
        }

    def converged(self) -> bool:
        """Return True if every part's MAD has settled; in a joint search, in the part's last phase."""
        return all(window.settled for window in self.windows.values())

    def finish(self, progress: bool) -> None:
        """Select the genotype by perturbation, if the settings say so."""
        if self.own.selection != "perturbation":
            return
        from flair_nas.runs.random_state import random_state, restore_random_state
        from flair_nas.search.perturbation import select_by_perturbation

        last = self.config.epochs
        self._set_temperature(last, self.objective.steps(last) - 1)  # a search that goes on here has made no step
        randomness = random_state()
        self.selected, self.margins = select_by_perturbation(self.model_optimizer, self.own, progress)
        restore_random_state(randomness)  # for a search that is extended

    def genotype(self) -> Genotype:
        """Return the genotype that perturbation selected, or derive one from the present architecture weights."""
        return self.selected or self.objective.supernet.genotype(
            self.config.edges_per_node, self.own.avoid_first, self.own.most_identity
        )

    def state_dict(self) -> JSON:
        """Return the state of optimizers, phases, convergence and health."""
        return {
            "optimizers": {name: optimizer.adam.state_dict() for name, optimizer in self.optimizers.items()},
            "windows": {name: window.state() for name, window in self.windows.items()},
            "phase": self.phase,
            "steps_in_phase": self.steps_in_phase,
            "changes": list(self.earlier),
            "health": self.health,
            "selected": self.selected and self.selected.to_json(),
            "margins": self.margins,
        }

    def load_state_dict(self, state: JSON) -> None:
        """Restore a state."""
        for name, optimizer in self.optimizers.items():
            optimizer.adam.load_state_dict(state["optimizers"][name])
            self.windows[name].restore(state["windows"][name])
        self.phase, self.steps_in_phase = state["phase"], state["steps_in_phase"]
        self.earlier.extend(state["changes"])
        self.health, self.margins = state["health"], state["margins"]
        self.selected = Genotype.from_json(state["selected"]) if state["selected"] else None

    def cost(self, history: Sequence[JSON], metric: Metric) -> float | None:
        """Return the cost on the part that the search is judged on."""
        if not self.is_sampled:
            return super().cost(history, metric)
        loss: float | None = history[-1]["train_loss"]
        return loss if metric.from_loss else None

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return a plain sentence on the genotype."""
        if self.selected:
            return health.judge_decisions(self.margins)
        losses = [] if self.is_sampled else [line["dev_loss"] for line in history]
        training = [line["train_loss"] for line in history]
        return health.judge_weights(self.health, losses, training) if self.health else ""
