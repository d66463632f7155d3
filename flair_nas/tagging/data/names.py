"""Names and folders of corpora, without Flair: a command refuses an unknown corpus before it loads libraries."""

from __future__ import annotations

from pathlib import Path

from flair_nas.errors import FlairNasError, brief, did_you_mean
from flair_nas.storage.paths import typed, user_path

NAMES = ("demo", "conll_03", "conll_2000", "wnut_17")
"""Names of corpora that are no folders."""


def check_corpus(source: str) -> None:
    """Raise an error unless a corpus is a known name or a folder."""
    if source not in NAMES:
        find_folder(source)


def find_folder(source: str) -> Path:
    """Return the folder of a corpus that is not a known name, or raise an error with close matches."""
    folder = user_path(source)
    if folder.is_dir():
        return folder
    if folder.exists():
        fault = f"corpus {brief(source)} is a file; give the folder that holds train, dev and test files"
        is_other = folder.suffix.lower() in (".csv", ".json", ".jsonl")
        raise FlairNasError(
            f"{fault}, which `flair-nas convert {typed(folder)} --out FOLDER` makes" if is_other else fault
        )
    hint = did_you_mean(source.replace("-", "_"), NAMES)
    raise FlairNasError(
        f"unknown corpus {brief(source)}: {hint}give one of {', '.join(NAMES)}, or a folder of column files; "
        f"there is no folder {folder.absolute()}"
    )
