"""Writing files whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flair_nas.storage.paths import check_regular

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Gives the path of a temporary file beside `path`, which takes its name when the block ends without an error.

    Args:
        path: the file to write; what was there before stays until the new one is complete.

    Raises:
        OSError: the file cannot be written; in plain words when the disk is full. Nothing half-written stays.
    """
    path = Path(path)
    try:
        # not longer than a name can be, if that of the file is as long as that
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:50]}.", suffix=".part", dir=path.parent)
    except OSError as error:  # it names the temporary file, of which nobody has heard
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
        number = _number_of(error)
        if number in _FULL:
            kept = "the file that was there before is kept" if path.exists() else "no half-written file is left"
            message = f"no room to write this file ({kept}); free some disk space, then run the command again"
            raise OSError(errno.ENOSPC, message, str(path)) from error
        known = number is not None or isinstance(error, RuntimeError)  # which torch.save raises
        if known and not path.parent.exists():
            raise FileNotFoundError(errno.ENOENT, "the folder of this file is gone", str(path)) from error
        if number is not None and getattr(error, "filename", str(temporary)) == str(temporary):
            raise OSError(number, os.strerror(number), str(path)) from error
        raise


def copy_whole(source: str | Path, target: str | Path) -> None:
    """Copies a file whole or not at all.

    Raises:
        OSError: as `whole_file`, or `source` cannot be read.
    """
    with whole_file(target) as temporary:
        shutil.copyfile(source, temporary)


def check_writable(path: str | Path) -> None:
    """Refuses a file that cannot be written, before there is anything to write.

    Raises:
        OSError: its folder is missing or closed, or it is a folder, a pipe or a device itself.
    """
    path = Path(path)
    if path.exists():
        check_regular(path)  # a device or a pipe would be replaced by a file
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file (UTF-8) whole or not at all.

    Raises:
        OSError: as `whole_file`.
    """
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sum_of_file(path: str | Path) -> str:
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def sum_of_data(data: Mapping[str, Any]) -> str:
    """The SHA-256 of data that JSON can hold, in whatever order its keys are."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def is_part(path: Path, names: Sequence[str]) -> bool:
    """Whether a path is a temporary file of `whole_file`; a killed process leaves them behind.

    Args:
        path: in a folder that is ours.
        names: of the files that are written there, as other files may be named in the same way.
    """
    return path.match(".*.????????.part") and path.name[1:-14] in names and path.is_file()


def _number_of(error: BaseException) -> int | None:
    """Return the number of the system's error that a failed write has had, or None if it was another error."""
    if isinstance(error, OSError):
        return error.errno
    if found := re.search(r"\(os error (\d+)\)", str(error)):  # safetensors, and what else is written in Rust
        return int(found[1])
    words = ("PytorchStreamWriter", "inline_container", "file write")  # of torch.save, which tells no number
    return errno.ENOSPC if isinstance(error, RuntimeError) and any(word in str(error) for word in words) else None
