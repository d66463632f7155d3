"""Locks of files and folders, and sets of files that are replaced whole or not at all.

One process holds a lock at a time; the system releases it when the process ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from flair_nas.errors import FlairNasError
from flair_nas.storage.files import UNFINISHED, is_unfinished

log = logging.getLogger("flair_nas")

LOCK = ".lock"


class LockHeldError(Exception):
    """Error of a lock that another process holds; it names the process if it can."""


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[], object] | None = None) -> Iterator[OSError | None]:
    """Hold a lock file while the block runs, and delete it afterwards.

    Args:
        path: the lock file, with the number of the process. A killed process leaves it behind, unlocked.
        waiting: called before this process waits for another. If it is None, `LockHeldError` is raised instead.

    Yields:
        None, or the reason why nothing is locked on a file system without locks.

    Raises:
        LockHeldError: another process holds the lock, and `waiting` is None.
        OSError: the file cannot be written, or it is a symbolic link.
    """
    path = path.absolute()  # the working directory may change in the block
    lock = FileLock(path, fallback_to_soft=False, on_acquired=_write_process)
    fault = None
    try:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            if waiting is None:
                raise LockHeldError(_describe_holder(path)) from None
            waiting()
            lock.acquire()
    except OSError as error:
        if error.filename is not None:  # opening failed; an error of locking names no file
            raise
        fault = error
    try:
        yield fault
    finally:
        if lock.is_locked or fault:  # False in a fork of the holder
            with contextlib.suppress(OSError):
                path.unlink()  # before the release: a process that waits for this file opens a new one
        lock.release()


def _write_process(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # a full disk; the number only serves a message
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())


def _describe_holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        if (number := path.read_text(errors="replace")).isdigit():
            return f"another process ({number})"
    return "another process"


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
            problem = f"{folder} is in use by {holder}; wait until it ends, or choose another folder"
            raise FlairNasError(problem) from None
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
    if folder.exists() and not folder.is_dir():
        raise FlairNasError(f"{folder} is a file; name a folder")
    with locked_folder(folder):
        before = {*ours(folder)}
        names = sorted(path.name for path in folder.iterdir() if not is_unfinished(path))
        if others := [name for name in names if name not in {*before, LOCK}]:
            raise FlairNasError(f"{folder} holds other files ({', '.join(others[:5])}); name a new folder")
        for path in filter(is_unfinished, folder.iterdir()):  # of a process that was killed
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        with tempfile.TemporaryDirectory(prefix=".", suffix=UNFINISHED, dir=folder) as name:
            try:
                yield Path(name)
                for path in sorted(Path(name).iterdir(), key=lambda path: path.name == last):
                    os.replace(path, folder / path.name)
            except OSError as error:  # name the file that is to be, not the temporary one
                if isinstance(error.filename, str) and Path(error.filename).parent == Path(name):
                    raise OSError(error.errno, error.strerror, str(folder / Path(error.filename).name)) from error
                raise
        for old in before - {*ours(folder)}:
            (folder / old).unlink(missing_ok=True)
