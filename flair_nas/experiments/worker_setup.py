"""Helpers of the jobs of all tasks."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


_ROUNDS = 15  # their median counts, as other work may slow one of two steps


def read_history(folder: Path) -> list[dict[str, Any]]:
    """Return the lines that a run has written so far, one an epoch."""
    path = folder / "history.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def train_step(
    module: torch.nn.Module, loss: Callable[[], torch.Tensor], device: torch.device, precision: str
) -> Callable[[], None]:
    """Return a training step that takes the usual time but changes no weight, so that each is like the first."""
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
    started = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - started) / steps


def time_ratio(step: Callable[[], object], other: Callable[[], object]) -> float:
    """Return the median time of one step divided by the other's, timed in turn, as other work then slows both alike."""
    for first in (step, other):  # which allocates memory and loads kernels
        first()
    return statistics.median(_seconds(step) / _seconds(other) for _ in range(_ROUNDS))


def _seconds(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started
