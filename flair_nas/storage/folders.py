"""Locked folders, and sets of files that are replaced whole or not at all."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from flair_nas.errors import FlairNasError
from flair_nas.storage.files import UNFINISHED, is_unfinished
from flair_nas.storage.locks import LockHeldError, locked

log = logging.getLogger("flair_nas")

LOCK = ".lock"


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Make a folder and lock it while the block runs; remove a new folder that stays empty.

    Raises:
        FlairNasError: another process holds the lock, or the folder cannot be written to.
    """
    with contextlib.ExitStack() as stack:
        if not folder.exists():
            stack.callback(_remove_empty, folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            fault = stack.enter_context(locked(folder / LOCK))
        except OSError as error:
            raise FlairNasError(f"cannot write to the folder {folder}: {error.strerror or error}") from None
        except LockHeldError as holder:
            raise FlairNasError(
                f"{folder} is in use by {holder}; wait until it ends, or choose another folder"
            ) from None
        if fault is not None:
            log.warning("%s cannot be locked (%s): let no other process use it", folder, fault.strerror)
        yield


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not empty
        folder.rmdir()


@contextlib.contextmanager
def whole_files(folder: Path, last: str, ours: Callable[[Path], Collection[str]] = lambda folder: ()) -> Iterator[Path]:
    """Yield an empty folder whose files move to `folder` when the block ends without an error.

    Until then the files of `folder` stay as they are. Only a kill during the moves, which take milliseconds, leaves a
    mixture.

    Args:
        folder: a folder that is new, or holds only `ours`.
        last: the file to move last; with it the set is whole.
        ours: function that names the files of an earlier call. Files that it no longer names after the moves are
            removed.

    Raises:
        FlairNasError: the folder holds other files, is a file, or another process is writing to it.
        OSError: it cannot be written.
    """
    _check_others(folder, ours(folder))
    with locked_folder(folder):
        before = {*ours(folder)}
        _check_others(folder, before)  # another process may have written since
        for path in filter(is_unfinished, folder.iterdir()):  # of a process that was killed
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        with tempfile.TemporaryDirectory(prefix=".", suffix=UNFINISHED, dir=folder) as name, _named(name, folder):
            yield Path(name)
            for path in sorted(Path(name).iterdir(), key=lambda path: path.name == last):
                os.replace(path, folder / path.name)
        for old in before - {*ours(folder)}:
            (folder / old).unlink(missing_ok=True)


def _check_others(folder: Path, ours: Collection[str]) -> None:
    """Raise FlairNasError if a path is a file, or a folder with other files than `ours`."""
    if folder.exists() and not folder.is_dir():
        raise FlairNasError(f"{folder} is a file; name a folder")
    paths = sorted(folder.iterdir()) if folder.exists() else []
    others = [path.name for path in paths if path.name not in (*ours, LOCK) and not is_unfinished(path)]
    if others:
        raise FlairNasError(f"{folder} holds other files ({', '.join(others[:5])}); name a new folder")


@contextlib.contextmanager
def _named(part: str, folder: Path) -> Iterator[None]:
    """Let an OSError of a file in `part` name the file of `folder` that it becomes."""
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str) and Path(error.filename).parent == Path(part):
            raise OSError(error.errno, error.strerror, str(folder / Path(error.filename).name)) from error
        raise
