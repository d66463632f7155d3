"""Native kernels: compiled for this processor at their first use, and kept in a cache."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch  # loads the OpenMP runtime that the library binds to

from flair_nas.errors import FlairNasError, shown
from flair_nas.nn.processor import read_processor
from flair_nas.storage.cache import CacheError, Kind, cached_folder
from flair_nas.storage.paths import cache_root, find_foreign_writer, user_path

log = logging.getLogger("flair_nas")

SOURCES = Path(__file__).parent
LIBRARY = "kernels.so"

_VARIABLE = "FLAIR_NAS_KERNELS_CACHE"
_KIND = Kind("", "native kernels", _VARIABLE)
_FLAGS = ("-O3", "-std=c++17", "-fPIC", "-shared")
# OpenMP is compiled but not linked, so all its symbols come from the runtime that torch has loaded for all. Many builds
# of torch give theirs its own name: a linked runtime would be loaded beside it, and functions of both would be used.
_OPENMP = ("-Xpreprocessor", "-fopenmp")
_NATIVE = "-march=native"
_ATTEMPTS = ((_NATIVE, *_OPENMP), (_NATIVE,), _OPENMP, ())  # the first flags that compile and load are used

_COMPILE_SECONDS = 300.0  # usually ten are enough


class Built(NamedTuple):
    """The native kernels of this process, or the reason why there are none."""

    library: ctypes.CDLL | None
    compiler: str = ""  # its path and the first line of its version
    place: str = ""  # path of the library
    reason: str = ""  # why there is no library, and what to do; its first line is complete


def library(sources: Path = SOURCES) -> ctypes.CDLL | None:
    """Return the library of a folder of ``*.cpp`` and ``*.h``; warn once and return None if there cannot be one.

    The first call loads it, or compiles it if the cache has none.
    """
    kernels = built(sources)
    if kernels.library is None:
        _warn_once(kernels.reason)
    return kernels.library


@functools.cache
def built(sources: Path = SOURCES) -> Built:
    """Return the library and where it comes from, without a warning."""
    try:
        if sys.platform == "win32":
            raise FlairNasError("there are none for Windows")
        command, version = _find_compiler()
        description = f"{command[0]} ({version.partition(chr(10))[0]})"
        try:
            path = _cached_library(sources, command, _fingerprint(sources, command, version))
            return Built(ctypes.CDLL(str(path)), description, str(path))
        except (CacheError, OSError) as error:
            log.warning("native kernels are compiled for this process alone: %s", error)
        with tempfile.TemporaryDirectory() as folder:  # a loaded library stays when its file is removed
            path = Path(folder) / LIBRARY
            _compile(path, sources, command)
            return Built(ctypes.CDLL(str(path)), description, "a temporary file")
    except (FlairNasError, OSError) as error:
        return Built(None, reason=str(error) if isinstance(error, FlairNasError) else shown(error))


def call_text(library: ctypes.CDLL, function: str) -> str:
    """Call a function of the library without arguments that returns a text."""
    call = getattr(library, function)
    call.restype = ctypes.c_char_p
    text: bytes = call()
    return text.decode()


@functools.cache
def _warn_once(reason: str) -> None:
    log.warning(
        "no native kernels, so recurrences run on PyTorch's operators, several times slower (silence this "
        "with FLAIR_NAS_KERNELS=columns): %s",
        reason,
    )


def _fingerprint(sources: Path, command: list[str], version: str) -> str:
    """Return a digest of everything that the library depends on; machines may share the cache."""
    digest = hashlib.sha256(repr((command, version, _FLAGS, _ATTEMPTS, _processor(), torch.__version__)).encode())
    for path in sorted([*sources.glob("*.h"), *sources.glob("*.cpp")]):
        digest.update(repr((path.name, path.read_bytes())).encode())
    return digest.hexdigest()[:32]


def _processor() -> list[str]:
    """Return the features that determine the instruction set of this processor."""
    kinds = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU implementer", "CPU part", "isa")
    features = [f"{name}: {value}" for name, value in read_processor().items() if name.startswith(kinds)]
    return features or [platform.machine(), platform.processor()]


def _folder() -> Path:
    """Return the folder of compiled libraries."""
    chosen = os.environ.get(_VARIABLE)
    return user_path(chosen) if chosen else cache_root() / "kernels"


def _cached_library(sources: Path, command: list[str], fingerprint: str) -> Path:
    """Return the path of a library in the cache; compile it if it is missing, damaged, or could be from others."""
    try:
        cache = _folder()
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if fault := find_foreign_writer(cache):
            raise FlairNasError(f"the folder {cache} {fault}")
    except (FlairNasError, OSError) as error:
        raise CacheError(f"{error}; choose another folder with the environment variable {_VARIABLE}") from None

    def build(folder: Path) -> dict[str, str]:
        folder.chmod(0o700)
        _compile(folder / LIBRARY, sources, command)
        return {}

    path = cached_folder(_KIND, fingerprint, build, cache)[0] / LIBRARY
    try:
        fault = find_foreign_writer(path.parent) or find_foreign_writer(path)
        if not fault:
            ctypes.CDLL(str(path))
    except OSError as error:
        fault = f"cannot be loaded ({shown(error)})"
    if fault:
        log.warning("%s %s, so it is compiled again", path, fault)
        cached_folder(_KIND, fingerprint, build, cache, refresh=True)
    return path


def _compile(path: Path, sources: Path, command: list[str]) -> None:
    """Compile a library that can be loaded, for this user alone."""
    files = sorted(str(file) for file in sources.glob("*.cpp"))
    if not files:
        raise FlairNasError(f"there is no source in {sources}; install flair-nas again")
    log.warning("compiling native kernels for this processor with %s", command[0])
    start = time.perf_counter()
    message = ""
    has_processor = any(word.startswith(("-march", "-mcpu")) for word in command)  # CXX may name one
    for flags in _ATTEMPTS:
        seconds = _COMPILE_SECONDS - (time.perf_counter() - start)
        if seconds <= 0 or (has_processor and _NATIVE in flags):
            continue
        try:
            _run([*command, *_FLAGS, *flags, *files, "-o", str(path)], seconds)
            path.chmod(0o700)
            ctypes.CDLL(str(path))
        except FlairNasError as error:
            message = str(error)
        except OSError as error:  # such as an OpenMP that torch does not have
            message = shown(error)
        else:
            log.warning("compiled native kernels in %.1f s", time.perf_counter() - start)
            return
    raise FlairNasError(
        f"{command[0]} cannot compile them; try another compiler with the environment variable CXX. It says:\n{message}"
    )


def _find_compiler() -> tuple[list[str], str]:
    """Return the command of the compiler and its version."""
    chosen = os.environ.get("CXX", "").split()
    for command in [chosen] if chosen else [["c++"], ["g++"], ["clang++"]]:
        command = [shutil.which(command[0]) or command[0], *command[1:]]
        with contextlib.suppress(OSError, FlairNasError):
            return command, _run([*command, "--version"], 60.0)
    if chosen:
        raise FlairNasError(f"the compiler of the environment variable CXX, {' '.join(chosen)}, cannot be run; fix it")
    raise FlairNasError("no C++ compiler found (g++ or clang++); install one")


def _run(command: list[str], seconds: float) -> str:
    """Run a compiler for a limited time and return its messages; an error has their first lines."""
    try:
        process = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise FlairNasError(f"{command[0]} did not end within {seconds:.0f} s") from None
    if process.returncode != 0:
        raise FlairNasError("\n".join(process.stdout.splitlines()[:6]) or f"exit code {process.returncode}")
    return process.stdout
