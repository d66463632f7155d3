"""Figures of each task of a continual search while the search goes on to others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flair_nas.errors import FlairNasError
from flair_nas.runs.metric import Metric
from flair_nas.search.build import make_objective
from flair_nas.search.continual import Stage, check_space, load_stage, take_weights
from flair_nas.search.flair_config import FlairSearchConfig
from flair_nas.search.health import fall_short
from flair_nas.search.processes import make_accelerator
from flair_nas.search.settings import ContinualSettings
from flair_nas.storage.paths import user_path


class TaskFigures(NamedTuple):
    """Metric of a task after its own stage and each later one."""

    name: str  # the folder of its search
    metric: Metric
    values: list[float]  # after its own stage first
    unlearned: str = ""  # a clause on a task on which its own stage learned nothing

    @property
    def forgetting(self) -> float:
        """Loss of quality from the task's own stage to the last; negative for a gain."""
        change = self.values[-1] - self.values[0]
        return -change if self.metric.higher_is_better else change


def evaluate_stages(folders: Sequence[str | Path], part: str = "valid") -> Iterator[TaskFigures]:
    """Evaluate the task of each search with its genotype and head, and the layer of its own and each later search.

    Each of the finished searches goes on from the one before. The part is ``valid``, or ``test`` of tags and classes.
    """
    stages = [load_stage(folder) for folder in folders]
    if len(stages) < 2:
        raise FlairNasError(f"at least two searches are needed, each --after the one before; got {len(stages)}")
    for earlier, later in zip(stages, stages[1:]):
        after = later.config.continual.after
        if after is None or user_path(after).resolve() != earlier.folder.resolve():
            raise FlairNasError(
                f"{later.folder} did not begin with the weights of {earlier.folder}; give the searches in their order, "
                "each --after the one before"
            )
        check_space(earlier, later.config)
    for number, stage in enumerate(stages):
        objective = load_task(stage, part)
        figures = []
        for later in stages[number:]:
            take_weights(objective, later)
            figures.append(objective.evaluate())
        metric = objective.metric
        unlearned = fall_short(metric.cost(figures[0]), objective.guess(), metric, f"its {part}")
        yield TaskFigures(str(stage.folder), metric, [float(evaluation.value) for evaluation in figures], unlearned)


def load_task(stage: Stage, part: str = "valid") -> Any:
    """Return the objective of a finished search, with its weights and genotype, which evaluates a part of its data."""
    config = dataclasses.replace(stage.config, continual=ContinualSettings())
    objective: Any = make_objective(config, make_accelerator(config.device, config.precision))
    if objective.fingerprint != stage.data:
        raise FlairNasError(
            f"{stage.folder}: its data have changed since the search; they are now those of {objective.name}"
        )
    if part == "test":
        if not isinstance(config, FlairSearchConfig):
            raise FlairNasError(f"{stage.folder}: {part} is for searches on tags and classes alone")
        objective.use_test()
    objective.module.load_state_dict(stage.weights)
    objective.supernet.choose(stage.genotype)
    return objective
