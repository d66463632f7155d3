"""Paths as users write them, files that are read whole, and the folder of all caches."""

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
    """The path that a user's text names, with ``~`` and ``~user`` replaced by home folders.

    Args:
        name: as it was written.

    Raises:
        FlairNasError: no path can be written so, or the user has no home folder.
    """
    text = str(name)
    if "\0" in text:
        raise FlairNasError(f"{brief(text)}: this path has a NUL character in it, which no path can; take it out")
    try:
        os.fsencode(text)
        path = Path(text).expanduser()
        os.lstat(path)
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise FlairNasError(f"{brief(text)}: this path has {half!r} in it, which no path can; take it out") from None
    except RuntimeError:
        user = text.partition("/")[0]
        raise FlairNasError(f"{brief(text)}: {brief(user)} has no home folder here; write the whole path") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise FlairNasError(f"{brief(text)}: this path is too long ({len(text):,} characters)") from None
        # that there is nothing, or that one may not look, says whoever reads or writes it
    return path


def typed(path: str | Path) -> str:
    """A path as it is typed into a shell, where an option or a name is expected."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def read_file(path: str | Path, most: int) -> bytes:
    """The bytes of a small regular file; a pipe or a device, which may never end, is refused.

    Args:
        path: the file.
        most: how many bytes it may have.

    Raises:
        OSError: the file cannot be read, or is none of that kind; `strerror` says why.
    """
    check_regular(path)
    with open(path, "rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is too large, it has more than {most:,} bytes", str(path))
    return content


def check_regular(path: str | Path) -> None:
    """Refuses what is no regular file, as reading a pipe or a device may never end.

    Raises:
        OSError: it is not there, or something else.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file but a pipe or a device", str(path))


def how_to_convert(start: bytes) -> str:
    """What to do about a file that is not UTF-8, by its first bytes: Windows' UTF-16 begins with a mark."""
    encoding = "UTF-16" if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "LATIN1"
    return f"convert the file, for example with: iconv -f {encoding} -t UTF-8"


# --- caches ---


def cache_root(cache: Path | None = None) -> Path:
    """The folder of all caches: the one given, else ``$FLAIR_NAS_CACHE``, else ``~/.cache/flair-nas``.

    A user without a home folder has one of their own in the folder for temporary files.

    Raises:
        FlairNasError: there is no home folder, and the one for temporary files belongs to somebody else.
    """
    chosen = cache or os.environ.get("FLAIR_NAS_CACHE")
    if chosen:
        return user_path(chosen)
    try:
        return Path.home() / ".cache" / "flair-nas"
    except RuntimeError:
        folder = Path(tempfile.gettempdir()) / f"flair-nas-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if fault := not_ours(folder):
            raise FlairNasError(
                f"there is no home folder for caches, and {folder} {fault}; name another folder with the environment "
                "variable FLAIR_NAS_CACHE"
            ) from None
        return folder


def not_ours(path: str | Path) -> str:
    """Why others than this user (and root) may have put there what is in a file or folder; empty if they cannot have.

    Raises:
        OSError: it is not there, or cannot be looked at.
    """
    for found in (os.lstat(path), os.stat(path)):  # a link, and what it leads to
        if found.st_uid not in (0, os.getuid()):
            return f"belongs to another user ({found.st_uid})"
    return "can be written to by others (mend it with: chmod go-w)" if found.st_mode & 0o022 else ""


def meant(path: Path) -> str:
    """A question that offers what may have been meant by a path that is not there, as `did_you_mean`."""
    # a name that is too long is not there, which `Path.exists` takes for an error
    missing = next((part for part in (*reversed(path.parents), path) if not os.path.exists(part)), None)
    if missing is None:
        return ""
    rest = path.relative_to(missing)
    paths = {name: Path(where, rest) for name, where in siblings(missing).items()}
    near = {name: typed(there) for name, there in paths.items() if os.path.exists(there)}
    return did_you_mean(missing.name, near, count=2)


def no_model(path: Path) -> str:
    """The error where no model is: neither the folder of one nor its file."""
    return f"{path}: there is no such model; {meant(path)}give the folder of a training run, or its model.pt"


def siblings(path: Path) -> dict[str, str]:
    """What is there of the same folder, by name: what may have been meant where a path is not there."""
    try:
        return {other.name: str(path.parent / other.name) for other in sorted(path.parent.iterdir())[:1000]}
    except OSError:
        return {}
