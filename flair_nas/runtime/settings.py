"""Settings of an exported tagger, and the check that its folder is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError, brief
from flair_nas.storage.files import hash_file

FORMAT, VERSION = "flair-nas/onnx-tagger", 1
SETTINGS, MODEL, TRANSITIONS = "tagger.json", "tagger.onnx", "transitions.npy"
_FILES = ("model", "keys", "vectors", "words", "tokenizer")  # settings of embeddings that name files


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of an exported tagger, whose files must have the checksums of the export.

    Raises:
        FlairNasError: the folder is not whole, or a file is of another export.
        AttributeError, KeyError, TypeError: a setting is missing or of another type.
    """
    path = folder / SETTINGS
    if not path.is_file():
        what = "has no" if folder.is_dir() else "is no folder with"
        raise FlairNasError(f"{folder} {what} {SETTINGS}; flair-nas tag export writes it at the end: export once more")
    try:
        settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        is_ours = settings["format"] == FORMAT
    except (ValueError, KeyError, TypeError, RecursionError):
        is_ours = False
    if not is_ours:
        raise FlairNasError(f"{path}: this is no exported tagger, or it is cut short; export once more")
    if settings.get("version") != VERSION:
        raise FlairNasError(f"{path}: version {brief(settings.get('version'))} is not known here; update flair-nas")
    files: dict[str, str] = settings["files"]
    read = [MODEL, *(entry[key] for entry in settings["embeddings"] for key in _FILES if key in entry)]
    if others := [name for name in (*read, *files) if name not in files or Path(name).name != name]:
        raise FlairNasError(f"{path}: {brief(others[0])} is not one of the files of this folder; export once more")
    for name, checksum in files.items():
        file = folder / name
        if not file.is_file():
            raise FlairNasError(f"{file}: no such file; copy the whole folder, or export once more")
        if hash_file(file) != checksum:
            raise FlairNasError(f"{file}: is damaged, or of another export; copy the whole folder, or export once more")
    return settings
