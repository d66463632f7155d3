"""Several tasks with one architecture as the objective of a search (MAS, Pasunuru and Bansal, 2019)."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from accelerate import Accelerator
from torch import Tensor, nn

from flair_nas.errors import FlairNasError, brief
from flair_nas.runs.metric import MEAN_COST, Evaluation, Guess
from flair_nas.runs.random_state import random_state, restore_random_state
from flair_nas.search.bilevel import model_weights, validation_loss
from flair_nas.search.protocols import JSON, Batch, BatchPart, Data, Objective, carry_step
from flair_nas.search.several_config import SeveralSearchConfig
from flair_nas.search.tasks import task_module
from flair_nas.supernet import OneTask, SharedSupernet

log = logging.getLogger("flair_nas")

SEGMENTS = 10
"""Validation batches on which the loss of the untrained model is measured."""


def read(config: SeveralSearchConfig, data: Data = None, progress: bool = False) -> list[Data]:
    """Read the data of each task, or check those passed, in the order of the tasks."""
    tasks = config.named_tasks
    if data is not None and (not isinstance(data, list) or len(data) != len(tasks)):
        raise FlairNasError(f"a search on {len(tasks)} tasks takes a list with the data of each, got {brief(data)}")
    corpora = []
    for (name, task), passed in zip(tasks.items(), data or [None] * len(tasks)):
        with _naming(name):
            corpora.append(task_module(task.objective).read(task, passed, progress))
    return corpora


def build(config: SeveralSearchConfig, data: Sequence[Data], accelerator: Accelerator) -> SeveralObjective:
    """Build a model for each task, with one architecture, on the device; seeds the generators."""
    objectives: dict[str, Objective] = {}
    for (name, task), corpus in zip(config.named_tasks.items(), data):
        with _naming(name):
            objectives[name] = task_module(task.objective).build(task, corpus, accelerator)
    for one, other in itertools.combinations(objectives, 2):
        if objectives[one].fingerprint == objectives[other].fingerprint:
            log.warning("tasks %s and %s have the same data", one, other)
    return SeveralObjective(objectives, config)


@contextlib.contextmanager
def _naming(task: str) -> Iterator[None]:
    try:
        yield
    except FlairNasError as error:
        raise FlairNasError(f"task {task}: {error}") from None


def _relative_cost(objective: Objective, cost: float, untrained: float) -> float:
    """Return 1 minus a task's metric as a share, or its loss as a multiple of that of the untrained model."""
    return 1 + cost / 100 if objective.metric.higher_is_better else cost / untrained


class TaskPart(NamedTuple):
    """Part of a step's data, of one task."""

    task: int
    part: BatchPart


