"""Lock files. One process holds a lock at a time; the system releases it when the process ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from flair_nas.storage.paths import read_file


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
    number = ""
    with contextlib.suppress(OSError):
        number = read_file(path, 1000).decode(errors="replace")
    return f"another process ({number})" if number.isdigit() else "another process"
