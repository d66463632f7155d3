"""Helpers of the jobs of all tasks."""

from __future__ import annotations

import json
import statistics
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flair_nas.experiments.config import Settings

if TYPE_CHECKING:
    import torch


_TIMED = 5
_ROUNDS = 15  # the median counts, as other work may slow one of two steps


def train_timed(train: Callable[[], dict[str, Any]], folder: Path, metric: str) -> dict[str, Any]:
    """Call `train`, which trains a model in `folder`; add metrics, losses and times of its epochs to the result.

    Args:
        train: function that trains, and returns the other entries of `TaskModule.train`.
        folder: run folder, where an earlier call may have begun.
        metric: key of the metric in ``history.jsonl``.
    """
    from flair_nas.runs.memory import forget_peak_memory

    def read_history() -> list[dict[str, Any]]:
        path = folder / "history.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []

    forget_peak_memory()
    started, before = time.perf_counter(), len(read_history())
    result, history = train(), read_history()
    seconds = [line["seconds"] + line["evaluation_seconds"] for line in history]
    return {
        "dev": [line[metric] for line in history],
        "dev_loss": [line["dev_loss"] for line in history],
        "seconds": seconds,
        "around_seconds": max(0.0, time.perf_counter() - started - sum(seconds[before:])),
        **result,
    }


def time_beside(task: str, settings: Settings, other: Settings) -> dict[str, float]:
    """Time models on one thread, by turns.

    Args:
        task: name of the task.
        settings: settings of a run.
        other: settings of another run on the same data.

    Returns:
        ``ratio``: time of the one model divided by that of the other; ``ms``: milliseconds a sentence of the other.
    """
    import torch

    from flair_nas.experiments.tasks import TASKS

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        predictor = TASKS[task].work.predictor
        reference, sentences = predictor(other)
        ratio = 1.0 if settings == other else time_ratio(predictor(settings)[0], reference)
        return {"ratio": ratio, "ms": 1e3 * time_steps(reference, _TIMED) / sentences}
    finally:
        torch.set_num_threads(threads)


def train_step(
    module: torch.nn.Module, loss: Callable[[], torch.Tensor], device: torch.device, precision: str
) -> Callable[[], None]:
    """Return a training step that takes the usual time but changes no weight, so all steps are alike."""
    import torch

    from flair_nas.runs.device import autocast

    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)

    def step() -> None:
        optimizer.zero_grad()
        with autocast(precision, device):
            value = loss()
        torch.autograd.backward(value)
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return step


def time_steps(step: Callable[[], object], steps: int) -> float:
    """Return the mean time of a few steps in seconds, after one that is not counted."""
    step()
    return timeit.timeit(step, number=steps) / steps


def time_ratio(step: Callable[[], object], other: Callable[[], object]) -> float:
    """Return the median time of one step divided by the other's.

    The two are timed in turn, as other work then slows both alike.
    """
    for first in (step, other):  # the first call allocates memory and loads kernels
        first()
    ratios = (timeit.timeit(step, number=1) / timeit.timeit(other, number=1) for _ in range(_ROUNDS))
    return statistics.median(ratios)
