"""Code that a test runs in a process of its own, to be killed, or to meet its limits, and how it is waited for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]


def python(module: str, code: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that runs code with all names of a test module."""
    command = [sys.executable, "-c", f"import sys\nfrom {module} import *\n{code}", *map(str, arguments)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "helpers")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until_ended(process: int) -> None:
    """Waits until there is no such process any more."""
    for _ in range(200):
        if not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.05)
    pytest.fail(f"process {process} did not end")


def content(path: Path) -> str:
    """Of a file that another process writes, as soon as it does."""
    for _ in range(1200):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.05)
    pytest.fail(f"{path} never came")
