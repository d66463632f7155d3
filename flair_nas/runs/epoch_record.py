"""Record of an epoch: a line of ``history.jsonl``. What every training and search has, has the same names."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from flair_nas.runs.memory import peak_memory_mb
from flair_nas.runs.metric import Metric

if TYPE_CHECKING:
    from torch import nn

Line = dict[str, Any]
"""JSON data of an epoch."""


@dataclass
class EpochClock:
    """Clock of an epoch: times of its training and of its evaluation."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0  # over all threads, without the evaluation
    evaluation_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start the clock anew."""
        self._start, self._start_cpu = time.perf_counter(), time.process_time()

    def add_training(self) -> None:
        """Count the time since the last call as training."""
        self.seconds += time.perf_counter() - self._start
        self.cpu_seconds += time.process_time() - self._start_cpu
        self.restart()

    def add_evaluation(self) -> None:
        """Count the time since the last call as evaluation."""
        self.evaluation_seconds += time.perf_counter() - self._start
        self.restart()


def describe_epoch(
    epoch: int,
    train_loss: float | None,
    dev_loss: float,
    metric: Metric,
    value: float,
    clock: EpochClock,
    /,
    **further: Any,
) -> Line:
    """Return the line of an epoch. A figure that is not finite is None in it.

    Args:
        epoch: its number, from 1.
        train_loss: mean over its steps; None if nothing was trained.
        dev_loss: mean on the validation part.
        metric: the metric.
        value: that of the metric, on the validation part.
        clock: the times.
        further: figures of this training alone, as JSON data. `learning_rate` is that of the model weights, where one
            holds for the whole epoch; `genotype` is that at its end, in one line.

    Example:
        >>> from flair_nas.runs.metric import F1
        >>> line = describe_epoch(1, 2.5, 1.5, F1, 61.2, EpochClock(), learning_rate=0.2)
        >>> line["dev_f1"], line["learning_rate"]
        (61.2, 0.2)
    """
    figures = {"train_loss": train_loss, "dev_loss": dev_loss, metric.key: value}
    finite = {name: None if number is None or not math.isfinite(number) else number for name, number in figures.items()}
    return {"epoch": epoch, **finite, **further, **asdict(clock), "peak_memory_mb": peak_memory_mb()}


def sum_seconds(history: Iterable[Line]) -> float:
    """Return the time of all epochs, with evaluation."""
    return float(sum(line["seconds"] + line["evaluation_seconds"] for line in history))


def describe_cost(model: nn.Module, layer: nn.Module, history: Sequence[Line]) -> dict[str, Any]:
    """Return the cost of a training as figures: parameters, those of the recurrent layer, times and memory."""
    return {  # medians, since a first epoch often takes longer
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "rnn_parameters": sum(p.numel() for p in layer.parameters()),
        "seconds_per_epoch": statistics.median(line["seconds"] for line in history),
        "cpu_seconds_per_epoch": statistics.median(line["cpu_seconds"] for line in history),
        "peak_memory_mb": peak_memory_mb(),
    }
