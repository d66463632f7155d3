"""Settings of an exported tagger, and the check that its folder is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError, brief, shown
from flair_nas.runtime.vectors import KINDS
from flair_nas.storage.files import hash_file

FORMAT, VERSION = "flair-nas/onnx-tagger", 1
SETTINGS, MODEL, TRANSITIONS = "tagger.json", "tagger.onnx", "transitions.npy"


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of an exported tagger, whose files must have the checksums of the export.

    Raises:
        FlairNasError: the folder is not whole, or a file is of another export.
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
    try:
        _check(path, settings)
    except (AttributeError, KeyError, TypeError) as error:
        problem = f"a setting is missing or of another type ({shown(error)})"
        raise FlairNasError(f"{path}: {problem}; export once more") from None
    for name, checksum in settings["files"].items():
        file = folder / name
        if not file.is_file():
            raise FlairNasError(f"{file}: no such file; copy the whole folder, or export once more")
        if hash_file(file) != checksum:
            raise FlairNasError(f"{file}: is damaged, or of another export; copy the whole folder, or export once more")
    return settings


def _check(path: Path, settings: dict[str, Any]) -> None:
    """Raise an error unless all settings are there and fit, and each file is listed and in this folder."""
    kinds = {"label_type": str, "tags": list, "spans": bool, "embeddings": list, "files": dict}
    if others := [name for name, kind in kinds.items() if not isinstance(settings[name], kind)]:
        raise TypeError(others[0])
    needed = [MODEL, *[TRANSITIONS] * (settings["crf"] is not None)]
    for entry in settings["embeddings"]:
        kind = () if entry["kind"] == "given" else KINDS[entry["kind"]].settings
        own = {key: entry[key] for key in ("name", "width", *kind)}
        needed += [own[key] for key in ("model", "keys", "vectors", "words", "tokenizer") if key in own]
    files = settings["files"]
    if others := [name for name in (*needed, *files) if name not in files or Path(name).name != name]:
        raise FlairNasError(f"{path}: {brief(others[0])} is not one of the files of this folder; export once more")
    crf = settings["crf"]
    crf_fits = crf is None or (len(crf) == 2 and max(crf) < len(settings["tags"]))
    if settings["width"] != sum(entry["width"] for entry in settings["embeddings"]) or not crf_fits:
        raise FlairNasError(f"{path}: width or crf does not fit; export once more")
