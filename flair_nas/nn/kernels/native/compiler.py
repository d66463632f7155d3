"""The C++ compiler: finding one, and running it for a limited time."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess

from flair_nas.errors import FlairNasError

SECONDS = 300.0
"""Time limit of a compilation, which usually takes ten seconds."""

_NAMES = ("c++", "g++", "clang++")
_VERSION_SECONDS = 60.0


def find_compiler() -> tuple[list[str], str]:
    """Return the command of the compiler and its version.

    Raises:
        FlairNasError: no compiler can be run, or not the one of the environment variable ``CXX``.
    """
    chosen = os.environ.get("CXX", "").split()
    for command in [chosen] if chosen else [[name] for name in _NAMES]:
        path = shutil.which(command[0])
        if path is None:
            continue
        command = [path, *command[1:]]
        with contextlib.suppress(OSError, FlairNasError):
            return command, run([*command, "--version"], _VERSION_SECONDS)
    if chosen:
        raise FlairNasError(f"the compiler of the environment variable CXX, {' '.join(chosen)}, cannot be run; fix it")
    raise FlairNasError("no C++ compiler found (g++ or clang++); install one")


def run(command: list[str], seconds: float) -> str:
    """Run a compiler and return its messages.

    Args:
        command: its command line.
        seconds: the time limit.

    Raises:
        FlairNasError: it fails, with the first lines of its messages, or exceeds the time limit.
        OSError: there is no such program.
    """
    try:
        process = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise FlairNasError(f"{command[0]} did not end within {seconds:.0f} s") from None
    if process.returncode != 0:
        raise FlairNasError("\n".join(process.stdout.splitlines()[:6]) or f"exit code {process.returncode}")
    return process.stdout
