"""Paths from users, small files, and the folder of all caches."""

from __future__ import annotations

import codecs
import errno
import itertools
import os
import re
import shlex
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from flair_nas.errors import FlairNasError, brief, listed

_BROKEN = re.compile("[\udc80-\udcff]")  # a byte that is not UTF-8, as ``surrogateescape`` decodes it
_VALID = re.compile("[^\x00-\x7f\udc80-\udcff]")  # a valid character beyond ASCII
_MANY_BROKEN = 3  # so many broken places, and no valid one beyond ASCII: the text is in another encoding


def user_path(name: str | os.PathLike[str]) -> Path:
    """Return the path that a user typed, with ``~`` and ``~user`` expanded. It need not exist."""
    if not isinstance(name, (str, os.PathLike)):
        raise FlairNasError(f"a path must be text or a pathlib.Path, got {brief(name)}")
    text = os.fspath(name)
    try:
        path = Path(text).expanduser()
        os.lstat(path)
    except ValueError as error:  # a NUL character, or half of a character
        raise FlairNasError(f"{brief(text)} cannot be a path: {error}") from None
    except RuntimeError:
        user = text.partition("/")[0]
        raise FlairNasError(f"{brief(text)}: {brief(user)} has no home folder here; write the whole path") from None
    except OSError as error:  # a missing file is reported by the code that reads it
        if error.errno == errno.ENAMETOOLONG:
            raise FlairNasError(f"{brief(text)}: this path is too long ({len(text):,} characters)") from None
    return path


def typed(path: str | Path) -> str:
    """Return a path as a user types it into a shell."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def read_file(path: str | Path, max_bytes: int) -> bytes:
    """Read a regular file of at most `max_bytes`; the `strerror` of an OSError tells what is wrong."""
    check_regular(path)
    with open(path, "rb") as stream:
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it is too large, it has more than {max_bytes:,} bytes", str(path))
    return content


def check_regular(path: str | Path) -> None:
    """Raise OSError if a path is no regular file: reading a pipe or a device may never end."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file but a pipe or a device", str(path))


def read_utf8(path: Path) -> str:
    """Return the text of a file without its byte order mark.

    Raises:
        FlairNasError: the file cannot be read, is a pipe or a device, or is not UTF-8.
    """
    try:
        check_regular(path)
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise FlairNasError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FlairNasError(explain_not_utf8(path, [error.object])) from None


def explain_not_utf8(source: str | Path, lines: Iterable[bytes], first: int = 1, *, knows_valid: bool = False) -> str:
    """Return the error for a text that is not UTF-8, with the broken lines and a remedy.

    Args:
        source: a file, or the name of another source.
        lines: its lines.
        first: the number of the first of these lines.
        knows_valid: True if earlier lines have valid characters other than ASCII.
    """
    broken: list[tuple[int, int]] = []
    places = 0
    for number, line in enumerate(itertools.chain.from_iterable(piece.splitlines() for piece in lines), first):
        if line.isascii() and b"\0" not in line:
            continue
        if wide := _wide_encoding(line):
            return f"{source}:{number}: not UTF-8 but {wide}; convert it with: {_iconv(f'-f {wide}', source)}"
        text = line.decode("utf-8", "surrogateescape")
        knows_valid |= _VALID.search(text) is not None
        if bad := _BROKEN.findall(text):
            broken.append((number, ord(bad[0]) - 0xDC00))
            places += len(bad)
    start, byte = broken[0]
    numbers = listed([f"{number}" for number, _ in broken], 5)
    fault = f"{source}:{start}: not UTF-8 (byte 0x{byte:02x}), broken lines: {numbers}"
    if places >= _MANY_BROKEN and not knows_valid:
        return f"{fault}; convert it from its encoding, for example with: {_iconv('-f LATIN1', source)}"
    return f"{fault}; correct them, or leave out the broken bytes with: {_iconv('-c -f UTF-8', source)}"


def _wide_encoding(line: bytes) -> str:
    """Return the variant of UTF-16 that a first line is in, or an empty string."""
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    if 3 * line.count(0) > len(line):  # without a byte order mark: nearly every other byte is 0
        return "UTF-16BE" if line[0] == 0 else "UTF-16LE"
    return ""


def _iconv(options: str, source: str | Path) -> str:
    file = f" {typed(source)} > NEW" if isinstance(source, Path) else ""
    return f"iconv {options} -t UTF-8{file}"


def cache_root(cache: Path | None = None) -> Path:
    """Return the folder of all caches: `cache`, else ``$FLAIR_NAS_CACHE``, else ``~/.cache/flair-nas``.

    A user without a home folder gets a private folder below the one for temporary files.
    """
    chosen = cache or os.environ.get("FLAIR_NAS_CACHE")
    if chosen:
        return user_path(chosen)
    try:
        return Path.home() / ".cache" / "flair-nas"
    except RuntimeError:
        folder = Path(tempfile.gettempdir()) / f"flair-nas-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if fault := find_foreign_writer(folder):
            problem = f"there is no home folder for caches, and {folder} {fault}"
            remedy = "name another folder with the environment variable FLAIR_NAS_CACHE"
            raise FlairNasError(f"{problem}; {remedy}") from None
        return folder


def find_foreign_writer(path: str | Path) -> str:
    """Return a clause if users other than this one and root could have written to a path, else an empty string."""
    for status in (os.lstat(path), os.stat(path)):  # a link and its target
        if status.st_uid not in (0, os.getuid()):
            return f"belongs to another user ({status.st_uid})"
    return "can be written to by others (mend it with: chmod go-w)" if status.st_mode & 0o022 else ""


def check_model(name: str | Path) -> None:
    """Raise FlairNasError if a path of a model does not exist."""
    path = user_path(name)
    if not (path.is_file() or path.is_dir()):
        raise FlairNasError(f"{path}: there is no such model; give the folder of a training run, or its model.pt")
