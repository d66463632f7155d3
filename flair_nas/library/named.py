"""Genotypes by name, file or address."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from flair_nas.errors import FlairNasError, brief, did_you_mean
from flair_nas.genotype import NO_NODES, OPERATIONS, Genotype, GenotypeError
from flair_nas.nn.layers import is_named
from flair_nas.storage.paths import user_path
from flair_nas.storage.resources import resource_path


class UnknownGenotypeError(GenotypeError):
    """Error of a source that is no name, file, address or written form of a genotype."""


def bundled_names() -> tuple[str, ...]:
    """Return the names of the bundled genotypes, in alphabetical order.

    Example:
        >>> from flair_nas import bundled_names
        >>> "darts-v1" in bundled_names()
        True
    """
    return tuple(sorted(path.stem for path in resource_path("genotypes").glob("*.json")))


def load_genotype(source: str | Path | Genotype) -> Genotype:
    """Return a genotype by its name, file, address or written form.

    Args:
        source: a bundled name such as ``i-darts-ptb``, a file, the run folder of a search, a one-line genotype, or a
            `Genotype`. For addresses see `flair_nas.library.downloads.download`.

    Raises:
        GenotypeError: the source is unknown (the error has close matches), or its genotype is faulty.
        FlairNasError: it cannot be fetched.

    Example:
        >>> from flair_nas import load_genotype
        >>> load_genotype("small-relu-tanh").one_line()
        'relu0-tanh1'
    """
    if isinstance(source, Genotype):
        return source
    if not isinstance(source, (str, Path)):
        hint = "; Genotype.from_dict reads its JSON data" * isinstance(source, dict)
        raise GenotypeError(f"a text, a path or a Genotype{hint}", place=f"there is no genotype {brief(source)}")
    text = str(source)
    if isinstance(source, str) and text in bundled_names():
        return Genotype.load(resource_path("genotypes", f"{text}.json"))
    if isinstance(source, str) and is_address(text):
        from flair_nas.library.downloads import download

        return Genotype.load(download(text)[0])
    if _is_file(source):
        path = user_path(source)
        in_run = path / "genotype.json"
        return Genotype.load(in_run if in_run.is_file() else path)
    if _is_written(text):
        return Genotype.parse(text)
    names, is_layer = bundled_names(), is_named(text)
    hint = f"{text} is a layer without a genotype" if is_layer else suggest_source(text, names).strip()
    expected = f"a name ({', '.join(names)}), a file, an https:// or hf:// address, or a one-line genotype"
    raise UnknownGenotypeError(f"{expected}; {hint}" if hint else expected, place=f"there is no genotype {brief(text)}")


def suggest_source(text: str, names: Sequence[str]) -> str:
    """Return a sentence of suggestions for an unknown name or path, with a blank after it, or an empty string."""
    if os.sep not in text:
        return did_you_mean(text, names)
    path = user_path(text)
    return f"there is no genotype.json in the folder {path}. " if path.is_dir() else ""


def is_address(text: str) -> bool:
    """Return True if a text begins with a scheme, such as ``https://`` or ``hf://``."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None


def _is_file(source: str | Path) -> bool:
    """Return True if a source is a file, or a folder with ``genotype.json``, or has a file's suffix."""
    text = str(source)
    if isinstance(source, Path) or text.lower().endswith((".json", ".txt", ".log")):
        return True
    try:
        path = user_path(text)
        return path.exists() and (not path.is_dir() or (path / "genotype.json").is_file())
    except (FlairNasError, OSError):  # no path can be written so
        return False


def _is_written(text: str) -> bool:
    """Return True if a text is JSON or a written genotype, unlike a misspelt name such as `dart-v1`."""
    if text.lstrip().startswith("{") or "Genotype(" in text or re.split("[/:]", text)[0] == NO_NODES:
        return True
    return any(op in text for op in OPERATIONS[1:]) and any(map(str.isdigit, text))
