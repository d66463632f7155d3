"""Strategies by name."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pkgutil import resolve_name

from flair_nas.search.protocols import Strategy
from flair_nas.search.settings import StrategySettings

STRATEGIES = {
    "gradient": "gradient:GradientStrategy",
    "random-shared": "random_cells:SharedRandomSearch",
    "random-independent": "random_cells:IndependentRandomSearch",
    "evolution": "evolution:Evolution",
    "local-search": "local_search:LocalSearch",
    "predictor": "predictor:PredictorSearch",
    "enas": "enas:ControllerSearch",
}
"""Strategies, by name: a module of `flair_nas.search.strategies` and a class in it."""


def strategy_class(name: str) -> type[Strategy]:
    """Return the class of a strategy."""
    strategy: type[Strategy] = resolve_name(f"flair_nas.search.strategies.{STRATEGIES[name]}")
    return strategy


@functools.cache
def strategy_settings() -> Mapping[str, type[StrategySettings]]:
    """Return the class of the settings of each strategy."""
    return {name: strategy_class(name).settings for name in STRATEGIES}
