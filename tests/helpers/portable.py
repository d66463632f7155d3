"""Runs the tests that depend on processor, compiler and versions as other machines would run them.

    python tests/helpers/portable.py [LEG ...]       or: make test-portable LEGS="avx2 clang"

Each leg hides what this machine has and another has not, runs the tests that may notice (with other versions all),
and says at the end how many passed and were skipped. A leg that cannot be run here says so, and is no failure unless it
was asked for by name.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
NUMERIC = ("nn/kernels/native", "nn/kernels/dispatch", "nn/operations", "nn/searched_rnn", "nn/gradients")
NUMERIC += ("nn/transforms", "runs/device", "supernet/supernet", "saved", "benchmarks/floor")
NUMERIC += ("language_model/cross_entropy", "language_model/model", "language_model/perplexity")
NUMERIC += ("language_model/training", "search/bilevel", "search/strategies")
# those left out are of PyTorch, or train for long with what the others test
_LEFT_OUT = ("nn/gradients", "nn/transforms", "language_model/training", "search/strategies")
OF_PROCESSORS = tuple(name for name in NUMERIC if name not in _LEFT_OUT)
OF_PROCESSORS += ("cli/version",)
COMMANDS = ("cli/lm", "cli/search", "cli/version")  # they say on standard error what there is no compiler for
NO_COMPILER = "there-is-no-compiler-here"
PYTHON_3_10 = os.environ.get("PYTHON310", "python3.10")
OLDEST = ROOT / ".venv-oldest"
NEWEST_HUB, HUB = "huggingface-hub==2.4.0", ROOT / ".venv" / "newest-hub"


class Leg(NamedTuple):
    """A kind of machine."""

    says: str
    environment: dict[str, str]
    files: tuple[str, ...] = NUMERIC + COMMANDS  # paths below tests/ without ``test_`` and ``.py``; empty for all
    lacks: Callable[[], str] = lambda: ""  # why it cannot be run here
    python: Callable[[], str] = lambda: sys.executable  # which to run, after whatever setting up it needs


def _no_x86() -> str:
    return "" if platform.machine() in ("x86_64", "AMD64") else "instruction sets of x86 are hidden on x86 alone"


def _no_clang() -> str:
    return "" if shutil.which("clang++") else "there is no clang++ here; Debian's package is clang"


def _no_oldest() -> str:
    return "" if shutil.which(PYTHON_3_10) else "there is no python3.10 here; name one with the variable PYTHON310"


def _oldest() -> str:
    """Python 3.10 with the versions of constraints-oldest.txt, in an environment of its own."""
    python = OLDEST / "bin" / "python"
    done = OLDEST / ".installed"
    wanted = ROOT / "constraints-oldest.txt"
    if not done.exists() or done.stat().st_mtime < wanted.stat().st_mtime:
        print(f"setting up {OLDEST}: several GB, as no other torch than the newest comes without CUDA", flush=True)
        subprocess.run([PYTHON_3_10, "-m", "venv", str(OLDEST)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "-r", str(wanted)], check=True)
        subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True)
        done.touch()
    return str(python)


def _newest_hub() -> str:
    """This Python, before whose own packages the newest line of the Hub's client is found."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(HUB), NEWEST_HUB]
    subprocess.run(pip, check=True)  # it says that transformers wants an older one, which stays where it is
    return sys.executable


LEGS = {
    "avx2": Leg(
        "x86-64 with AVX2, without AVX-512 and bfloat16",
        {
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "ATEN_CPU_CAPABILITY": "avx2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "CXX": "c++ -march=x86-64-v3",
        },
        OF_PROCESSORS,
        _no_x86,
    ),
    "baseline": Leg(
        "x86-64 with SSE2 alone",
        {
            "ONEDNN_MAX_CPU_ISA": "SSE41",
            "ATEN_CPU_CAPABILITY": "default",
            "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
            "CXX": "c++ -march=x86-64",
        },
        OF_PROCESSORS,
        _no_x86,
    ),
    "clang": Leg("clang in place of gcc", {"CXX": "clang++"}, lacks=_no_clang),
    "no-compiler": Leg("no C++ compiler", {"CXX": NO_COMPILER}),
    "hub": Leg(
        f"{NEWEST_HUB}, of a newer line than Flair's transformers take",
        {"PYTHONPATH": str(HUB)},
        ("library/hugging_face",),
        python=_newest_hub,
    ),
    "oldest": Leg("the oldest versions that pyproject.toml allows, Python 3.10", {}, (), _no_oldest, _oldest),
}


def run(leg: Leg) -> tuple[bool, str]:
    """Runs the tests of a leg; whether all passed, and pytest's closing line."""
    paths = [ROOT / "tests" / name for name in leg.files]
    tests = [str(path.with_name(f"test_{path.name}.py")) for path in paths]
    options = ["-n2", "--dist=loadfile", "--no-loadscope-reorder", "-rfE", "--tb=short"]
    command = [leg.python(), "-m", "pytest", *options, *tests]
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **leg.environment}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    last = "no test ran"
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip("= \n") if re.search(r"\d (passed|failed|error)", line) else last
    return process.wait() == 0, last


def main() -> int:
    """Runs legs one after the other and prints what came of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("legs", nargs="*", metavar="LEG", help=f"of {', '.join(LEGS)} (default: all)")
    legs = parser.parse_args().legs
    if unknown := set(legs) - set(LEGS):
        parser.error(f"unknown legs {', '.join(sorted(unknown))}; there are {', '.join(LEGS)}")
    lines, good = [], True
    for name in legs or LEGS:
        leg = LEGS[name]
        if lacks := leg.lacks():
            good = good and not legs
            lines.append(f"{name:<12} not run: {lacks}")
            continue
        print(f"\n=== {name}: {leg.says}", flush=True)
        passed, closing = run(leg)
        good = good and passed
        lines.append(f"{name:<12} {closing}")
    print("", *lines, sep="\n", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
