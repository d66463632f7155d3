"""Compiles the native kernels for this processor when they are first wanted, and keeps the library in a cache."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch  # brings the OpenMP runtime that the library binds to

from flair_nas.errors import FlairNasError, shown
from flair_nas.files import cache_root, whole_file
from flair_nas.locks import locked

log = logging.getLogger("flair_nas")

SOURCES = Path(__file__).parent / "native"

_LOCK = ".lock"
_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared")
# OpenMP is compiled but not linked, so that all its symbols come from the runtime that torch has loaded for all. Many
# builds of torch name theirs in their own way: a linked one would be loaded beside it, and functions of both be used.
_OPENMP = ("-Xpreprocessor", "-fopenmp")
_NATIVE = "-march=native"
_TRIED = ((_NATIVE, *_OPENMP), (_NATIVE,), _OPENMP, ())  # the first that compiles and loads is used


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
        command, version = _compiler()
        first_line = version.partition("\n")[0]
        compiler = f"{command[0]} ({first_line})"
        name = f"{_key(sources, command, version)}.so"
        path = _folder() / name
        try:
            return Built(_from_cache(path, sources, command), compiler, str(path))
        except OSError as error:
            log.warning(
                "%s: cannot write to this cache (%s), so native kernels are compiled for this process alone; choose "
                "another folder with the environment variable FLAIR_NAS_KERNELS_CACHE",
                path.parent,
                error.strerror or error,
            )
        with tempfile.TemporaryDirectory() as folder:  # what is loaded stays when its file goes
            return Built(_compiled(Path(folder) / name, sources, command), compiler, "a temporary file")
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
    if chosen:
        return Path(chosen).expanduser()
    return cache_root() / "kernels"


def _compiler() -> tuple[list[str], str]:
    """The command of the compiler, and what it says of its version."""
    named = os.environ.get("CXX", "").split()
    for command in [named] if named else [[name] for name in _COMPILERS]:
        path = shutil.which(command[0])
        if path is None:
            continue
        command = [path, *command[1:]]
        with contextlib.suppress(OSError):
            done = subprocess.run([*command, "--version"], capture_output=True, text=True, errors="replace")
            if done.returncode == 0:
                return command, done.stdout
    if named:
        raise FlairNasError(
            f"the compiler of the environment variable CXX, {' '.join(named)}, cannot be run; correct it"
        )
    raise FlairNasError("no C++ compiler found (g++ or clang++); install one")


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


# --- compiling ---


def _from_cache(path: Path, sources: Path, command: list[str]) -> ctypes.CDLL:
    """Loads a library; compiles it before if it is not there, while any other process waits."""

    def waiting() -> None:
        log.warning("%s: waiting for another process that is compiling native kernels", path.parent)

    loaded = _loaded(path)
    if loaded is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.parent / _LOCK, waiting):
            loaded = _loaded(path) or _compiled(path, sources, command)
    return loaded


def _loaded(path: Path) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # not there, or damaged
        return None


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
        try:
            with whole_file(path) as part:
                _compile([*command, *_FLAGS, *flags, *files, "-o", str(part)])
                try:
                    loaded = ctypes.CDLL(str(part))
                except OSError as error:  # as an OpenMP that torch has not
                    raise FlairNasError(shown(error)) from None
        except FlairNasError as error:
            message = str(error)
        else:
            log.warning("compiled native kernels in %.1f s: %s", time.perf_counter() - started, path)
            return loaded
    raise FlairNasError(
        f"{command[0]} cannot compile them; try another compiler with the environment variable CXX. It said:\n{message}"
    )


def _compile(command: list[str]) -> None:
    # a group of its own, so that no part of the compiler is left to write when this process is stopped
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    )
    try:
        said, _ = process.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
    if process.returncode != 0:
        raise FlairNasError("\n".join(said.splitlines()[:6]) or f"exit code {process.returncode}")
