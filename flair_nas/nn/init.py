"""Initialisation of the weights of cells and gates."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

from flair_nas.nn.operations import FORMS


def default_range(width: int) -> float:
    """Return the default initialisation bound of taggers, 1.5 / √width.

    From √3 / √H on, products are longer on average than their inputs, and states grow through relu and identity.
    Dropout of h with 0.25 lowers that limit to 1.5 / √H. docs/decisions.md has the figures.

    Args:
        width: H for the matrices of a cell, the rows of a matrix for those of gates.
    """
    return 1.5 / math.sqrt(width)


def papers_range(width: int) -> float:
    """Return the initialisation bound of supernets and language models, 1.17 / √width: 0.04 at 850, as in the papers.

    Supernets need the smaller bound because normalised states let gradients grow sooner, language models because of
    their large learning rates.

    Args:
        width: as for `default_range`.
    """
    return 1.17 / math.sqrt(width)


def ranges(init_range: float | None, default: Callable[[int], float]) -> Callable[[int], float]:
    """Return a function from width to initialisation bound: always `init_range`, or `default` if that is None."""
    return default if init_range is None else lambda width: init_range


def reset_gate_parameters(
    weight_entry: Tensor, weight_nodes: Tensor, form: str, range_of: Callable[[int], float]
) -> None:
    """Draw the weights of a gate.

    Entry weights of a form that scales by the gate alone start with unit gain instead of `range_of`, wider by √m
    because the gate averages m nodes; see docs/decisions.md.

    Args:
        weight_entry: [m, E, G].
        weight_nodes: [m, G, G].
        form: one of `GATE_FORMS`.
        range_of: gives the initialisation bound for the number of rows of a matrix, E or G.
    """
    history, entry_size, gate_size = weight_entry.shape
    entry_range = math.sqrt(3 * history / entry_size) if FORMS[form].unit_gain else range_of(entry_size)
    nn.init.uniform_(weight_entry, -entry_range, entry_range)
    nn.init.uniform_(weight_nodes, -range_of(gate_size), range_of(gate_size))
