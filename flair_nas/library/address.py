"""Genotypes and taggers that others share: fetching them, and writing folders to be published."""

from __future__ import annotations

import re

MOST_BYTES = 1_000_000
"""The size limit of a genotype that is fetched."""

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_address(text: str) -> bool:
    """Whether a text begins as addresses do: ``https://``, ``hf://``, or ones that are refused."""
    return _ADDRESS.match(text) is not None
