"""Batches in a few shapes: `graphs` captures each shape by itself, and in `levels` all sequences have one length."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from flair_nas.kernels.engine import Recurrence
from flair_nas.packing import Packing

_BY_ROW = ("projected", "data", "factor")  # sources [S, ...], a row for each token
_BY_SEQUENCE = ("hidden", "past")  # [B, H] and [m - 1, B, H]


def padded(
    recurrence: Recurrence, sources: Mapping[str, Tensor]
) -> tuple[Recurrence, dict[str, Tensor], Tensor | None]:
    """The same recurrence in one of a few shapes, in which all sequences are of one length.

    With batch normalisation, which rows that are padded would count in, they are already (`CellSupernet`).

    Returns:
        The recurrence; its sources, with ``alive`` [S', 1], 1 where there is a token, if there is not one everywhere;
        the rows of the output that are those of the tokens, [S], or None for all.
    """
    sizes, batch = recurrence.sizes, recurrence.sizes[0]
    steps, width = steps_of(len(sizes)), batch if batch == 1 else -(-batch // 8) * 8
    if recurrence.normalisation is not None or [*sizes] == [width] * steps:
        return recurrence, dict(sources), None
    hidden = sources["hidden"]
    rows = _rows(tuple(sizes), width, hidden.device)
    given = dict(sources)
    for name in _BY_ROW:
        if name in sources:
            whole = sources[name].new_zeros(steps * width, sources[name].shape[1])
            given[name] = whole.index_copy(0, rows, sources[name])
    for name in _BY_SEQUENCE:
        if name in sources:
            given[name] = torch.nn.functional.pad(sources[name], (0, 0, 0, width - batch))
    given["alive"] = hidden.new_zeros(steps * width, 1).index_fill(0, rows, 1.0)
    mask = recurrence.mask
    if mask is not None:
        mask = torch.nn.functional.pad(mask, (0, 0, 0, width - batch))
    return recurrence._replace(sizes=(width,) * steps, mask=mask), given, rows


def steps_of(steps: int) -> int:
    """The number of steps that a sequence is padded to, few in all; 35, 70 and 140, as papers have them, stay."""
    unit = 5 if steps <= 70 else 10 if steps <= 140 else 20
    return -(-steps // unit) * unit


@lru_cache(maxsize=256)
@torch.inference_mode(False)
def _rows(sizes: tuple[int, ...], width: int, device: torch.device) -> Tensor:
    """Where packed rows are once each step has so many, [S]; kept for the other layers and directions of a batch."""
    packing = Packing([*sizes], device)
    return packing.time * width + packing.column
