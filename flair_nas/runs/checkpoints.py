"""The last two checkpoints of a run, with checksums."""

from __future__ import annotations

import logging
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from flair_nas.errors import FlairNasError, shown
from flair_nas.storage.files import whole_file
from flair_nas.storage.paths import check_regular

log = logging.getLogger("flair_nas")

State = dict[str, Any]
"""The content of a checkpoint: tensors, numbers, text, None, and lists, tuples and dictionaries of these."""


class Checkpoints:
    """The last two checkpoints of a run: ``checkpoint.pt`` and ``checkpoint-previous.pt`` in its folder."""

    def __init__(self, folder: str | Path) -> None:
        self.newest = Path(folder) / "checkpoint.pt"
        self.previous = Path(folder) / "checkpoint-previous.pt"
        self._newest_is_whole: bool | None = None  # not known yet

    def save(self, state: Mapping[str, Any]) -> None:
        """Write the newest checkpoint whole or not at all. The one before becomes the previous one."""
        with whole_file(self.newest) as temporary:
            torch.save(state, temporary)
            with open(temporary, "rb") as stream:
                os.fsync(stream.fileno())  # before the previous one is replaced
            if self._newest_is_whole is None:
                self._newest_is_whole = is_whole(self.newest)
            if self._newest_is_whole and self.newest.exists():
                os.replace(self.newest, self.previous)  # after a kill here, `load` takes the previous one
        self._newest_is_whole = True

    def load(self) -> State | None:
        """Read the newest whole checkpoint, or return None if there is none. Refuse a folder of damaged ones."""
        faults: list[str] = []
        for path in filter(Path.exists, (self.newest, self.previous)):
            try:
                state = read_checkpoint(path)
            except FlairNasError as error:
                faults.append(str(error))
                continue
            self._newest_is_whole = path == self.newest
            if path == self.previous:
                log.warning("%s; the one before is used: %s", faults[0] if faults else f"no {self.newest}", path)
            return state
        if faults:
            raise FlairNasError(f"{'; '.join(faults)}. To start over, delete {self.newest.parent}")
        return None


def read_checkpoint(path: str | Path) -> State:
    """Read a checkpoint, with tensors on the CPU, and verify its checksums."""
    try:
        verify_checksums(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict):
            raise ValueError(f"it holds a {type(state).__name__}")
    except MemoryError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything
        raise FlairNasError(
            f"{path}: this checkpoint cannot be read, it is damaged or cut short ({shown(error)})"
        ) from None
    return state


def is_whole(path: str | Path) -> bool:
    """Return True if a file of `torch.save` exists and its checksums match."""
    try:
        verify_checksums(path)
    except Exception:  # a damaged file can raise nearly anything
        return False
    return True


def verify_checksums(path: str | Path) -> None:
    """Verify the checksums in a file of `torch.save`. Damage can raise any error. `torch.load` verifies none."""
    check_regular(path)
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError("a checksum does not match")