class SeveralObjective(Objective):
    """Tasks with models of their own, which share the architecture weights.

    Steps of the model weights take turns. Each step of the architecture weights learns on all tasks by the loss

        L = Σ_i w_i (m / m_i) L_i,  Σ_i w_i = 1,

    where m_i is the loss of the untrained model of task i, and m their mean. MAS has w_i = 1 / n, and rewards on one
    scale.

    Raises:
        FlairNasError: weights to share that have other shapes.
    """

    metric = MEAN_COST

    def __init__(self, objectives: Mapping[str, Objective], config: SeveralSearchConfig) -> None:
        self.tasks, self.objectives, self.config = objectives, list(objectives.values()), config
        self.settings = list(config.named_tasks.values())
        supernets = [cast(OneTask, objective.supernet) for objective in self.objectives]
        try:
            self.supernet = SharedSupernet(supernets, config.shared_weights)
        except ValueError as error:
            raise FlairNasError(
                f"shared_weights: {error}; the layers must read vectors of one width: set reproject: "
                f"{config.hidden_size} in the files of tasks with embeddings"
            ) from None
        self.module = nn.ModuleList(objective.module for objective in self.objectives)
        weights = config.weights or [1.0] * len(self.objectives)
        self.shares = [weight / sum(weights) for weight in weights]
        randomness = random_state()
        self.untrained = [validation_loss(objective, range(SEGMENTS)) for objective in self.objectives]
        restore_random_state(randomness)
        self.restart()
        self.name = "; ".join(f"{name}: {objective.name}" for name, objective in objectives.items())
        tasks = config.portable()["tasks"]
        parts = [f"{objective.fingerprint} {task}" for objective, task in zip(self.objectives, tasks)]
        self.fingerprint = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        turns = ", ".join(f"{name} {count}" for name, count in zip(objectives, self._counts(1)))
        derived = [f"{name}: {objective.derived}" for name, objective in objectives.items() if objective.derived]
        self.derived = "; ".join([f"steps of an epoch: {turns}", *derived])
        self._turns: tuple[int, list[tuple[int, int]]] = (0, [])
        self._starts: list[tuple[int, int]] = []  # where each task is when the epoch of the turns begins

    # --- data ---

    def _counts(self, epoch: int) -> list[int]:
        """Return the steps of each task in an epoch."""
        steps = [objective.steps(epoch) for objective in self.objectives]
        return [min(steps)] * len(steps) if self.config.balance == "equal" else steps

    def steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch, of all tasks."""
        return sum(self._counts(epoch))

    def _turn(self, epoch: int, step: int) -> tuple[int, int]:
        """Return the task of a step, and the number of its step; each task's steps are spread over the epoch evenly."""
        if self._turns[0] != epoch:
            counts = self._counts(epoch)
            places = [(task, step) for task, count in enumerate(counts) for step in range(count)]
            self._turns = epoch, sorted(places, key=lambda place: ((place[1] + 0.5) / counts[place[0]], place[0]))
            done = sum(self._counts(earlier)[0] for earlier in range(1, epoch))  # by each task, if turns are equal
            self._starts = [carry_step(objective, 1, done) for objective in self.objectives]
        return self._turns[1][step]

    def training_batch(self, epoch: int, step: int) -> Batch:
        """Return a batch of the task whose turn it is. Only its weights change: the others do not decay."""
        task, step = self._turn(epoch, step)
        settings, objective = self.settings[task], self.objectives[task]
        if self.config.balance == "equal":  # the task reads on where its last turn ended
            epoch, first = self._starts[task]
            epoch, step = carry_step(objective, epoch, first + step)
        batch = objective.training_batch(epoch, step)
        rate = settings.learning_rate / self.config.learning_rate
        weights = model_weights(self, objective.module)
        return Batch([TaskPart(task, part) for part in batch.parts], rate * batch.scale, settings.clip, weights)

    def validation_batch(self, epoch: int, step: int) -> Batch:
        """Return the parts of all tasks, each going on in its own cycle."""
        batches = [objective.validation_batch(epoch, step) for objective in self.objectives]
        return Batch([TaskPart(task, part) for task, batch in enumerate(batches) for part in batch.parts])

    # --- losses ---

    def training_loss(self, part: TaskPart, keep_state: bool = False) -> Tensor:
        """Compute the training loss of the task."""
        return self.objectives[part.task].training_loss(part.part, keep_state)

    def validation_loss(self, part: TaskPart, keep_state: bool = False) -> Tensor:
        """Compute n w_i (m / m_i) L_i of a part of task i; the mean over the parts of all tasks is the loss."""
        factor = len(self.objectives) * self.shares[part.task]
        factor *= statistics.mean(self.untrained) / self.untrained[part.task]
        return factor * self.objectives[part.task].validation_loss(part.part, keep_state)

    def evaluate(self) -> Evaluation:
        """Compute the weighted mean of the tasks' costs, and the figures of each."""
        costs, tasks = [], dict[str, JSON]()
        for (name, objective), untrained in zip(self.tasks.items(), self.untrained):
            evaluation = objective.evaluate()
            figures = {"dev_loss": evaluation.loss, objective.metric.key: evaluation.value}
            tasks[name] = {key: value if math.isfinite(value) else None for key, value in figures.items()}
            costs.append(_relative_cost(objective, objective.metric.cost(evaluation), untrained))
        cost = sum(weight * cost for weight, cost in zip(self.shares, costs))
        finite = all(figures["dev_loss"] is not None for figures in tasks.values())
        return Evaluation(cost if finite else math.inf, cost, {"tasks": tasks})

    def evaluation_seconds(self) -> float:
        """Measure the evaluation of each task."""
        return sum(objective.evaluation_seconds() for objective in self.objectives)

    def guess(self, part: str = "valid") -> Guess | None:
        """Return the mean cost of the guesses of all tasks on the validation part; None on the training part."""
        if part != "valid":
            return None
        costs = []
        for objective, untrained in zip(self.objectives, self.untrained):
            guess = objective.guess()
            assert guess is not None  # each objective has one
            costs.append(_relative_cost(objective, guess.cost, untrained))
        return Guess("guess", "what each task is compared with", sum(w * c for w, c in zip(self.shares, costs)))

    def restart(self) -> None:
        """Forget the carried states of all tasks."""
        for objective in self.objectives:
            objective.restart()
