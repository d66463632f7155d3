"""What the jobs of all tasks need."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def be_quiet() -> None:
    """Lets nothing but errors be said by this process; what was worth a remark, the main process has said."""
    logging.getLogger("flair").setLevel("ERROR")
    logging.getLogger("flair_nas").setLevel("ERROR")


def history_in(folder: Path) -> list[dict[str, Any]]:
    """What a run has written so far, a line an epoch."""
    path = folder / "history.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def train_step(
    module: torch.nn.Module, loss: Callable[[], torch.Tensor], device: torch.device, precision: str
) -> Callable[[], None]:
    """Gives a step of training that costs what it costs, and changes no weight, so that each is like the first.

    Args:
        module: what is trained.
        loss: of the next batch.
        device: where it is.
        precision: float32 or bfloat16.
    """
    import torch

    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            found = loss()
        found.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return step


def seconds_of_steps(step: Callable[[], object], steps: int) -> float:
    """Return the mean time of a few steps, after one that is not counted."""
    step()
    started = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - started) / steps
