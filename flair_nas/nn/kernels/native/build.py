"""Compiles the native kernels for this processor when they are first wanted, and keeps the library in a cache."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch  # brings the OpenMP runtime that the library binds to

from flair_nas.errors import FlairNasError, shown
from flair_nas.nn.kernels.native import compiler
from flair_nas.storage.files import is_part, sum_of_file, whole_file, write_text
from flair_nas.storage.locks import locked
from flair_nas.storage.paths import cache_root, not_ours, read_file, user_path

log = logging.getLogger("flair_nas")

SOURCES = Path(__file__).parent

_LOCK = ".lock"
_FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared")
# OpenMP is compiled but not linked, so that all its symbols come from the runtime that torch has loaded for all. Many
# builds of torch name theirs in their own way: a linked one would be loaded beside it, and functions of both be used.
_OPENMP = ("-Xpreprocessor", "-fopenmp")
_NATIVE = "-march=native"
_TRIED = ((_NATIVE, *_OPENMP), (_NATIVE,), _OPENMP, ())  # the first that compiles and loads is used

_TELLING = ("isa", "vector_bytes", "members", "problem_bytes", "operations", "gate_forms", "advise")
_RUNNING = ("forward_float32", "backward_float32", "forward_float64", "backward_float64")


class _NoCache(Exception):
    """There is no folder that libraries may be kept in; the text says why."""


class Built(NamedTuple):
    """The native kernels of this process, or why there are none."""

    library: ctypes.CDLL | None
    compiler: str = ""
    """Its path and the first line of what it says of its version."""
    place: str = ""
    """Where the library lies."""
    reason: str = ""
    """Why there is none, and what to do; its first line is complete."""


def library(sources: Path = SOURCES) -> ctypes.CDLL | None:
    """Gives the library of native kernels, which the first call loads, and compiles where the cache has none.

    Args:
        sources: the folder of ``*.cpp`` and ``*.h``.

    Returns:
        The library; None where there cannot be one, which a warning tells once in a process.
    """
    found = built(sources)
    if found.library is None:
        _warn_once(found.reason)
    return found.library


@functools.cache
def built(sources: Path = SOURCES) -> Built:
    """As `library`, without its warning, and with what there is to know."""
    try:
        if sys.platform == "win32":
            raise FlairNasError("there are none for Windows")
        command, version = compiler.find_compiler()
        first_line = version.partition("\n")[0]
        described = f"{command[0]} ({first_line})"
        name = f"{_key(sources, command, version)}.so"
        try:
            path = _folder() / name
            return Built(_from_cache(path, sources, command), described, str(path))
        except (OSError, _NoCache) as error:
            log.warning(
                "no cache of native kernels: %s, so they are compiled for this process alone; choose another folder "
                "with the environment variable FLAIR_NAS_KERNELS_CACHE",
                error if isinstance(error, _NoCache) else f"cannot write to {path.parent} ({error.strerror or error})",
            )
        with tempfile.TemporaryDirectory() as folder:  # what is loaded stays when its file goes
            return Built(_compiled(Path(folder) / name, sources, command), described, "a temporary file")
    except OSError as error:
        return Built(None, reason=shown(error))
    except FlairNasError as error:
        return Built(None, reason=str(error))


def told(library: ctypes.CDLL, function: str) -> str:
    """What a function of a library says, one without arguments that gives text."""
    ask = getattr(library, function)
    ask.restype = ctypes.c_char_p
    text: bytes = ask()
    return text.decode()


@functools.cache
def _warn_once(reason: str) -> None:
    log.warning(
        "no native kernels, so recurrences run on PyTorch's operators, several times slower (silence this "
        "with FLAIR_NAS_KERNELS=columns): %s",
        reason,
    )


def _folder() -> Path:
    chosen = os.environ.get("FLAIR_NAS_KERNELS_CACHE")
    try:
        return user_path(chosen) if chosen else cache_root() / "kernels"
    except (FlairNasError, OSError) as error:
        raise _NoCache(error) from None


def _key(sources: Path, command: list[str], version: str) -> str:
    """Stands for all that the library depends on; another machine, or another PyTorch, may share the cache."""
    digest = hashlib.sha256(repr((command, version, _FLAGS, _TRIED, _processor(), torch.__version__)).encode())
    for path in sorted([*sources.glob("*.h"), *sources.glob("*.cpp")]):
        digest.update(repr((path.name, path.read_bytes())).encode())
    return digest.hexdigest()[:32]


def _processor() -> list[str]:
    """What tells the instructions of a processor from those of another."""
    kinds = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU implementer", "CPU part", "isa")
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        first = list(iter(lambda: lines.readline().strip(), ""))  # up to the empty line after the first core
        found = [line for line in first if line.startswith(kinds)]
        if found:
            return found
    return [platform.machine(), platform.processor()]


# --- the cache ---


def _from_cache(path: Path, sources: Path, command: list[str]) -> ctypes.CDLL:
    """Loads a library; compiles it before if it is not there as it was made, while any other process waits.

    Raises:
        _NoCache: others may write to the folder, and what lies there would be run.
        FlairNasError, OSError: as `_compiled`.
    """

    def waiting() -> None:
        log.warning("%s: waiting for another process that is compiling native kernels", path.parent)

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if fault := not_ours(path.parent):
        raise _NoCache(f"the folder {path.parent} {fault}")
    found, _ = _look(path, sources)
    if found is None:
        with locked(path.parent / _LOCK, waiting) as unlocked:
            found, problem = _look(path, sources)  # another process may have made it while this one waited
            if found is None:
                if problem:
                    log.warning("%s %s, so it is compiled anew", path, problem)
                for part in path.parent.glob(".*.part") if unlocked is None else ():
                    if is_part(part, (path.name, _sum_of(path).name)):
                        part.unlink(missing_ok=True)  # of a process that was killed
                found = _compiled(path, sources, command)
                write_text(_sum_of(path), f"{sum_of_file(path)}  {path.name}\n")
    return found


def _look(path: Path, sources: Path) -> tuple[ctypes.CDLL | None, str]:
    """A library if it is this user's and as it was made, as a damaged one would end the process; or what is wrong."""
    try:
        if fault := not_ours(path):
            return None, fault
        if read_file(_sum_of(path), 1000).decode().split()[:1] != [sum_of_file(path)]:
            return None, "is damaged"
        return _opened(path, sources), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, f"cannot be loaded ({shown(error)})"


