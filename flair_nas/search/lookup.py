"""All objectives by name: those on one task, and that on several."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from flair_nas.errors import FlairNasError, brief
from flair_nas.search.config import SearchSettings
from flair_nas.search.several_config import SeveralSearchConfig
from flair_nas.search.tasks import TASKS, task_module, task_settings

OBJECTIVES = (*TASKS, "several")
"""Names of the objectives."""


def settings_class(objective: str) -> type[SearchSettings]:
    """Return the class of the settings of an objective.

    Raises:
        FlairNasError: an unknown objective.
    """
    if objective not in OBJECTIVES:
        raise FlairNasError(f"objective must be one of {', '.join(OBJECTIVES)}, got {brief(objective)}")
    return SeveralSearchConfig if objective == "several" else task_settings(objective)


def objective_module(objective: str) -> Any:
    """Return the module of an objective, with `read` and `build`; it loads torch."""
    return import_module("flair_nas.search.objectives.several") if objective == "several" else task_module(objective)
