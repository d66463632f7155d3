"""Settings of an exported tagger, which may come from elsewhere: they are checked before anything else is read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from flair_nas.errors import FlairNasError, brief
from flair_nas.storage.files import hash_file

FORMAT, VERSION = "flair-nas/onnx-tagger", 1
SETTINGS, MODEL, TRANSITIONS = "tagger.json", "tagger.onnx", "transitions.npy"


class _Form(NamedTuple):
    """Values that a setting may have, in words and as a test."""

    text: str
    fits: Callable[[Any], bool]


def _is_count(value: Any, first: int) -> bool:
    return type(value) is int and first <= value < 1 << 31


def _is_list(kind: type, values: Any) -> bool:
    return isinstance(values, list) and values != [] and all(isinstance(value, kind) for value in values)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(_is_count(number, 0) for number in value)


_TEXT = _Form("a text", lambda value: isinstance(value, str))
_FLAG = _Form("true or false", lambda value: isinstance(value, bool))
_SIZE = _Form("a whole number above 0", lambda value: _is_count(value, 1))
_IDS = _Form(
    "whole numbers by character",
    lambda value: isinstance(value, dict) and all(_is_count(number, 0) for number in value.values()),
)
_TAGGER = {
    "label_type": _TEXT,
    "tags": _Form("a list of texts", partial(_is_list, str)),
    "spans": _FLAG,
    "crf": _Form("null or the numbers of two tags", lambda value: value is None or _is_pair(value)),
    "width": _SIZE,
    "embeddings": _Form("a list of objects", partial(_is_list, dict)),
    "files": _Form(
        "checksums by file",
        lambda value: isinstance(value, dict) and all(isinstance(sum, str) for sum in value.values()),
    ),
}
_EMBEDDINGS = {"name": _TEXT, "width": _SIZE}


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of an exported tagger, and check their names, their types, and the files of the folder.

    Raises:
        FlairNasError: the folder is not whole, a file is of another export, or a setting is missing or of another type.
    """
    path = folder / SETTINGS
    if not path.is_file():
        what = "has no" if folder.is_dir() else "is no folder with"
        raise FlairNasError(f"{folder} {what} {SETTINGS}; flair-nas tag export writes it at the end: export once more")
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        is_ours = settings["format"] == FORMAT
    except (ValueError, KeyError, TypeError, RecursionError):
        is_ours = False
    if not is_ours:
        raise FlairNasError(f"{path}: this is no exported tagger, or it is cut short; export once more")
    if settings.get("version") != VERSION:
        raise FlairNasError(f"{path}: version {brief(settings.get('version'))} is not known here; update flair-nas")
    _check(path, settings, _TAGGER)
    _check_embeddings(path, settings)
    tags, width = len(settings["tags"]), settings["width"]
    if max(settings["crf"] or [0]) >= tags:
        raise FlairNasError(f"{path}: crf {settings['crf']} are no two of its {tags} tags; export once more")
    if width != (widths := sum(entry["width"] for entry in settings["embeddings"])):
        raise FlairNasError(f"{path}: width is {width}, and the embeddings have {widths}; export once more")
    _check_files(folder, settings)
    return dict(settings)


def _check(path: Path, settings: Mapping[str, Any], forms: Mapping[str, _Form], place: str = "") -> None:
    """Raise FlairNasError at the first setting that is missing, or is of another form."""
    for name, form in forms.items():
        if name not in settings:
            raise FlairNasError(f"{path}: {place}{name} is missing; export once more")
        if not form.fits(settings[name]):
            value = brief(settings[name])
            raise FlairNasError(f"{path}: {place}{name} must be {form.text}, got {value}; export once more")


def _check_embeddings(path: Path, settings: Mapping[str, Any]) -> None:
    """Raise FlairNasError unless each of the embeddings has what its kind needs."""
    file = _Form("one of files", lambda value: isinstance(value, str) and value in settings["files"])
    characters = {"model": file, "characters": _IDS}
    flags = dict.fromkeys(("is_forward_lm", "with_whitespace", "tokenized_lm", "is_lower"), _FLAG)
    kinds = {
        "given": {},
        "table": {"keys": file, "vectors": file, "loose": _FLAG},
        "characters": characters,
        "language model": {**characters, **flags, "start_marker": _TEXT, "chars_per_chunk": _SIZE},
    }
    known = _Form(f"one of {', '.join(kinds)}", lambda value: isinstance(value, str) and value in kinds)
    for number, entry in enumerate(settings["embeddings"], start=1):
        place = f"embeddings, entry {number}: "
        _check(path, entry, {"kind": known}, place)
        _check(path, entry, {**_EMBEDDINGS, **kinds[entry["kind"]]}, place)


def _check_files(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise FlairNasError unless the files are plain ones of the folder, with their checksums."""
    needed = [MODEL, *[TRANSITIONS] * (settings["crf"] is not None)]
    for name in dict.fromkeys([*needed, *settings["files"]]):
        file = folder / name
        if name not in settings["files"]:
            raise FlairNasError(f"{folder / SETTINGS}: {name} is not one of files; export once more")
        if os.path.basename(name) != name or name in ("", ".", ".."):
            raise FlairNasError(f"{folder / SETTINGS}: {brief(name)} is no file of this folder; export once more")
        if not os.path.isfile(file):  # no pipe either, which may never end
            problem = "no plain file" if os.path.lexists(file) else "no such file"
            raise FlairNasError(f"{file}: {problem}; copy the whole folder, or export once more")
        if hash_file(file) != settings["files"][name]:
            raise FlairNasError(f"{file}: is damaged, or of another export; copy the whole folder, or export once more")
