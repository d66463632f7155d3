"""Folders of embeddings: ``embedding.json`` says what they are, and ``table.safetensors`` holds the vectors of words.

Loading a folder runs no code. Nothing is unpacked: the table is mapped where it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from flair_nas.errors import FlairNasError, brief, shown
from flair_nas.runtime.decoding import Floats
from flair_nas.runtime.word_table import WordTable
from flair_nas.storage.files import hash_file, whole_file, write_text

FORMAT, VERSION = "flair-nas/embedding", 1
ABOUT, TABLE = "embedding.json", "table.safetensors"


def write_embedding_folder(folder: Path, rows: Mapping[str, int], vectors: Floats, about: Mapping[str, str]) -> None:
    """Write vectors of words to a folder, in 8 bits.

    Equal vectors are written once. A word is left out if it has the vector of its lower case, which `WordTable` reads.

    Args:
        folder: a folder that is there.
        rows: the row of each word, in any order.
        vectors: at most 65,536 different ones, [rows, width].
        about: name, language, source, licence and the like.
    """
    places: dict[bytes, int] = {}
    new_rows = [places.setdefault(vector.tobytes(), len(places)) for vector in vectors]
    words = {word: new_rows[row] for word, row in rows.items()}
    words = {w: row for w, row in words.items() if w == w.lower() or words.get(w.lower()) != row}
    encoded = sorted((word.encode(), row) for word, row in words.items())
    vectors = np.stack([np.frombuffer(data, vectors.dtype) for data in places])
    scales = (np.abs(vectors).max(axis=1, keepdims=True) / 127).astype(np.float32)
    tensors = {
        "words": np.frombuffer(b"".join(word + b"\n" for word, _ in encoded), np.uint8),
        "rows": np.array([row for _, row in encoded], np.uint16),
        "vectors": np.rint(vectors / np.maximum(scales, np.finfo(np.float32).tiny)).astype(np.int8),
        "scales": scales,
    }
    with whole_file(folder / TABLE) as temporary:
        save_file(tensors, temporary)
    description = {
        "format": FORMAT,
        "version": VERSION,
        **about,
        "width": vectors.shape[1],
        "words": len(words),
        "vectors": len(vectors),
        "files": {TABLE: hash_file(folder / TABLE)},
    }
    write_text(folder / ABOUT, json.dumps(description, indent=2, ensure_ascii=False) + "\n")


def read_embedding_folder(folder: Path, remedy: str) -> tuple[WordTable, str]:
    """Return the table of a folder and its checksum.

    Raises:
        FlairNasError: the folder is not whole; the message ends with `remedy`.
    """
    path = folder / ABOUT
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        is_ours, version, checksum = about["format"] == FORMAT, about["version"], about["files"][TABLE]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FlairNasError(f"{path}: is missing or damaged ({shown(error)}); {remedy}") from None
    if not is_ours or version != VERSION:
        raise FlairNasError(f"{path}: version {brief(version)} is not known here; update flair-nas")
    try:
        if hash_file(folder / TABLE) == checksum:
            return WordTable(folder / TABLE), checksum
    except OSError as error:
        raise FlairNasError(f"{folder / TABLE}: cannot be read ({shown(error)}); {remedy}") from None
    raise FlairNasError(f"{folder / TABLE}: is damaged, or of another version than {ABOUT}; {remedy}")
