"""Options of genotypes and their values, and the error of a faulty genotype."""

from __future__ import annotations

from typing import Any, TypeAlias

from flair_nas.errors import FlairNasError, brief
from flair_nas.genotype.operations import GATE_FORMS

CARRIES = ("ungated", "gated")
RECURRENCES = ("full", "elementwise")
DEFAULT_GATE, DEFAULT_CARRY, DEFAULT_RECURRENCE = "residual", "ungated", "full"

CHOICES = {"combine": ("sum", "mean"), "gate": GATE_FORMS, "carry": CARRIES, "recurrence": RECURRENCES}
OPTION_NAMES = ("highway", *CHOICES)
"""Fields of a genotype that change its function without being part of its structure."""

NO_NODES = "s0"
"""One-line form of a cell without nodes, whose h_t is s_0."""

MAX_NODES = 1000
"""Node limit of a cell or a gate; published cells have up to 12 nodes."""

FORMAT = "flair-nas/genotype"
VERSION = 3
"""Newest version of the JSON form; each file has the lowest that can hold its genotype.

Version 1 had no option `carry`: a cell with a state gate carried the gated state. Version 2 had no option `recurrence`
and no cell without nodes.
"""

Json: TypeAlias = Any
"""Data as JSON's reader returns it."""


class GenotypeError(FlairNasError):
    """Error of a genotype that cannot be used; its message has the file, the place in it, and the faulty value.

    Args:
        expected: a description of the correct value.
        actual: the faulty value, if there is one; the message has its repr.
        place: the place in the genotype, for example ``cell.nodes[2][0].tail``.
        source: the file or address of the genotype.

    Example:
        >>> from flair_nas import Genotype, GenotypeError
        >>> try:
        ...     Genotype.parse("tanh7")
        ... except GenotypeError as error:
        ...     print(error.place)
        cell.nodes[0][0].tail
    """

    __module__ = "flair_nas"

    def __init__(self, expected: str, *, actual: object = ..., place: str = "", source: str = "") -> None:
        self.expected, self.actual, self.place, self.source = expected, actual, place, source
        fault = "" if actual is ... else f"found {brief(actual)}; "
        super().__init__(": ".join(part for part in (source, place, f"{fault}expected {expected}") if part))

    def located(self, source: str) -> GenotypeError:
        """Return the same error with its source."""
        return GenotypeError(self.expected, actual=self.actual, place=self.place, source=source)
