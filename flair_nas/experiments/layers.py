"""Identity and size of the layers that are compared."""

from __future__ import annotations

from collections.abc import Callable

from flair_nas.library.layer_spec import parse_layer_spec
from flair_nas.tagging.config import LAYER_NAMES


def identity(rnn: str) -> str:
    """Return a text that is equal for equal layers, however their specs are written; it depends on a file's content.

    Raises:
        FlairNasError: the name is unknown.
    """
    if rnn.upper() in LAYER_NAMES:
        return rnn.lower()
    genotype, numbers = parse_layer_spec(rnn, LAYER_NAMES)
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
