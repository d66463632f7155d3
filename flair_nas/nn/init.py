"""Initialisation bounds of the weights of cells and gates, and checks of the arguments of layers."""

from __future__ import annotations

import math
from numbers import Integral, Real


def default_range(width: int) -> float:
    """Return the default initialisation bound of taggers, 1.5 / √width; docs/decisions/initialisation.md has figures.

    From √3 / √H on, products are longer on average than their inputs, and states grow through relu and identity.
    Dropout of h with 0.25 lowers that limit to 1.5 / √H.

    Args:
        width: H for the matrices of a cell, the number of rows for those of gates.
    """
    return 1.5 / math.sqrt(width)


def papers_range(width: int) -> float:
    """Return the initialisation bound of supernets and language models, 1.17 / √width: 0.04 at 850, as in the papers.

    Gradients grow sooner with normalised states, and with the large learning rates of language models.
    """
    return 1.17 / math.sqrt(width)


def check_arguments(init_range: float | None, **numbers: float) -> None:
    """Raise a ValueError that names an argument out of range: the bound, dropouts, or sizes (0 for `history` alone)."""
    for name, number in numbers.items():
        minimum = 0 if name == "history" else 1
        if name.endswith("dropout"):
            if not (isinstance(number, Real) and 0 <= number < 1):
                raise ValueError(f"{name} must be a probability, at least 0 and below 1, got {number!r}")
        elif not isinstance(number, Integral) or isinstance(number, bool) or number < minimum:
            raise ValueError(f"{name} must be a whole number of at least {minimum}, got {number!r}")
    if init_range is not None and not (isinstance(init_range, Real) and 0 < init_range <= 1e6):
        raise ValueError(f"init_range must be positive and at most 1e6, got {init_range!r}")
