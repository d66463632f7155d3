"""Lock files: held by one process at a time, and given back by the system when it ends, in whatever way."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from flair_nas.errors import FlairNasError
from flair_nas.storage.paths import read_file


class Held(Exception):
    """Another process holds the lock; the text says which one, as far as it is known."""


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[], object] | None = None) -> Iterator[OSError | None]:
    """Holds a lock file while the block runs; afterwards the file is gone.

    Args:
        path: the file. It holds the number of the process that has it; a killed process leaves it behind, unlocked.
        waiting: called when another process holds it, before this one waits. Without it there is no waiting.

    Yields:
        None; or, on a disk that knows no locks, why nothing is locked.

    Raises:
        Held: another process holds it, and there is no waiting.
        FlairNasError: the path is a symbolic link, which might lead to a file of somebody's.
        OSError: the file cannot be written.
    """
    path = path.absolute()  # the working directory may change meanwhile
    lock = FileLock(path, fallback_to_soft=False, on_acquired=_sign)
    fault = None
    try:
        _acquire(lock, path, waiting)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FlairNasError(f"{path} is a symbolic link, and no lock goes through one; remove it") from None
        if error.filename is not None:  # opening names the file, locking what is open does not
            raise
        fault = error
    try:
        yield fault
    finally:
        if lock.is_locked or fault:  # else this is a fork of the process that holds it
            with contextlib.suppress(OSError):
                path.unlink()  # while it is still locked: whoever waits for this very file looks for a new one
        lock.release()


def _acquire(lock: FileLock, path: Path, waiting: Callable[[], object] | None) -> None:
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if waiting is None:
            raise Held(_holder(path)) from None
        waiting()
        lock.acquire()


def _sign(descriptor: int) -> None:
    if os.fstat(descriptor).st_nlink > 1:  # by its other name, it may be a file of somebody's
        return
    with contextlib.suppress(OSError):  # a full disk: the number is there for a message only
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())


def _holder(path: Path) -> str:
    number = ""
    with contextlib.suppress(OSError):
        number = read_file(path, 1000).decode(errors="replace")
    return f"another process ({number})" if number.isdigit() else "another process"
