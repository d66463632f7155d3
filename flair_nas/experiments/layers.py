"""Identity, size and time of the layers that are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flair_nas.errors import FlairNasError
from flair_nas.experiments.config import Settings
from flair_nas.experiments.tasks import TASKS
from flair_nas.experiments.worker_setup import time_ratio
from flair_nas.library.layer_spec import parse_layer_spec
from flair_nas.nn.layers import LAYER_NAMES


def identity(rnn: str) -> str:
    """Return a text that is equal for equal layers, however their specs are written; it depends on a file's content.

    Raises:
        FlairNasError: the name is unknown.
    """
    if rnn.upper() in LAYER_NAMES:
        return rnn.lower()
    genotype, numbers = parse_layer_spec(rnn)
    return f"{genotype.one_line()} {genotype.options} {sorted(numbers.items())}"


def matched_size(count: Callable[[int], int], target: int) -> int:
    """Return the hidden size whose number of parameters, which `count` gives, is closest to a target."""
    low, high = 1, 2
    while count(high) < target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < target else (low, middle)
    return min((low, high), key=lambda size: abs(count(size) - target))


def time_layers(task: str, layers: Sequence[Settings], other: Settings) -> list[float | None]:
    """Return the time of a training step of each layer, divided by that of another one, or None for a faulty layer.

    Args:
        task: name of the task.
        layers: settings of a run with each layer, on the same data.
        other: settings of a run with the layer that they are compared with.
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
