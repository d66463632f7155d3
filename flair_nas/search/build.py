"""Objectives and supernets, built from settings and data."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from accelerate import Accelerator

from flair_nas.errors import FlairNasError
from flair_nas.runs.memory import check_fits
from flair_nas.search.config import SearchSettings
from flair_nas.search.processes import by_main
from flair_nas.search.protocols import Data, Objective
from flair_nas.search.registry import objective_kind, strategy_class
from flair_nas.supernet import CellSupernet, InterCellSupernet

log = logging.getLogger("flair_nas")


def make_objective(
    config: SearchSettings,
    accelerator: Accelerator,
    *,
    data: Data = None,
    make: Callable[[Accelerator], Objective] | None = None,
    progress: bool = False,
) -> Objective:
    """Make the objective that the settings name.

    Args:
        config: the settings.
        accelerator: of this process.
        data: in place of the data that the settings name; for text, as for `load_text`.
        make: makes another objective, on the accelerator's device, and seeds generators.
        progress: draw a progress bar while new data are read.

    Raises:
        FlairNasError: data that cannot be used, or settings that contradict them.
    """
    if make is not None:
        return make(accelerator)
    kind = objective_kind(config.objective)
    corpus = by_main(accelerator, lambda: kind.read(config, data, progress))
    if corpus is None:  # the main process has put it into a cache
        corpus = kind.read(config, data)
    return kind.build(config, corpus, accelerator)


def log_derived_settings(objective: Objective) -> None:
    """Log the settings that follow from the data, if any."""
    if objective.derived:
        log.info("%s: %s", objective.name, objective.derived)


def build_supernet(
    config: SearchSettings, accelerator: Accelerator, input_size: int | None = None
) -> CellSupernet | InterCellSupernet:
    """Build the supernet that the settings describe. Seeds the generators first.

    Args:
        config: the settings.
        accelerator: of this process.
        input_size: D, if it is not H.

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

    def build() -> CellSupernet | InterCellSupernet:
        return _build_supernet(config, input_size or config.hidden_size)

    check_fits(build, accelerator.device, f"hidden_size {config.hidden_size}, nodes {config.nodes}")
    torch.manual_seed(config.seed)
    return build()


def _build_supernet(config: SearchSettings, input_size: int) -> CellSupernet | InterCellSupernet:
    options: dict[str, Any] = {
        "gate": config.gate,
        "carry": config.carry,
        "gate_links": config.gate_links,
        "init_range": config.init_range,
        "input_dropout": config.input_dropout,
        "recurrent_dropout": config.recurrent_dropout,
    }
    hidden_size, fixed = config.hidden_size, config.fixed_genotype()
    if config.learn == "inter":
        assert fixed is not None
        return InterCellSupernet(input_size, hidden_size, fixed, config.history, config.relaxation, **options)
    options |= {"history": config.history, "fixed_gates": fixed}
    options["range_of"] = strategy_class(config.strategy).range_of
    return CellSupernet(input_size, hidden_size, config.nodes, config.relaxation, **options)


def seed_processes(config: SearchSettings, accelerator: Accelerator) -> None:
    """Seed each of several processes anew once the model is built: equal weights, but other dropout masks."""
    if accelerator.num_processes > 1:
        torch.manual_seed(config.seed + 1 + accelerator.process_index)
