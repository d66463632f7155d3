"""The hidden size at which a layer has as many parameters as another one, or its step of training takes as long."""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.experiments.layers import matched_size
from flair_nas.experiments.tasks import TASKS
from flair_nas.experiments.worker_setup import be_quiet

_ROUNDS = 15  # the median counts: other work that comes and goes slows one of them, and not both
_FINE = 32  # sizes that are nearer to one another than a 32nd are not told apart


def count_size(task: str, settings: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What a process does to size one row by the parameters of another.

    Args:
        task: of their column.
        settings: of a run of the row that is sized.
        other: of a run of the other row.

    Returns:
        ``hidden_size``, and ``size_ratio``, the parameters at that size as a share of those of the other layer.

    Raises:
        FlairNasError: even the smallest layer has more, as where gates as wide as the input are all that counts.
    """
    work = TASKS[task].work
    be_quiet()
    count = work.counter(work.read(other))

    def counted(size: int) -> int:
        return count({**settings, "hidden_size": size})

    wanted = count(other)
    if counted(1) > wanted:
        raise FlairNasError(
            f"{settings['rnn']} has {counted(1):,} weights with a hidden size of 1, and {other['rnn']} {wanted:,}: "
            "give the row a hidden_size among its settings, in place of size_of"
        )
    size = matched_size(counted, wanted)
    return {"hidden_size": size, "size_ratio": counted(size) / wanted}


def measure_size(task: str, settings: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """As `count_size`, by the time of a step.

    Returns:
        ``hidden_size``, and ``time_ratio``, the time of a step at that size as a share of that of the other layer.

    Raises:
        FlairNasError: even the smallest layer takes longer.
    """
    work = TASKS[task].work
    be_quiet()
    return size_of_equal_time(work.stepper(other), settings, other)


def size_of_equal_time(
    stepper: Callable[[Mapping[str, Any]], Callable[[], None]], settings: Mapping[str, Any], other: Mapping[str, Any]
) -> dict[str, Any]:
    """As `measure_size`, with what makes the steps.

    Args:
        stepper: gives what does some steps of training with these settings of a run.
        settings: of the layer that is sized.
        other: of the layer whose time it is to have.

    Raises:
        FlairNasError: even the smallest layer takes longer.
    """
    reference = stepper(other)

    @functools.cache
    def ratio(size: int) -> float:
        return _ratio(stepper({**settings, "hidden_size": size}), reference)

    low = high = int(other["hidden_size"])
    while ratio(high) < 1:
        low, high = high, 2 * high
    while ratio(low) > 1:
        if low == 1:
            raise FlairNasError(f"{settings['rnn']} takes longer than {other['rnn']} at any hidden size")
        low, high = low // 2, low
    while high - low > max(1, high // _FINE):
        middle = (low + high) // 2
        low, high = (middle, high) if ratio(middle) < 1 else (low, middle)
    size = min((low, high), key=lambda size: abs(math.log(ratio(size))))
    return {"hidden_size": size, "time_ratio": ratio(size)}


def _ratio(step: Callable[[], None], other: Callable[[], None]) -> float:
    """The time of one step as a share of the other's; they are taken in turn, so that other work slows both alike."""
    for first in (step, other):  # memory is taken, and kernels are loaded
        first()
    return statistics.median(_seconds(step) / _seconds(other) for _ in range(_ROUNDS))


def _seconds(step: Callable[[], None]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started
