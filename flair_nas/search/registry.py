"""Objectives and strategies by name, loaded when they are asked for."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # they load torch, which asking for help must not
    from flair_nas.search.config import SearchSettings
    from flair_nas.search.protocols import Strategy

OBJECTIVES = {
    "text": "text",
    "tagging": "tagging",
    "classification": "classification",
    "several": "several",
}
"""Modules of `flair_nas.search.objectives`, by the name of the objective."""

SETTINGS = {
    "tagging": "flair_config:TaggingSearchConfig",
    "classification": "flair_config:ClassificationSearchConfig",
    "several": "several_config:SeveralSearchConfig",
}
"""Settings of objectives other than `SearchConfig`: a module of `flair_nas.search` and a class in it."""

STRATEGIES = {
    "gradient": "gradient:GradientStrategy",
    "random-shared": "random_cells:SharedRandomSearch",
    "random-independent": "random_cells:IndependentRandomSearch",
    "evolution": "children:Evolution",
    "local-search": "children:LocalSearch",
    "enas": "enas:ControllerSearch",
}
"""Strategies, by name: a module of `flair_nas.search.strategies` and a class in it."""

TRAINED_ALONE = ("random-independent", "evolution", "local-search")
"""Strategies that train each candidate on its own."""


def settings_class(objective: str) -> type[SearchSettings]:
    """Return the class of the settings of an objective."""
    settings: type[SearchSettings] = resolve_name(f"flair_nas.search.{SETTINGS.get(objective, 'config:SearchConfig')}")
    return settings


def strategy_class(name: str) -> type[Strategy]:
    """Return the class of a strategy."""
    strategy: type[Strategy] = resolve_name(f"flair_nas.search.strategies.{STRATEGIES[name]}")
    return strategy
