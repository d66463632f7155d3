"""Cost of a search, estimated from a few of its steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from accelerate import Accelerator

from flair_nas.runs.memory import peak_memory_mb
from flair_nas.search.bilevel import architecture_weights, model_weights
from flair_nas.search.build import log_derived_settings, make_objective, make_strategy
from flair_nas.search.config import SearchConfig, SearchSettings
from flair_nas.search.processes import make_accelerator
from flair_nas.search.protocols import Data, Objective
from flair_nas.settings.fields import check_config

ENOUGH = 10.0
"""Seconds after which no further step is measured."""


class Estimate(NamedTuple):
    """Cost of a search."""

    parameters: int  # number of model weights
    architecture_parameters: int  # number of architecture weights
    peak_memory_mb: float  # so far, in MB (10^6 bytes): resident of this process, or allocated on the GPU
    step_seconds: float  # median of the measured steps
    steps: int  # mean number in an epoch
    evaluation_seconds: float  # of the evaluation after each epoch, with the work of the strategy then
    epoch_seconds: float  # of the steps of an epoch and its evaluation
    total_seconds: float  # of all epochs
    finishing: str  # work of the strategy after the last epoch, which is not included; empty for none


def estimate_search(
    config: SearchSettings,
    *,
    text: Data = None,
    objective: Callable[[Accelerator], Objective] | None = None,
    steps: int = 5,
    progress: bool = False,
) -> Estimate:
    """Measure a few steps of a search and a piece of an evaluation. Write nothing but a text's cached token ids.

    Args:
        config: the settings.
        text: a source for `load_text`, in place of the setting `text`.
        objective: makes another objective; see `search_genotype`.
        steps: most steps to measure, after a first one; the first one counts if it takes `ENOUGH` seconds.
        progress: draw a progress bar while a new text is read.

    Raises:
        FlairNasError: settings or text that cannot be used.

    Example:
        >>> from flair_nas import SearchConfig, estimate_search
        >>> sizes = {"vocabulary_size": 200, "hidden_size": 8, "nodes": 2, "batch_size": 32, "bptt": 100}
        >>> estimate_search(SearchConfig(text="demo", device="cpu", **sizes), steps=1).step_seconds > 0
        True
    """
    check_config(config, SearchConfig, SearchSettings)
    config.check()
    accelerator = make_accelerator(config.device, config.precision)
    learned = make_objective(config, accelerator, data=text, make=objective, progress=progress)
    log_derived_settings(learned)
    strategy = make_strategy(learned, config)
    per_epoch = [learned.steps(epoch) for epoch in range(1, config.epochs + 1)]
    seconds: list[float] = []
    learned.module.train()
    epoch = 1 + config.own.warmup_epochs  # the steps of a warm-up are not those of the rest
    for step in range(min(steps + 1, per_epoch[0])):
        if sum(seconds) > ENOUGH:
            break
        started = time.perf_counter()
        strategy.step(epoch, step)
        if accelerator.device.type == "cuda":
            torch.cuda.synchronize(accelerator.device)
        seconds.append(time.perf_counter() - started)
    evaluation = learned.evaluation_seconds() + strategy.end_seconds()
    step_seconds = statistics.median(seconds[1:] or seconds)
    mean_steps = round(statistics.mean(per_epoch))
    return Estimate(
        parameters=sum(parameter.numel() for parameter in model_weights(learned)),
        architecture_parameters=sum(parameter.numel() for parameter in architecture_weights(learned)),
        peak_memory_mb=peak_memory_mb(accelerator.device),
        step_seconds=step_seconds,
        steps=mean_steps,
        evaluation_seconds=evaluation,
        epoch_seconds=step_seconds * mean_steps + evaluation,
        total_seconds=step_seconds * sum(per_epoch) + evaluation * len(per_epoch),
        finishing=strategy.finishing,
    )
