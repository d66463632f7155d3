"""Settings of a search on several tasks at once (MAS, Pasunuru and Bansal, 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from flair_nas.errors import FlairNasError, brief, did_you_mean, shown
from flair_nas.search.config import SearchSettings
from flair_nas.search.tasks import TASKS, task_settings
from flair_nas.settings.fields import COUNT, changed, flatten, get_all_kinds, make_settings, problems_in, setting
from flair_nas.settings.resolve import parse_mapping, read_mapping, settings_in

OF_TASKS = ("batch_size", "learning_rate", "clip", "recurrent_dropout", "input_dropout")
"""Settings of every search that each task has for itself here."""


@dataclass
class SeveralSearchConfig(SearchSettings):
    """Settings of `search_genotype` on several tasks; each is also a flag of ``flair-nas search --objective several``.

    The tasks have one architecture. A task has the settings of a search with its objective, but only those of its
    data, embeddings, dropouts and model weights.

    Raises:
        FlairNasError: settings that cannot be used or contradict each other; it names all of them.
    """

    objective: str = setting("several", "task of the model: several", choices=("several",))
    tasks: list[str] = setting(
        [], "files of settings, one for each task: its objective, data, embeddings, dropouts, batches, learning rate"
    )
    weights: list[float] = setting(
        [], "weights of the tasks in the loss of the architecture weights (equal ones)", low=0, high=1e6
    )
    balance: str = setting(
        "equal", "turns of the tasks in training: equal, as many as the smallest has batches; or by size",
        choices=("equal", "size"),
    )  # fmt: skip
    shared_weights: bool = setting(False, "the tasks also share the weights of the recurrent layer, not the rest")
    hidden_size: int = setting(64, "hidden size H of each task, and on text size D of the embedding", **COUNT)
    weight_decay: float = setting(0.0, "weight decay of the model weights", low=0, high=1)

    def __post_init__(self) -> None:
        if isinstance(self.tasks, list):  # a run keeps what the files say now
            self.tasks = [_as_line(task) for task in self.tasks]
        super().__post_init__()

    @property
    def unshared(self) -> str:
        """Setting that lets the cells of one task share no weights, in words."""
        return "objective several"

    def batch_problems(self, processes: int = 1) -> list[str]:
        """Return nothing: each task has batches of its own."""
        return []

    def contradictions(self) -> list[str]:
        """Return a sentence for each contradiction; settings out of range may have any type."""
        problems = super().contradictions()
        problems += [f"{name} belongs to each task, in its file" for name in changed(self, *OF_TASKS)]
        if len(self.tasks) < 2:
            problems.append(f"tasks must be at least two, got {len(self.tasks)}: a single one has its own objective")
        if self.weights and (len(self.weights) != len(self.tasks) or not any(self.weights)):
            problems.append(
                f"weights must be as many as the tasks, {len(self.tasks)}, and not all 0, got {brief(self.weights)}"
            )
        if problems or problems_in(type(self), flatten(self)):
            return problems  # else each task would repeat them
        self.named_tasks: dict[str, SearchSettings] = {}  # as searches of their own would have them
        for number, line in enumerate(self.tasks, 1):
            name = str(number)
            try:
                task = parse_mapping(line.encode(), "its settings")
                name = str(task.pop("name", name))
                if name in self.named_tasks:
                    raise FlairNasError("another task has this name: each needs a name of its own (name: …)")
                self.named_tasks[name] = self._make(task)
            except FlairNasError as error:
                problems.append(f"task {name}: {error}")
        return problems

    def _make(self, task: dict[Any, Any]) -> SearchSettings:
        objective = str(task.get("objective", "text"))
        if objective not in TASKS:
            hint = did_you_mean(objective, TASKS)
            raise FlairNasError(f"unknown objective {brief(objective)}; {hint}there are {', '.join(TASKS)}")
        if "objective" not in task and "corpus" in task:
            raise FlairNasError("it names a corpus, and a task is on text by default: add objective: tagging")
        own = settings_in(task, task_settings(objective), "its settings")
        whole = self._shared_settings()
        if common := [f"{name} {brief(own[name])} (there {brief(whole[name])})" for name in own if name in whole]:
            raise FlairNasError(f"it has settings that belong to the whole search: {', '.join(common)}")
        if own.get("directions", "shared") != "shared":
            raise FlairNasError(f"it sets directions {brief(own['directions'])}, and all have one architecture")
        return make_settings(task_settings(objective), whole | own)

    def _shared_settings(self) -> dict[str, Any]:
        """Return the settings that the tasks have in common, by name."""
        known = get_all_kinds(SearchSettings).keys() - {*OF_TASKS, "objective"}
        return {name: value for name, value in flatten(self).items() if name in known}

    def portable(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults, without places, also of the tasks."""
        tasks = [
            {"name": name, "objective": task.objective} | task.portable() for name, task in self.named_tasks.items()
        ]
        whole = self._shared_settings()
        own = [{key: value for key, value in task.items() if key not in whole} for task in tasks]
        return super().portable() | {"tasks": [_as_line(task) for task in own]}


def _as_line(task: str | dict[str, Any]) -> str:
    """Return the settings of a task, those in a file with its name, as one line of YAML."""
    if isinstance(task, str):
        if task.lstrip().startswith("{"):
            return task
        task = {"name": Path(task).stem} | read_mapping(task)
    try:
        line = yaml.safe_dump(task, default_flow_style=True, width=float("inf"), sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        raise FlairNasError(f"a task has something else than text and numbers ({shown(error)})") from None
    return line.strip()


OBJECTIVES = (*TASKS, "several")
"""Names of all objectives: those on one task, and that on several."""


def settings_class(objective: str) -> type[SearchSettings]:
    """Return the class of the settings of an objective. Raise a FlairNasError for an unknown one."""
    if objective not in OBJECTIVES:
        raise FlairNasError(f"objective must be one of {', '.join(OBJECTIVES)}, got {brief(objective)}")
    return SeveralSearchConfig if objective == "several" else task_settings(objective)
