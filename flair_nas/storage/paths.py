"""Paths as users type them, small files, and the folder of all caches."""

from __future__ import annotations

import codecs
import errno
import os
import shlex
import stat
import tempfile
from pathlib import Path

from flair_nas.errors import FlairNasError, brief, did_you_mean


def user_path(name: str | os.PathLike[str]) -> Path:
    """Return the path that a user typed, with ``~`` and ``~user`` replaced by home folders; it need not exist."""
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
    """Return a path as the user types it into a shell, where it must not look like an option."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def read_file(path: str | Path, most: int) -> bytes:
    """Read a regular file of a limited number of bytes; an OSError names the reason why not in `strerror`."""
    check_regular(path)
    with open(path, "rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is too large, it has more than {most:,} bytes", str(path))
    return content


def check_regular(path: str | Path) -> None:
    """Raise OSError unless a path is a regular file: reading a pipe or a device may never end."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file but a pipe or a device", str(path))


def how_to_convert(start: bytes) -> str:
    """Return the advice for a file that is not UTF-8, from its first bytes."""
    encoding = "UTF-16" if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "LATIN1"
    return f"convert the file, for example with: iconv -f {encoding} -t UTF-8"


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
            raise FlairNasError(
                f"there is no home folder for caches, and {folder} {fault}; name another folder with the environment "
                "variable FLAIR_NAS_CACHE"
            ) from None
        return folder


def find_foreign_writer(path: str | Path) -> str:
    """Return why users other than this one (and root) could have written to a path; empty if they could not."""
    for status in (os.lstat(path), os.stat(path)):  # a link and its target
        if status.st_uid not in (0, os.getuid()):
            return f"belongs to another user ({status.st_uid})"
    return "can be written to by others (mend it with: chmod go-w)" if status.st_mode & 0o022 else ""


def meant(path: Path) -> str:
    """Return a 'did you mean' question for a path that does not exist, or an empty string."""
    # os.path.exists is False for a name that is too long; Path.exists raises
    missing = next((part for part in (*reversed(path.parents), path) if not os.path.exists(part)), None)
    if missing is None:
        return ""
    rest = path.relative_to(missing)
    paths = {name: Path(folder, rest) for name, folder in siblings(missing).items()}
    near = {name: typed(other) for name, other in paths.items() if os.path.exists(other)}
    return did_you_mean(missing.name, near, count=2)


def no_model(path: Path) -> str:
    """Return the error message for a path that is neither the folder nor the file of a model."""
    return f"{path}: there is no such model; {meant(path)}give the folder of a training run, or its model.pt"


def check_model(name: str) -> None:
    """Raise an error if a path of a model does not exist, before libraries are loaded, which takes seconds."""
    if not (path := user_path(name)).exists():
        raise FlairNasError(no_model(path))


def siblings(path: Path) -> dict[str, str]:
    """Return the paths in the folder of a path, by name."""
    try:
        return {other.name: str(path.parent / other.name) for other in sorted(path.parent.iterdir())[:1000]}
    except OSError:
        return {}
