"""Identity, size and time of the layers that are compared."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence

from flair_nas.errors import FlairNasError
from flair_nas.experiments.config import Settings
from flair_nas.experiments.tasks import TASKS
from flair_nas.experiments.worker_setup import time_ratio
from flair_nas.library.layer_spec import parse_layer_spec
from flair_nas.nn.layers import LAYER_NAMES


def identity(rnn: str) -> str:
    """Return a text that is equal for equal layers, however their specs are written.

    A file counts by its content.

    Raises:
        FlairNasError: the name is unknown.
    """
    if rnn.upper() in LAYER_NAMES:
        return rnn.lower()
    genotype, numbers = parse_layer_spec(rnn)
    return f"{genotype.one_line()} {genotype.options} {sorted(numbers.items())}"


def matched_size(count: Callable[[int], int], target: int) -> int:
    """Return the hidden size at which `count`, the number of parameters, is closest to a target."""
    enough = 2
    while count(enough) < target:
        enough *= 2
    size = bisect.bisect_left(range(enough), target, lo=enough // 2, key=count)
    return min((max(1, size - 1), size), key=lambda size: abs(count(size) - target))


def time_layers(task: str, layers: Sequence[Settings], other: Settings) -> list[float | None]:
    """Return the time of a training step of each layer, divided by that of another layer; None if it is faulty.

    Args:
        task: name of the task.
        layers: settings of a run with each layer, on the same data.
        other: settings of a run with the other layer.
    """
    make_step = TASKS[task].work.stepper(other)
    reference = make_step(other)
    ratios: list[float | None] = []
    for settings in layers:
        try:
            ratios.append(time_ratio(make_step(settings), reference))
        except FlairNasError:  # its training will say so
            ratios.append(None)
    return ratios
