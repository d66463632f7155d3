"""Objectives and supernets, built from settings and data."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator

from flair_nas.errors import FlairNasError
from flair_nas.runs.memory import check_fits
from flair_nas.search.config import SearchSettings
from flair_nas.search.processes import by_main
from flair_nas.search.protocols import Data, Objective, Strategy
from flair_nas.search.registry import OBJECTIVES, strategy_class
from flair_nas.supernet import CellSupernet, InterCellSupernet

if TYPE_CHECKING:
    from flair_nas.search.bilevel import Reduce
    from flair_nas.search.continual import Stage

log = logging.getLogger("flair_nas")


def make_objective(
    config: SearchSettings,
    accelerator: Accelerator,
    *,
    data: Data = None,
    make: Callable[[Accelerator], Objective] | None = None,
    progress: bool = False,
) -> Objective:
    """Make the objective that the settings name; `search_genotype` says what `data` and `make` put in its place.

    Raises:
        FlairNasError: data that cannot be used, or settings that contradict them.
    """
    stage = None
    if config.after is not None:  # before data are read, which may take a while
        from flair_nas.search.continual import check_like, load_stage

        stage = load_stage(config.after)
        check_like(stage, config)
    if make is not None:
        return _continued(make(accelerator), config, stage)
    kind: Any = importlib.import_module(f"flair_nas.search.objectives.{OBJECTIVES[config.objective]}")
    corpus = by_main(accelerator, lambda: kind.read(config, data, progress))
    if corpus is None:  # the main process has put it into a cache
        corpus = kind.read(config, data)
    return _continued(kind.build(config, corpus, accelerator), config, stage)


def _continued(objective: Objective, config: SearchSettings, stage: Stage | None) -> Objective:
    if stage is not None or config.sparsity:
        from flair_nas.search.continual import continue_from

        continue_from(objective, config, stage)
    return objective


def make_strategy(objective: Objective, config: SearchSettings, reduce: Reduce | None) -> Strategy:
    """Make the strategy that the settings name; with `retrain_epochs` its genotype trains alone in the last ones."""
    if config.retrain_epochs:
        from flair_nas.search.strategies.retrained import Retrained

        return Retrained(objective, config, reduce)
    return strategy_class(config.strategy)(objective, config, reduce)


def log_derived_settings(objective: Objective) -> None:
    """Log the settings that follow from the data, if any."""
    if objective.derived:
        log.info("%s: %s", objective.name, objective.derived)


def build_supernet(
    config: SearchSettings, accelerator: Accelerator, input_size: int | None = None
) -> CellSupernet | InterCellSupernet:
    """Build the supernet that the settings describe. Seeds the generators first. Its input size is D, if not H.

    Raises:
        FlairNasError: a batch that its processes and parts do not divide, or that is too small for them.
    """
    processes = accelerator.num_processes
    columns, rest = divmod(config.batch_size, config.parts * processes)
    if rest:
        raise FlairNasError(
            f"batch_size {config.batch_size} cannot be divided among {processes} processes with {config.parts} parts "
            "each"
        )
    min_columns = strategy_class(config.strategy).count_min_sequences(config)
    if columns < min_columns:
        raise FlairNasError(
            f"batch_size {config.batch_size} leaves less than {min_columns} sequences in a part of a process, with "
            f"{processes} processes and {config.parts} parts each: batch normalisation needs {min_columns}"
        )

    same = ("gate", "carry", "gate_links", "init_range", "input_dropout", "recurrent_dropout", "history", "relaxation")
    options: dict[str, Any] = {name: getattr(config, name) for name in same}
    sizes, fixed = (input_size or config.hidden_size, config.hidden_size), config.fixed_genotype()

    def build() -> CellSupernet | InterCellSupernet:
        if config.learn == "inter":
            assert fixed is not None
            return InterCellSupernet(*sizes, fixed, **options)
        options.update(recurrence=config.recurrence, range_of=strategy_class(config.strategy).range_of)
        return CellSupernet(*sizes, config.nodes, fixed_gates=fixed, **options)

    check_fits(build, accelerator.device, f"hidden_size {config.hidden_size}, nodes {config.nodes}")
    torch.manual_seed(config.seed)
    return build()


def seed_processes(config: SearchSettings, accelerator: Accelerator) -> None:
    """Seed each of several processes anew once the model is built: equal weights, but other dropout masks."""
    if accelerator.num_processes > 1:
        torch.manual_seed(config.seed + 1 + accelerator.process_index)
