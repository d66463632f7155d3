"""Identity and size of the layers that are compared."""

from __future__ import annotations

from collections.abc import Callable

from flair_nas.library.layer_spec import parse_rnn
from flair_nas.tagging.config import FLAIR_TYPES


def identity(rnn: str) -> str:
    """What a layer is, however it is written; a file that has changed is another layer.

    Raises:
        FlairNasError: nothing is known by that name.
    """
    if rnn.upper() in FLAIR_TYPES:
        return rnn.lower()
    genotype, numbers = parse_rnn(rnn, FLAIR_TYPES)
    return f"{genotype.one_line()} {genotype.options} {sorted(numbers.items())}"


def matched_size(count: Callable[[int], int], wanted: int) -> int:
    """The hidden size that has the wanted number of parameters, as nearly as can be.

    Args:
        count: the number for a size; it grows with it.
        wanted: that number.
    """
    low, high = 1, 2
    while count(high) < wanted:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < wanted else (low, middle)
    return min((low, high), key=lambda size: abs(count(size) - wanted))
