"""Supernets, built from settings."""

from __future__ import annotations

from typing import Any

import torch
from accelerate import Accelerator

from flair_nas.genotype.order import parse_order
from flair_nas.nn.init import default_range, papers_range
from flair_nas.runs.memory import check_fits
from flair_nas.search.config import SearchSettings
from flair_nas.settings.fields import raise_problems
from flair_nas.supernet import CellSupernet, InterCellSupernet
from flair_nas.supernet.orders import OrderSupernet


def build_supernet(
    config: SearchSettings, accelerator: Accelerator, input_size: int | None = None, both_directions: bool = False
) -> CellSupernet | InterCellSupernet | OrderSupernet:
    """Build the supernet that the settings describe, of input size D or H. Seed the generators first.

    That of a cell reads ahead. That of sublayers can read in both directions.
    """
    raise_problems(config.batch_problems(accelerator.num_processes))
    same = ("gate", "carry", "gate_links", "init_range", "input_dropout", "recurrent_dropout", "history")
    options: dict[str, Any] = {name: getattr(config, name) for name in same}
    options["relaxation"] = config.own.relaxation or "i-darts"  # it does not matter to a whole cell
    sizes, fixed = (input_size or config.hidden_size, config.hidden_size), config.fixed_genotype()

    def build() -> CellSupernet | InterCellSupernet | OrderSupernet:
        if config.transformer.sublayers is not None:
            return OrderSupernet(*sizes, parse_order(config.transformer.sublayers), both_directions)
        if config.learn == "inter":
            assert fixed is not None
            return InterCellSupernet(*sizes, fixed, **options)
        # the states of a whole cell are not normalised
        range_of = default_range if config.own.relaxation is None else papers_range
        options.update(recurrence=config.recurrence, range_of=range_of)
        return CellSupernet(*sizes, config.nodes, fixed_gates=fixed, **options)

    check_fits(build, accelerator.device, f"hidden_size {config.hidden_size}, nodes {config.nodes}")
    torch.manual_seed(config.seed)
    return build()


def seed_processes(config: SearchSettings, accelerator: Accelerator) -> None:
    """Seed each of several processes anew once the model is built: equal weights, but other dropout masks."""
    if accelerator.num_processes > 1:
        torch.manual_seed(config.seed + 1 + accelerator.process_index)
