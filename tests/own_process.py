"""Code that a test runs in a process of its own, to be killed, or to meet its limits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python(module: str, code: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that runs code with all names of a test module."""
    command = [sys.executable, "-c", f"import sys\nfrom {module} import *\n{code}", *map(str, arguments)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
