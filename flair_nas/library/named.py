"""Genotypes by name, file or address: where those come from that are not made on the spot."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from flair_nas.errors import FlairNasError, brief, did_you_mean
from flair_nas.genotype import OPERATIONS, Genotype, GenotypeError
from flair_nas.storage.paths import meant, user_path
from flair_nas.storage.resources import resource_path

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class UnknownGenotype(GenotypeError):
    """A name that stands for no genotype."""


def bundled_names() -> tuple[str, ...]:
    """The names of the bundled genotypes, in alphabetical order."""
    return tuple(sorted(path.stem for path in resource_path("genotypes").glob("*.json")))


def load_genotype(source: str | Path | Genotype) -> Genotype:
    """Gives the genotype that a name, a file or a written form stands for.

    Args:
        source: a bundled name such as ``i-darts-ptb``, a file of any written form, the run folder of a search, a
            one-line genotype, an address (``https://...`` or ``hf://owner/name``, see
            `flair_nas.library.https.download`), or a `Genotype`, which is returned as it is.

    Raises:
        GenotypeError: nothing is known by that name (close matches are offered), or it is faulty.
        FlairNasError: it cannot be fetched.
    """
    if isinstance(source, Genotype):
        return source
    text = str(source)
    if isinstance(source, str) and text in bundled_names():
        return Genotype.load(resource_path("genotypes", f"{text}.json"))
    if isinstance(source, str) and is_address(text):
        from flair_nas.library.https import download  # loads requests

        return Genotype.load(download(text)[0])
    if _names_a_file(source):
        path = user_path(source)
        found = path / "genotype.json"  # what a search leaves in its folder
        return Genotype.load(found if found.is_file() else path)
    if _looks_written(text):
        return Genotype.parse(text)
    names = bundled_names()
    hint = instead_of(text, names)
    if text.upper() in ("LSTM", "GRU", "RNN"):
        hint = f"{text} is one of Flair's own layers, which has no genotype"
    expected = f"a name ({', '.join(names)}), a file, an https:// or hf:// address, or a one-line genotype"
    expected = f"{expected}; {hint.strip()}" if hint else expected
    raise UnknownGenotype(expected, place=f"there is no genotype {brief(text)}")


def instead_of(text: str, names: Sequence[str]) -> str:
    """What is said of a text that stands for no genotype, as a sentence with a blank behind it; empty if nothing is.

    Args:
        text: a name, or the path of a folder.
        names: that are known.
    """
    if os.sep not in text:
        return did_you_mean(text, names)
    path = user_path(text)
    return f"there is no genotype.json in the folder {path}. " if path.is_dir() else meant(path)


def is_address(text: str) -> bool:
    """Return True if a text begins as addresses do: ``https://``, ``hf://``, or one that is refused."""
    return _ADDRESS.match(text) is not None


def _names_a_file(source: str | Path) -> bool:
    text = str(source)
    if isinstance(source, Path) or text.endswith((".json", ".txt", ".log")):
        return True
    try:
        path = user_path(text)
        return len(text) < 1000 and path.exists() and (not path.is_dir() or (path / "genotype.json").is_file())
    except (FlairNasError, OSError):  # too long or oddly made for a path
        return False


def _looks_written(text: str) -> bool:
    """Whether there is an edge or JSON in the text; a misspelt name such as `dart-v1` has no operation in it."""
    if text.lstrip().startswith("{") or "Genotype(" in text:
        return True
    return any(op in text for op in OPERATIONS[1:]) and any(c.isdigit() for c in text)
