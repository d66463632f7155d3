"""Initialisation of the weights of cells and gates."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

from flair_nas.nn.operations import FORMS


def default_range(width: int) -> float:
    """What weights start in, uniform in plus and minus this, where nothing else is said: 1.5 / √width.

    The 0.04 of the papers' code is 1.17 / √850; at other widths the same scale goes with √H. From √3 / √H on a product
    is longer than its factor, on average, and what relu and identity pass on grows; dropout of h with 0.25 lowers that
    to 1.5. docs/decisions.md has the figures.

    Args:
        width: H for the matrices of a cell, the rows of a matrix for those of gates.
    """
    return 1.5 / math.sqrt(width)


def papers_range(width: int) -> float:
    """The scale of the papers' code at any width, 0.04 at 850: 1.17 / √width.

    There a relaxed cell starts, whose states are normalised and gradients grow sooner, and a language model, whose
    learning rates are large.

    Args:
        width: as for `default_range`.
    """
    return 1.17 / math.sqrt(width)


def ranges(init_range: float | None, default: Callable[[int], float]) -> Callable[[int], float]:
    """What gives the range of a matrix for its width: always `init_range`, or `default` where that is None."""
    return default if init_range is None else lambda width: init_range


def reset_gate_parameters(
    weight_entry: Tensor, weight_nodes: Tensor, form: str, range_of: Callable[[int], float]
) -> None:
    """Draws the weights of a gate.

    Args:
        weight_entry: [m, E, G].
        weight_nodes: [m, G, G].
        form: one of `GATE_FORMS`.
        range_of: gives for the number of rows of a matrix, E or G, the range that it is uniform in, plus and minus. A
            form that multiplies the signal by the gate alone starts with entry weights of unit gain instead, wider by
            sqrt(m) because the gate averages m nodes; see docs/decisions.md.
    """
    history, entry_size, gate_size = weight_entry.shape
    entry_range = math.sqrt(3 * history / entry_size) if FORMS[form].unit_gain else range_of(entry_size)
    nn.init.uniform_(weight_entry, -entry_range, entry_range)
    nn.init.uniform_(weight_nodes, -range_of(gate_size), range_of(gate_size))
