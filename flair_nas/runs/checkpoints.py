"""The last two checkpoints of a run, written whole or not at all, with checksums that are looked at."""

from __future__ import annotations

import logging
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import torch

from flair_nas.errors import FlairNasError, shown
from flair_nas.storage.files import whole_file
from flair_nas.storage.paths import check_regular

log = logging.getLogger("flair_nas")

START_OVER = "To start over, delete them or choose another folder"


class Checkpoints:
    """The last two checkpoints of a run: ``checkpoint.pt`` and, before it, ``checkpoint-previous.pt``.

    Args:
        folder: where they lie; it exists.
    """

    def __init__(self, folder: str | Path) -> None:
        self.newest = Path(folder) / "checkpoint.pt"
        self.previous = Path(folder) / "checkpoint-previous.pt"
        self._newest_is_whole: bool | None = None  # not known yet

    def save(self, state: dict[str, Any]) -> None:
        """Writes the newest checkpoint whole or not at all; the one that was the newest becomes the one before.

        Args:
            state: what `torch.load` reads with `weights_only`: tensors, numbers, text, None, and lists, tuples and
                dictionaries of these.

        Raises:
            OSError: it cannot be written; in plain words when the disk is full. What was there stays as it was.
        """
        with whole_file(self.newest) as temporary:
            torch.save(state, temporary)
            with open(temporary, "rb") as stream:
                os.fsync(stream.fileno())  # from here on there is little left that can fail
            if self._may_replace_previous():
                with whole_file(self.previous) as second_name:
                    second_name.unlink()
                    try:
                        os.link(self.newest, second_name)
                    except OSError:  # a disk that knows no hard links
                        shutil.copyfile(self.newest, second_name)
        self._newest_is_whole = True

    def load(self, start_over: str = START_OVER) -> dict[str, Any] | None:
        """Reads the newest checkpoint that is whole; a warning says when that is not the newest one.

        Args:
            start_over: what to do when none is whole, for the error.

        Returns:
            What was saved, tensors on the CPU; None when there is no checkpoint.

        Raises:
            FlairNasError: there are checkpoints, and all are damaged.
        """
        faults: list[str] = []
        for path in (self.newest, self.previous):
            if not path.exists():
                continue
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
            raise FlairNasError(f"{'; '.join(faults)}. {start_over}")
        return None

    def _may_replace_previous(self) -> bool:
        """Whether the newest is there and good, and not the same file as the one before."""
        if not self.newest.exists():
            return False
        if self._newest_is_whole is None:
            self._newest_is_whole = is_whole(self.newest)
        return self._newest_is_whole and not (self.previous.exists() and self.previous.samefile(self.newest))


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Reads a checkpoint and checks the sums of all that is in it.

    Returns:
        What was saved, tensors on the CPU.

    Raises:
        FlairNasError: it is cut short or otherwise damaged, or no checkpoint.
    """
    try:
        check_sums(path)
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
    """Whether a file that torch.save wrote is there, and all sums in it are right."""
    try:
        check_sums(path)
    except Exception:  # a damaged file can raise nearly anything
        return False
    return True


def check_sums(path: str | Path) -> None:
    """Checks the sums of all that is in a file that `torch.save` wrote; `torch.load` does not look at them.

    Raises:
        OSError: it cannot be read, or is no file but a pipe or a device.
        ValueError: a sum does not match.
        zipfile.BadZipFile: it is damaged otherwise, or of another kind; damage can raise further errors.
    """
    check_regular(path)
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError("a checksum does not match")
