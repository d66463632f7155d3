"""Check of a run folder, without PyTorch. A command refuses a folder before it loads libraries."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from flair_nas.errors import FlairNasError, brief
from flair_nas.settings.fields import flatten
from flair_nas.settings.resolve import UnknownSettingsError, read_run_settings
from flair_nas.storage.files import is_unfinished
from flair_nas.storage.folders import LOCK

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def check_folder(out: Path, config: DataclassInstance, may_change: Collection[str], quantity: str) -> None:
    """Raise an error unless a folder is new or empty, or holds a run with these settings.

    The settings `may_change` may differ from those of the run. `quantity` is the name of such a run in errors.
    """
    if out.exists() and not out.is_dir():
        raise FlairNasError(f"{out} is a file; give a folder with --out")
    written = out / "config.yaml"
    # another process may begin a run here: list its files before looking for config.yaml
    paths = list(out.iterdir()) if out.exists() else []
    if not written.exists():
        if any(os.path.lexists(path) for path in paths if path.name != LOCK and not is_unfinished(path)):
            raise FlairNasError(f"{out} is not empty, and holds no {quantity} to go on with; choose another folder")
        return
    try:
        before = flatten(read_run_settings(written, type(config)))
    except FlairNasError as error:
        why = ", but one of another kind" if isinstance(error, UnknownSettingsError) else f" ({error})"
        raise FlairNasError(f"{out} holds no {quantity} to go on with{why}; choose another folder") from None
    changes = [
        f"{name} was {brief(before[name])} and is now {brief(value)}"
        for name, value in flatten(config).items()
        if name not in may_change and value != before.get(name, value)  # another choice has other settings
    ]
    if changes:
        raise FlairNasError(
            f"{out} holds a {quantity} with other settings: {'; '.join(changes)}. Choose another folder"
        )
