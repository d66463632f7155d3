"""What a search will cost, from a few of its steps."""

from __future__ import annotations

import statistics
import time
from typing import Any, NamedTuple

import torch

from flair_nas.device import peak_memory_mb
from flair_nas.search.build import build_objective, read_text
from flair_nas.search.config import SearchConfig
from flair_nas.search.processes import averaging, make_accelerator
from flair_nas.search.trainer import strategy_class


class Estimate(NamedTuple):
    """The cost of a search.

    Args:
        parameters: model weights.
        architecture_parameters: architecture weights.
        peak_memory_mb: peak memory so far, in MB (10^6 bytes): resident of this process, or allocated on the GPU.
        step_seconds: median of the steps that were measured.
        steps: per epoch.
        evaluation_seconds: of the evaluation after each epoch.
        epoch_seconds: of an epoch's steps and its evaluation.
        total_seconds: of all epochs; what random search does after the last, to compare candidates, comes on top.
    """

    parameters: int
    architecture_parameters: int
    peak_memory_mb: float
    step_seconds: float
    steps: int
    evaluation_seconds: float
    epoch_seconds: float
    total_seconds: float


def estimate_search(config: SearchConfig, *, text: Any = None, steps: int = 5, progress: bool = False) -> Estimate:
    """Measures a few steps of a search and one evaluation; nothing is written but the cached token ids of the text.

    Args:
        config: the settings.
        text: what `load_text` takes, in place of the setting `text`.
        steps: how many, after one that is not counted.
        progress: draw a progress bar while a new text is read.

    Raises:
        FlairNasError: settings or text that cannot be used.
    """
    accelerator = make_accelerator(config.device, config.precision)
    objective = build_objective(config, read_text(config, text, progress), accelerator)
    strategy = strategy_class(config.strategy)(objective, config, averaging(accelerator))
    per_epoch = [strategy.steps(epoch) for epoch in range(1, config.epochs + 1)]
    seconds = []
    objective.module.train()
    for step in range(min(steps + 1, per_epoch[0] if per_epoch else 0)):
        started = time.perf_counter()
        strategy.step(1, step)
        if accelerator.device.type == "cuda":
            torch.cuda.synchronize(accelerator.device)
        seconds.append(time.perf_counter() - started)
    started = time.perf_counter()
    if seconds:
        objective.evaluate(progress)
    evaluation = time.perf_counter() - started
    of_step = statistics.median(seconds[1:] or seconds) if seconds else 0.0
    mean_steps = round(statistics.mean(per_epoch)) if per_epoch else 0
    return Estimate(
        parameters=sum(parameter.numel() for parameter in objective.model_parameters()),
        architecture_parameters=sum(parameter.numel() for parameter in objective.architecture_parameters()),
        peak_memory_mb=peak_memory_mb(accelerator.device),
        step_seconds=of_step,
        steps=mean_steps,
        evaluation_seconds=evaluation,
        epoch_seconds=of_step * mean_steps + evaluation,
        total_seconds=of_step * sum(per_epoch) + evaluation * len(per_epoch),
    )
