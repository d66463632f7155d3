"""Searched recurrent cells for Flair.

Importing this package loads neither torch nor Flair. Flair's `SequenceTagger` then accepts genotypes as `rnn_type`,
and its `LanguageModel` as `recurrent_type`, whichever of the two packages is imported first. `FlairEmbeddings` saves
what it needs to be loaded again. Nothing else of Flair changes.
"""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module
from types import ModuleType

from wrapt import register_post_import_hook

from flair_nas.version import __version__ as __version__

_STUB = (pkgutil.get_data(__name__, "__init__.pyi") or b"").decode()
"""The list of public names, with their modules; type checkers read it, too."""
_HOMES = {name: home for home, name in re.findall(r"^from (\S+) import ([A-Za-z]\w*) as", _STUB, re.MULTILINE)}
__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'flair_nas' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


def _register(module: ModuleType) -> None:
    for classes in ("document_embeddings", "data.character_embeddings", "data.table_embeddings"):
        import_module(f"flair_nas.tagging.{classes}")  # registers them with Flair
    import_module("flair_nas.tagging.registration").register(module)


_PATCHES = "flair_nas.tagging.patches.character_models"
register_post_import_hook(_register, "flair.models.sequence_tagger_model")
register_post_import_hook(f"{_PATCHES}:register", "flair.models.language_model")
register_post_import_hook(f"{_PATCHES}:register_embeddings", "flair.embeddings.token")
