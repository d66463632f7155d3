"""Names of operations, options and gate forms, and the error of a faulty genotype."""

from __future__ import annotations

from flair_nas.errors import FlairNasError, brief

OPERATIONS = ("drop", "tanh", "relu", "sigmoid", "identity")
"""Names of the operations, in the order of the columns of architecture weights."""


FORMAT = "flair-nas/genotype"


VERSION = 2
"""Of the JSON form. In version 1 there was no option `carry`, and cells with a state gate carried the gated state."""


OPTION_NAMES = ("highway", "combine", "gate", "carry")
"""Fields of a genotype that change its function without being part of its structure."""


GATE_FORMS = ("product", "residual")
"""Names of the forms of inter-cell gates."""


CARRIES = ("ungated", "gated")
"""What a cell with a state gate carries on past its first gate: h_{t-1}, or ĥ_{t-1} as in version 1."""


COMBINATIONS = ("sum", "mean")


DEFAULT_COMBINE = "mean"


DEFAULT_GATE = "residual"


DEFAULT_CARRY = "ungated"


MOST_NODES = 1000
"""Nodes that a cell or a gate has at most; published ones have up to 12."""


class GenotypeError(FlairNasError):
    """A genotype that cannot be used. The message names the file, the place in it, what was found and expected.

    Args:
        expected: what would have been right.
        found: what is there instead, if anything is; shown by its repr.
        place: where in the genotype, for example ``cell.nodes[2][0].tail``.
        source: the file, or whatever else the genotype was read from.
    """

    __module__ = "flair_nas"

    def __init__(self, expected: str, *, found: object = ..., place: str = "", source: str = "") -> None:
        self.expected, self.found, self.place, self.source = expected, found, place, source
        shown = "" if found is ... else f"found {brief(found)}; "
        super().__init__(": ".join(part for part in (source, place, f"{shown}expected {expected}") if part))

    def located(self, source: str) -> GenotypeError:
        """Returns the same error with the source that it came from."""
        return GenotypeError(self.expected, found=self.found, place=self.place, source=source)
