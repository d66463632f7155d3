"""Record of an epoch: a line of ``history.jsonl``. What every training and search has, has the same names."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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


@dataclass
class EpochRecord:
    """Figures of an epoch. A figure that is not finite is None in the line.

    Example:
        >>> from flair_nas.runs.metric import F1
        >>> record = EpochRecord(1, 2.5, 1.5, F1, 61.2, EpochClock(), learning_rate=0.2)
        >>> line = record.to_line()
        >>> line["dev_f1"], line["learning_rate"]
        (61.2, 0.2)
    """

    epoch: int  # from 1
    train_loss: float | None  # mean over its steps; None if nothing was trained
    dev_loss: float  # mean on the validation part
    metric: Metric
    value: float  # of the metric, on the validation part
    clock: EpochClock
    learning_rate: float | None = None  # of the model weights, where one holds for the whole epoch
    genotype: str | None = None  # at its end, in one line
    further: Mapping[str, Any] = field(default_factory=dict)  # figures of this training alone, as JSON data

    def to_line(self) -> Line:
        """Return the line of ``history.jsonl`` as JSON data."""
        train = None if self.train_loss is None else _finite(self.train_loss)
        line = {"epoch": self.epoch, "train_loss": train}
        line |= {"dev_loss": _finite(self.dev_loss), self.metric.key: _finite(self.value)}
        line |= {name: v for name in ("learning_rate", "genotype") if (v := getattr(self, name)) is not None}
        return {**line, **self.further, **asdict(self.clock), "peak_memory_mb": peak_memory_mb()}


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


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
