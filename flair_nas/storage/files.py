"""Files that are written whole or not at all, and their checksums."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from flair_nas.storage.paths import check_regular

_BY_NUMPY = re.compile(r"^\d+ requested and \d+ written")  # its error of a full disk has no number
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
UNFINISHED = ".flair-nas.part"
"""Suffix of temporary files and folders."""


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`; rename it to `path` when the block ends without an error.

    Raises:
        OSError: the file cannot be written. The old file stays, and the temporary one is removed.
    """
    path = Path(path)
    try:
        # a prefix of the name: file names are limited to 255 bytes
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:50]}.", suffix=UNFINISHED, dir=path.parent)
    except OSError as error:  # which names the temporary file
        raise OSError(error.errno, error.strerror, str(path)) from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if explained := _explain(error, path, temporary):
            raise explained from error
        raise


def _explain(error: BaseException, path: Path, temporary: Path) -> OSError | None:
    """Return a system error that names `path`, or None for errors of other kinds."""
    number = _system_error(error)
    if number in DISK_FULL:
        kept = "the file that was there before is kept" if path.exists() else "no half-written file is left"
        message = f"no room to write this file ({kept}); free some disk space, then run the command again"
        return OSError(errno.ENOSPC, message, str(path))
    is_write = number is not None or isinstance(error, RuntimeError)  # torch.save raises RuntimeError
    if is_write and not path.parent.exists():
        return FileNotFoundError(errno.ENOENT, "the folder of this file is gone", str(path))
    if number is not None and getattr(error, "filename", str(temporary)) == str(temporary):
        return OSError(number, os.strerror(number), str(path))
    return None


def _system_error(error: BaseException) -> int | None:
    """Return the error number of a failed write, or None if the error is of another kind."""
    if isinstance(error, OSError):
        return errno.ENOSPC if _BY_NUMPY.search(str(error)) else error.errno
    if match := re.search(r"\(os error (\d+)\)", str(error)):  # safetensors and other libraries in Rust
        return int(match[1])
    words = ("PytorchStreamWriter", "inline_container", "file write")  # torch.save gives no number
    return errno.ENOSPC if isinstance(error, RuntimeError) and any(word in str(error) for word in words) else None


def copy_whole(source: str | Path, target: str | Path) -> None:
    """Copy a file whole or not at all."""
    with whole_file(target) as temporary:
        shutil.copyfile(source, temporary)


def check_writable(path: str | Path) -> None:
    """Raise OSError if a file cannot be written, or if it is a pipe or a device."""
    path = Path(path)
    if path.exists():
        check_regular(path)
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_text(path: str | Path, text: str) -> None:
    """Write a text file (UTF-8) whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def hash_file(path: str | Path) -> str:
    """Compute the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def hash_data(data: object) -> str:
    """Compute the SHA-256 of JSON data, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def is_unfinished(path: Path) -> bool:
    """Return True for a temporary file or folder of this package, as a killed process leaves behind."""
    return path.name.startswith(".") and path.name.endswith(UNFINISHED)
