"""Cached folders: one process makes each, whole or not at all, and each use checks it."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flair_nas.errors import FlairNasError, shown
from flair_nas.storage.files import DISK_FULL, hash_data, hash_file, write_text
from flair_nas.storage.folders import locked
from flair_nas.storage.paths import cache_root, check_regular

log = logging.getLogger("flair_nas")

_MANIFEST = "corpus.json"


class CacheError(FlairNasError):
    """A cached folder that cannot be written."""


class Kind(NamedTuple):
    """A kind of cached folders."""

    folder: str  # in the cache
    content: str  # plural noun, for messages
    variable: str = "FLAIR_NAS_CACHE"  # environment variable of the cache, for messages


def cached_folder(
    kind: Kind,
    fingerprint: str,
    build: Callable[[Path], dict[str, Any]],
    cache: Path | None,
    refresh: bool = False,
) -> tuple[Path, dict[str, Any]]:
    """Return the folder ``KIND/FINGERPRINT`` of the cache; make it if it is missing or damaged.

    A file is unchanged if its size and its modification time are, or else its size and its SHA-256.

    Args:
        kind: the kind of the folder.
        fingerprint: digest of everything that the content depends on.
        build: writes files to an empty folder, and returns further content, as JSON data.
        cache: as for `flair_nas.storage.paths.cache_root`.
        refresh: make it again; if that fails, the present folder stays.

    Returns:
        The folder, and what `build` returned when it was made.

    Raises:
        CacheError: the folder cannot be written.
        OSError: the disk is full. No half-written folder is left, also if `build` raises an error.
    """
    folder = cache_root(cache) / kind.folder / fingerprint
    content, problem = _look(folder)
    if content is not None and not refresh:
        return folder, content
    aside = folder.with_name(f".{fingerprint}.old")  # the folder while a newer one takes its place
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _claimed(folder, kind) as part:
            _put_back(aside, folder)
            content, problem = _look(folder)  # another process may have made it while this one waited
            if content is None or refresh:
                if problem:
                    log.warning("%s: this cache of %s is damaged (%s); it is made again", folder, kind.content, problem)
                    _remove(folder)
                content = build(part)
                _write_manifest(part, fingerprint, content)
                if refresh and folder.exists():
                    os.rename(folder, aside)
                try:
                    _put_in_place(part, folder, kind)
                finally:
                    _put_back(aside, folder)
        return folder, content
    except OSError as error:
        advice = f"choose another folder with the environment variable {kind.variable}"
        if error.errno in DISK_FULL:
            message = f"no room for the {kind.content} (nothing half-written is left); free some disk space"
            raise OSError(errno.ENOSPC, f"{message}, or {advice}", str(folder)) from error
        message = f"cannot write to this cache of {kind.content} ({error.strerror or error})"
        raise CacheError(f"{folder.parent}: {message}; {advice}") from error


def _look(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """Return the content of a folder and its fault: the content is None if it has one, or is missing."""
    if not os.path.lexists(folder):
        return None, ""
    try:
        check_regular(folder / _MANIFEST)
        written = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        digest = written.pop("sha256")
        if digest != hash_data(written):
            return None, f"{_MANIFEST} has changed"
        if written["fingerprint"] != folder.name:
            return None, "it is of another text or other settings"
        for name, file in written["files"].items():
            stat = (folder / name).stat()
            if stat.st_size != file["bytes"]:
                return None, f"{name} has {stat.st_size:,} bytes, not {file['bytes']:,}"
            if stat.st_mtime_ns != file.get("modified_ns") and hash_file(folder / name) != file["sha256"]:
                return None, f"{name} has changed"
        content: dict[str, Any] = written["content"]
        return content, ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return None, shown(error)


def _write_manifest(folder: Path, fingerprint: str, content: dict[str, Any]) -> None:
    modified = int(time.time()) * 10**9  # a whole second: no later change has this time, however soon it comes
    files = {}
    for path in folder.iterdir():
        with open(path, "rb") as stream:
            os.fsync(stream.fileno())
        os.utime(path, ns=(modified, modified))
        files[path.name] = {"bytes": path.stat().st_size, "modified_ns": modified, "sha256": hash_file(path)}
    written = {"fingerprint": fingerprint, "files": files, "content": content}
    write_text(folder / _MANIFEST, json.dumps(written | {"sha256": hash_data(written)}))


@contextlib.contextmanager
def _claimed(folder: Path, kind: Kind) -> Iterator[Path]:
    """Yield an empty folder beside `folder` that no other process writes to; remove it if it was not renamed."""
    message = "%s: waiting for another process that is making these %s"
    lock = folder.with_name(f".{folder.name}.lock")
    with locked(lock, lambda: log.warning(message, folder, kind.content)) as fault:
        part = folder.with_name(f".{folder.name}.part")
        _remove(part)
        if fault is None:
            part.mkdir()
        else:  # several processes may be here at the same time
            part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".part", dir=folder.parent))
        try:
            yield part
        finally:
            _remove(part)


def _put_back(aside: Path, folder: Path) -> None:
    """Restore a folder that was put aside, unless a newer one has taken its place."""
    if not folder.exists() and aside.exists():
        os.rename(aside, folder)
    _remove(aside)


def _put_in_place(part: Path, folder: Path, kind: Kind) -> None:
    try:
        os.rename(part, folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        content, problem = _look(folder)  # where there are no locks, another process may have been faster
        if content is None:
            problem = f"this cache of {kind.content} is damaged ({problem}) and cannot be removed"
            raise CacheError(f"{folder}: {problem}; remove it") from None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