def _opened(path: Path, sources: Path) -> ctypes.CDLL:
    """Loads a library.

    Raises:
        OSError: it is none that can be loaded here, or lacks a function.
    """
    library = ctypes.CDLL(str(path))
    missing = [name for name in (*_TELLING, *_RUNNING) if not hasattr(library, f"flair_nas_{name}")]
    if missing and sources == SOURCES:
        raise OSError(f"it has no function flair_nas_{missing[0]}")
    return library


def _sum_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")  # as the tool sha256sum writes and checks it


# --- compiling ---


def _compiled(path: Path, sources: Path, command: list[str]) -> ctypes.CDLL:
    """Writes the library, whole and only if it can be loaded, and loads it.

    Raises:
        FlairNasError: the sources do not compile; with the first lines of what the compiler says.
        OSError: the file cannot be written.
    """
    files = sorted(str(file) for file in sources.glob("*.cpp"))
    if not files:
        raise FlairNasError(f"there is no source in {sources}; install flair-nas again")
    log.warning("compiling native kernels for this processor with %s; this is kept for the next time", command[0])
    started = time.perf_counter()
    message = ""
    chosen = any(word.startswith(("-march", "-mcpu")) for word in command)  # CXX names a processor itself
    for flags in [tried for tried in _TRIED if not (chosen and _NATIVE in tried)]:
        left = compiler.SECONDS - (time.perf_counter() - started)
        if left <= 0:
            break
        try:
            with whole_file(path) as part:
                compiler.run([*command, *_FLAGS, *flags, *files, "-o", str(part)], left)
                try:
                    loaded = _opened(part, sources)
                except OSError as error:  # as an OpenMP that torch has not
                    raise FlairNasError(shown(error)) from None
        except FlairNasError as error:
            message = str(error)
        else:
            path.chmod(0o700)  # one that others can write to is not loaded again
            log.warning("compiled native kernels in %.1f s: %s", time.perf_counter() - started, path)
            return loaded
    raise FlairNasError(
        f"{command[0]} cannot compile them; try another compiler with the environment variable CXX. It said:\n{message}"
    )
