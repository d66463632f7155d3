"""Finding a C++ compiler, and running it for a limited time."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess

from flair_nas.errors import FlairNasError

SECONDS = 300.0
"""How long a compilation may take, in which ten are usual: after that the compiler hangs."""

_NAMES = ("c++", "g++", "clang++")
_ANSWER_SECONDS = 60.0


def find_compiler() -> tuple[list[str], str]:
    """Gives the command of the compiler, and what it says of its version.

    Raises:
        FlairNasError: there is none that answers, or not the one of the environment variable ``CXX``.
    """
    named = os.environ.get("CXX", "").split()
    for command in [named] if named else [[name] for name in _NAMES]:
        path = shutil.which(command[0])
        if path is None:
            continue
        command = [path, *command[1:]]
        with contextlib.suppress(OSError, FlairNasError):
            return command, run([*command, "--version"], _ANSWER_SECONDS)
    if named:
        raise FlairNasError(
            f"the compiler of the environment variable CXX, {' '.join(named)}, cannot be run; correct it"
        )
    raise FlairNasError("no C++ compiler found (g++ or clang++); install one")


def run(command: list[str], seconds: float) -> str:
    """Runs a compiler, and gives what it says.

    Args:
        command: its command line.
        seconds: how long it may take.

    Raises:
        FlairNasError: it fails, with the first lines of what it says, or does not end in time.
        OSError: there is no such program.
    """
    # a group of its own, so that no part of the compiler is left to write when this process is stopped
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _end(process)
        raise FlairNasError(f"{command[0]} did not end within {seconds:.0f} s") from None
    except BaseException:
        _end(process)
        raise
    if process.returncode != 0:
        raise FlairNasError("\n".join(said.splitlines()[:6]) or f"exit code {process.returncode}")
    return said


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a process and its group, which may first take away its temporary files."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, kind)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
