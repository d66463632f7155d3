"""Hidden size at which a layer has as many parameters as another one, or its training step takes as long."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.experiments.config import Settings
from flair_nas.experiments.tasks import TASKS
from flair_nas.experiments.worker_setup import time_ratio

_PRECISION = 32  # sizes closer than a 32nd are equal


def matched_size(count: Callable[[int], int], target: int) -> int:
    """Return the hidden size at which `count`, the number of parameters, is closest to a target."""
    enough = 2
    while count(enough) < target:
        enough *= 2
    size = bisect.bisect_left(range(enough), target, lo=enough // 2, key=count)
    return min((max(1, size - 1), size), key=lambda size: abs(count(size) - target))


def size_by_count(task: str, settings: Settings, other: Settings) -> dict[str, Any]:
    """Size one row by the parameters of another.

    Returns:
        ``hidden_size``, and ``size_ratio``, the parameters at that size divided by those of the other layer.

    Raises:
        FlairNasError: even the smallest layer has more parameters, as with gates that are as wide as the input.
    """
    work = TASKS[task].work
    count = work.counter(work.read(other))

    def count_at(size: int) -> int:
        return count({**settings, "hidden_size": size})

    target = count(other)
    if count_at(1) > target:
        raise FlairNasError(f"{settings['rnn']} has more weights than {other['rnn']} with any hidden size")
    size = matched_size(count_at, target)
    return {"hidden_size": size, "size_ratio": count_at(size) / target}


def size_by_time(task: str, settings: Settings, other: Settings) -> dict[str, Any]:
    """Size one row by the time of a training step of another; see `match_time`."""
    work = TASKS[task].work
    return match_time(work.stepper(other), settings, other)


def match_time(
    stepper: Callable[[Settings], Callable[[], None]], settings: Settings, other: Settings
) -> dict[str, Any]:
    """Return the ``hidden_size`` at which a step takes as long as another layer's, and the ratio of the times.

    Raises:
        FlairNasError: even the smallest layer takes longer.
    """
    reference = stepper(other)

    @functools.cache
    def ratio(size: int) -> float:
        return time_ratio(stepper({**settings, "hidden_size": size}), reference)

    low = high = int(other["hidden_size"])
    while ratio(high) < 1:
        low, high = high, 2 * high
    while ratio(low) > 1:
        if low == 1:
            raise FlairNasError(f"{settings['rnn']} takes longer than {other['rnn']} at any hidden size")
        low, high = low // 2, low
    while high - low > max(1, high // _PRECISION):
        middle = (low + high) // 2
        low, high = (middle, high) if ratio(middle) < 1 else (low, middle)
    size = min((low, high), key=lambda size: abs(math.log(ratio(size))))
    return {"hidden_size": size, "time_ratio": ratio(size)}
