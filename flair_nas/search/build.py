"""Objectives and strategies, built from settings and data."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

from accelerate import Accelerator

from flair_nas.search.config import SearchSettings
from flair_nas.search.continual import check_space, continue_from, load_stage
from flair_nas.search.objectives import several
from flair_nas.search.processes import by_main
from flair_nas.search.protocols import Data, Objective, Strategy
from flair_nas.search.registry import strategy_class
from flair_nas.search.several_config import settings_class
from flair_nas.search.strategies.retrained import Retrained
from flair_nas.search.tasks import task_module
from flair_nas.settings.fields import check_config

log = logging.getLogger("flair_nas")


def make_objective(
    config: SearchSettings,
    accelerator: Accelerator,
    *,
    data: Data = None,
    make: Callable[[Accelerator], Objective] | None = None,
    progress: bool = False,
) -> Objective:
    """Make the objective of the settings. `data` or `make` take its place as in `search_genotype`."""
    stage = None
    if config.continual.after is not None:  # before data are read, which may take a while
        stage = load_stage(config.continual.after)
        check_space(stage, config)
    if make is None:
        check_config(config, settings_class(config.objective))
        kind = several if config.objective == "several" else task_module(config.objective)
        # the main process has put the data into a cache when the others read them
        corpus = by_main(accelerator, lambda: kind.read(config, data, progress)) or kind.read(config, data)
        objective: Objective = kind.build(config, corpus, accelerator)
    else:
        objective = make(accelerator)
    continue_from(objective, config.continual, stage)
    return objective


def log_derived_settings(objective: Objective) -> None:
    """Log the settings that follow from the data, if any."""
    if objective.derived:
        log.info("%s: %s", objective.name, objective.derived)


def make_strategy(objective: Objective, config: SearchSettings) -> Strategy:
    """Make the strategy that the settings name; with `retrain_epochs` its genotype trains alone in the last ones."""
    make, last = strategy_class(config.strategy_name), config.continual.retrain_epochs
    if not last:
        return make(objective, config, config.own)
    alone = dataclasses.replace(config.continual, retrain_epochs=0)
    first = dataclasses.replace(config, epochs=config.epochs - last, continual=alone)
    search = make(objective, first, first.own)
    return Retrained(search, first.epochs, objective, config)
