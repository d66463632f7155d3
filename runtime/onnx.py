"""Taggers that need neither PyTorch nor Flair."""

from __future__ import annotations

from flair_nas import __getattr__ as __getattr__
from flair_nas.runtime.tagger import Tagger as Tagger

__all__ = ["Tagger"]
