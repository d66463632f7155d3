"""Folders of embeddings, which run no code.

``embedding.json`` says what they are. ``table.safetensors`` holds the vectors of words; it is mapped where it is.
``forward.safetensors`` and ``backward.safetensors`` are character models. A folder lacks what it was not made with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from flair_nas.errors import FlairNasError, brief, shown
from flair_nas.runtime.decoding import Floats
from flair_nas.storage.files import hash_file, whole_file, write_text
from flair_nas.storage.paths import typed, user_path

FORMAT, VERSION = "flair-nas/embedding", 1
ABOUT, TABLE = "embedding.json", "table.safetensors"
CHARACTERS = ("forward.safetensors", "backward.safetensors")
WORDS = "#words"
"""The end of the spec of a folder's word vectors."""
REMEDY = "copy the folder again, or make it again by flair-nas embed train"


def write_table(path: Path, rows: Mapping[str, int], vectors: Floats, parts: Floats | None = None) -> dict[str, int]:
    """Write vectors of words in 8 bits, for `WordTable`.

    Equal vectors are written once. Without `parts`, a word is left out if it has the vector of its lower case.

    Args:
        path: the file.
        rows: the row of each word, in any order.
        vectors: at most 65,536 different ones, [rows, width].
        parts: vectors of parts of words, [part rows, width].

    Returns:
        The width and the numbers of words, vectors and vectors of parts.
    """
    places: dict[bytes, int] = {}
    new_rows = [places.setdefault(vector.tobytes(), len(places)) for vector in vectors]
    words = {word: new_rows[row] for word, row in rows.items()}
    if parts is None:
        words = {w: row for w, row in words.items() if w == w.lower() or words.get(w.lower()) != row}
    encoded = sorted((word.encode(), row) for word, row in words.items())
    numbers, scales = _round(np.frombuffer(b"".join(places), vectors.dtype).reshape(-1, vectors.shape[1]))
    tensors: dict[str, NDArray[Any]] = {
        "words": np.frombuffer(b"".join(word + b"\n" for word, _ in encoded), np.uint8),
        "rows": np.array([row for _, row in encoded], np.uint16),
        "vectors": numbers,
        "scales": scales,
    }
    if parts is not None:
        tensors["part_vectors"], tensors["part_scales"] = _round(parts)
    with whole_file(path) as temporary:
        save_file(tensors, temporary)
    return {
        "width": vectors.shape[1],
        "words": len(words),
        "vectors": len(numbers),
        **({} if parts is None else {"part_vectors": len(parts)}),
    }


def _round(vectors: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Return vectors [rows, width] as 8-bit integers, and the number that multiplies each row, [rows, 1]."""
    scales = (np.abs(vectors).max(axis=1, keepdims=True) / 127).astype(np.float32)
    return np.rint(vectors / np.maximum(scales, np.finfo(np.float32).tiny)).astype(np.int8), scales


def write_about(folder: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write ``embedding.json`` with the checksums of the other files of the folder, and return its contents.

    It makes the folder whole.

    Args:
        folder: a folder with the other files.
        about: name, language, source, licence and the like.
    """
    files = {name: hash_file(folder / name) for name in (TABLE, *CHARACTERS) if (folder / name).exists()}
    description = {"format": FORMAT, "version": VERSION, **about, "files": files}
    write_text(folder / ABOUT, json.dumps(description, indent=2, ensure_ascii=False) + "\n")
    return description


def read_about(folder: Path, remedy: str) -> dict[str, Any]:
    """Return the contents of ``embedding.json``.

    Raises:
        FlairNasError: it is missing, damaged or of another version; the message ends with `remedy`.
    """
    path = folder / ABOUT
    try:
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        is_ours, version = about["format"] == FORMAT and {*about["files"]} <= {TABLE, *CHARACTERS}, about["version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FlairNasError(f"{path}: is missing or damaged ({shown(error)}); {remedy}") from None
    if not is_ours or version != VERSION:
        raise FlairNasError(f"{path}: version {brief(version)} is not known here; update flair-nas")
    return about


def check_file(folder: Path, name: str, about: Mapping[str, Any], remedy: str) -> Path:
    """Return the path of a file of a folder whose checksum is that of ``embedding.json``.

    Raises:
        FlairNasError: the file is missing, damaged or another one; the message ends with `remedy`.
    """
    path = folder / name
    try:
        if hash_file(path) == about["files"][name]:
            return path
    except OSError as error:
        raise FlairNasError(f"{path}: cannot be read ({shown(error)}); {remedy}") from None
    raise FlairNasError(f"{path}: is damaged, or of another version than {ABOUT}; {remedy}")


def expand_folder(spec: str) -> list[str]:
    """Return the specs of the embeddings in a folder, or the spec itself if it is of no folder.

    Args:
        spec: ``FOLDER``, ``FOLDER#words`` or ``FOLDER#characters``, or another spec.

    Raises:
        FlairNasError: the folder is unfinished or lacks that part, or a character model in it is missing or damaged.
    """
    source, _, part = (spec, "", "") if user_path(spec).is_dir() else spec.rpartition("#")
    folder = user_path(source)
    is_part = part in ("words", "characters")
    if not source or not (folder.is_dir() or is_part):
        return [spec]
    if part and not is_part:
        raise FlairNasError(f"embeddings {brief(spec)}: the parts of a folder are #words and #characters")
    if not folder.is_dir():
        raise FlairNasError(f"embeddings {brief(spec)}: there is no folder {folder}")
    if not (folder / ABOUT).exists():
        hint = ""
        if (folder / "training").is_dir():
            hint = f"; its training was stopped: go on with flair-nas embed train --resume {typed(str(folder))}"
        if (folder / "config.json").exists():
            hint = f"; if it holds a transformer, write transformer:{source}"
        raise FlairNasError(f"embeddings {brief(spec)}: {folder} holds no {ABOUT}{hint}")
    about, place = read_about(folder, REMEDY), str(Path(source))
    specs = [place + WORDS] if TABLE in about["files"] and part != "characters" else []
    if part != "words":
        names = [name for name in CHARACTERS if name in about["files"]]
        specs += [f"flair:{Path(place, check_file(folder, name, about, REMEDY).name)}" for name in names]
    if not specs:
        raise FlairNasError(f"embeddings {brief(spec)}: {folder} was made without {part or 'any'}")
    return specs
