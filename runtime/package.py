"""Taggers that flair-nas exported: the part of flair-nas that runs them."""

from __future__ import annotations

from importlib import import_module

from flair_nas.errors import FlairNasError as FlairNasError
from flair_nas.version import __version__ as __version__

__all__ = ["FlairNasError"]


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(f"module 'flair_nas' has no attribute {name!r}")
    try:
        return import_module(f"flair_nas.{name}")  # for: from flair_nas import runtime
    except ModuleNotFoundError:
        raise ImportError(f"{name} is not in flair-nas-runtime; it needs flair-nas itself") from None
