"""ParallelRNN: a published cell as a layer."""

from __future__ import annotations

import warnings
from pkgutil import resolve_name
from typing import Any

from flair_nas.nn.layers import LAYER_TYPES
from flair_nas.nn.recurrent_layer import RecurrentLayer

KINDS = tuple(name.lower() for name, row in LAYER_TYPES.items() if row.cell)
"""Layers whose cells are of flair-nas."""


class ParallelRNN(RecurrentLayer):
    """A layer of a published recurrence without a sequential matrix product, used as `torch.nn.GRU` is.

    Args:
        input_size: D.
        hidden_size: H.
        kind: one of `KINDS`.

    Other arguments are those of `SearchedRNN`, without `init_range`.

    Raises:
        ValueError: an unknown kind, or a number out of range.

    Example:
        >>> import torch
        >>> from flair_nas import ParallelRNN
        >>> output, state = ParallelRNN(100, 256, "sru")(torch.randn(20, 8, 100))
        >>> output.shape, state.shape
        (torch.Size([20, 8, 256]), torch.Size([1, 8, 256]))
    """

    __module__ = "flair_nas"

    def __init__(self, input_size: int, hidden_size: int, kind: str, *args: Any, **options: Any) -> None:
        if kind not in KINDS:
            raise ValueError(f"kind must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {kind!r}")
        cell: Any = resolve_name(LAYER_TYPES[kind.upper()].cell)
        super().__init__(input_size, hidden_size, lambda size: cell(size, hidden_size), *args, **options)
        if not cell.masks_states and self.recurrent_dropout:
            warnings.warn(f"no state of {kind} enters a product, so recurrent_dropout does nothing", stacklevel=2)
        self.kind = kind

    def config(self) -> dict[str, Any]:
        """Return everything but the weights, as JSON data."""
        return {**super().config(), "kind": self.kind}
