"""Objectives on one task by name, and the settings of each."""

from __future__ import annotations

from importlib import import_module
from pkgutil import resolve_name
from typing import Any

from flair_nas.search.config import SearchSettings

TASKS = {
    "text": ("text", "config:SearchConfig"),
    "tagging": ("tagging", "flair_config:TaggingSearchConfig"),
    "classification": ("classification", "flair_config:ClassificationSearchConfig"),
}
"""A module of `flair_nas.search.objectives`, and a module of `flair_nas.search` with the class of the settings."""


def task_settings(name: str) -> type[SearchSettings]:
    """Return the class of the settings of a task."""
    settings: type[SearchSettings] = resolve_name(f"flair_nas.search.{TASKS[name][1]}")
    return settings


def task_module(name: str) -> Any:
    """Return the module of a task, with `read` and `build`; it loads torch."""
    return import_module(f"flair_nas.search.objectives.{TASKS[name][0]}")
