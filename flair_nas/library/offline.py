"""Whether the network may be used."""

from __future__ import annotations

import os

from flair_nas.errors import FlairNasError

_TRUE = ("1", "ON", "YES", "TRUE")  # as huggingface_hub reads its own


def kept_offline_by(address: str) -> str:
    """The variable of the environment that keeps flair-nas off the network; empty where none does.

    Args:
        address: what would be fetched; the Hub's ``hf://...`` obeys the Hub's ``HF_HUB_OFFLINE``, too.
    """
    names = ("FLAIR_NAS_OFFLINE", *(("HF_HUB_OFFLINE",) if address.startswith("hf://") else ()))
    return next((name for name in names if os.environ.get(name, "").upper() in _TRUE), "")


def refuse_offline(address: str) -> None:
    """Refuses to go to the network where the environment says so.

    Args:
        address: what would be fetched.

    Raises:
        FlairNasError: ``FLAIR_NAS_OFFLINE`` is set, or for the Hub ``HF_HUB_OFFLINE``.
    """
    if name := kept_offline_by(address):
        raise FlairNasError(f"{address}: is not in the cache, and {name} keeps flair-nas off the network")
