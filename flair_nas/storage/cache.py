"""A folder of files that are made once: whole or not at all, by one process at a time, and checked before each use."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flair_nas.errors import FlairNasError, shown
from flair_nas.storage.files import sum_of_data, sum_of_file, write_text
from flair_nas.storage.locks import locked
from flair_nas.storage.paths import cache_root, check_regular

log = logging.getLogger("flair_nas")

_MANIFEST = "corpus.json"


class Kind(NamedTuple):
    """A kind of such folders.

    Args:
        folder: in the cache, that all of a kind are in.
        content: what they hold, in a few words in the plural, for messages.
    """

    folder: str
    content: str


def cached_folder(
    kind: Kind,
    fingerprint: str,
    build: Callable[[Path], dict[str, Any]],
    cache: Path | None,
    refresh: bool = False,
) -> tuple[Path, dict[str, Any]]:
    """Gives the folder ``KIND/FINGERPRINT`` of the cache; makes it when it is not there, or not as it was made.

    Args:
        kind: what is kept there.
        fingerprint: stands for everything that the folder is made of.
        build: writes files to an empty folder, and returns what else is to be kept, for JSON.
        cache: as for `flair_nas.storage.paths.cache_root`.
        refresh: make it anew, also when it is there; it stays if that fails.

    Returns:
        The folder, and what `build` returned, now or then.

    Raises:
        FlairNasError: the folder cannot be written.
        OSError: the disk is full. Nothing stays of what `build` wrote, also when it raises an error.
    """
    folder = cache_root(cache) / kind.folder / fingerprint
    found, problem = _look(folder)
    if found is not None and not refresh:
        return folder, found
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _claimed(folder, kind.content) as part:
            _put_back(folder)
            found, problem = _look(folder)  # another process may have made it while this one waited
            if found is None or refresh:
                if problem:
                    damaged = "%s: this cache of %s is damaged (%s), so it is made again"
                    log.warning(damaged, folder, kind.content, problem)
                    _remove(folder)
                found = build(part)
                _write_manifest(part, fingerprint, found)
                if refresh and folder.exists():
                    os.rename(folder, _aside(folder))
                try:
                    _put_in_place(part, folder, kind.content)
                finally:
                    _put_back(folder)
        return folder, found
    except OSError as error:
        raise _explained(error, folder, kind.content) from error


def _explained(error: OSError, folder: Path, content: str) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        message = f"no room for the {content} (nothing half-written is left); free some disk space, or "
        message += "choose a folder on another disk with the environment variable FLAIR_NAS_CACHE"
        return OSError(errno.ENOSPC, message, str(folder))
    return FlairNasError(
        f"{folder.parent}: cannot write to this cache of {content} ({error.strerror or error}); choose another folder "
        "with the environment variable FLAIR_NAS_CACHE"
    )


def _look(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """What is kept in a folder, or None and what is wrong with it (nothing, when there is no such folder)."""
    if not os.path.lexists(folder):
        return None, ""
    try:
        check_regular(folder / _MANIFEST)
        written = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        digest = written.pop("sha256")
        if digest != sum_of_data(written):
            return None, f"{_MANIFEST} has changed"
        if written["fingerprint"] != folder.name:
            return None, "it is of another text or other settings"
        for name, file in written["files"].items():
            size = (folder / name).stat().st_size
            if size != file["bytes"]:
                return None, f"{name} has {size:,} bytes, not {file['bytes']:,}"
            if sum_of_file(folder / name) != file["sha256"]:
                return None, f"{name} has changed"
        content: dict[str, Any] = written["content"]
        return content, ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return None, shown(error)


def _write_manifest(folder: Path, fingerprint: str, content: dict[str, Any]) -> None:
    files = {}
    for path in folder.iterdir():
        with open(path, "rb") as stream:
            os.fsync(stream.fileno())
        files[path.name] = {"bytes": path.stat().st_size, "sha256": sum_of_file(path)}
    written = {"fingerprint": fingerprint, "files": files, "content": content}
    write_text(folder / _MANIFEST, json.dumps(written | {"sha256": sum_of_data(written)}))


# --- one process at a time ---


@contextlib.contextmanager
def _claimed(folder: Path, content: str) -> Iterator[Path]:
    """Gives an empty folder beside `folder` that no other process writes to, waiting for one that does.

    When the block ends, the folder is gone, unless it has been renamed. What a killed process left there is cleared.
    """

    def waiting() -> None:
        log.info("%s: waiting for another process that is making these %s", folder, content)

    with locked(_lock(folder), waiting) as fault:
        part = folder.with_name(f".{folder.name}.part")
        _remove(part)
        if fault is None:
            part.mkdir()
        else:  # other processes may make one at the same time
            part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
        try:
            yield part
        finally:
            _remove(part)


def _lock(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


def _aside(folder: Path) -> Path:
    """Where a folder is while a newer one takes its place."""
    return folder.with_name(f".{folder.name}.old")


def _put_back(folder: Path) -> None:
    """Has a folder back that was put aside, if no newer one has come in its place."""
    if not folder.exists() and _aside(folder).exists():
        os.rename(_aside(folder), folder)
    _remove(_aside(folder))


def _put_in_place(part: Path, folder: Path, content: str) -> None:
    try:
        os.rename(part, folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        found, problem = _look(folder)  # where there are no locks, another process may have been faster
        if found is None:
            raise FlairNasError(
                f"{folder}: this cache of {content} is damaged ({problem}) and cannot be removed; remove this folder"
            ) from None


def _remove(path: Path) -> None:
    """Removes a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
