"""Objectives and strategies by name, loaded when they are asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # they load torch, which asking for help must not
    from flair_nas.search.config import SearchSettings
    from flair_nas.search.protocols import ObjectiveModule, Strategy

OBJECTIVES = {
    "text": "text",
    "tagging": "tagging",
    "classification": "classification",
}
"""Modules of `flair_nas.search.objectives`, by the name of the objective."""

SETTINGS = {
    "tagging": "flair_config:TaggingSearchConfig",
    "classification": "flair_config:ClassificationSearchConfig",
}
"""Settings of objectives other than `SearchConfig`: a module of `flair_nas.search` and a class in it."""

STRATEGIES = {
    "gradient": "gradient:GradientStrategy",
    "random-shared": "random_shared:SharedRandomSearch",
    "random-independent": "random_independent:IndependentRandomSearch",
}
"""Strategies, by name: a module of `flair_nas.search.strategies` and a class in it."""


def objective_kind(name: str) -> ObjectiveModule:
    """Return the module that reads the data of an objective and builds it."""
    return import_module(f"flair_nas.search.objectives.{OBJECTIVES[name]}")


def settings_class(objective: str) -> type[SearchSettings]:
    """Return the class of the settings of an objective."""
    module, _, attribute = SETTINGS.get(objective, "config:SearchConfig").partition(":")
    settings: type[SearchSettings] = getattr(import_module(f"flair_nas.search.{module}"), attribute)
    return settings


def strategy_class(name: str) -> type[Strategy]:
    """Return the class of a strategy."""
    module, _, attribute = STRATEGIES[name].partition(":")
    strategy: type[Strategy] = getattr(import_module(f"flair_nas.search.strategies.{module}"), attribute)
    return strategy
