"""Whether the network may be used."""

from __future__ import annotations

import os

from flair_nas.errors import FlairNasError

_TRUE = ("1", "ON", "YES", "TRUE")  # as huggingface_hub reads its own


def refuse_offline(address: str) -> None:
    """Refuses to go to the network where the environment says so.

    Args:
        address: what would be fetched; the Hub's ``hf://...`` obeys the Hub's variable, too.

    Raises:
        FlairNasError: ``FLAIR_NAS_OFFLINE`` is set, or ``HF_HUB_OFFLINE``.
    """
    for name in ("FLAIR_NAS_OFFLINE", *(("HF_HUB_OFFLINE",) if address.startswith("hf://") else ())):
        if os.environ.get(name, "").upper() in _TRUE:
            raise FlairNasError(f"{address}: is not in the cache, and {name} keeps flair-nas off the network")
