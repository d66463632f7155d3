"""``flair-nas --version -v``: what a report of a problem should say."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from as_if_built import WHY, no_variables, nothing_is_built, there_are  # noqa: F401  # a fixture

import flair_nas
from flair_nas.cli import main
from flair_nas.cli.version import describe

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("setting", ["plain", "columns"])
def test_what_needs_nothing_built_builds_nothing(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", setting)
    nothing_is_built(monkeypatch)
    assert f"kernels on CPU: {setting}, as FLAIR_NAS_KERNELS says" in describe()


def test_the_description_names_versions_and_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    there_are(monkeypatch, True)
    lines = describe()
    assert lines[:3] == [
        f"flair-nas {flair_nas.__version__}",
        f"Python {platform.python_version()}",
        f"torch {version('torch')}",
    ]
    assert lines[3].startswith("flair 0.") and lines[-1] == "FLAIR_NAS_KERNELS: auto"
    assert "kernels on CPU: native, compiled with /usr/bin/g++ (g++ 12); /cache/kernels/key.so" in lines
    there_are(monkeypatch, False)
    assert f"kernels on CPU: columns, on PyTorch's operators: {WHY}" in describe()


def test_kernels_that_are_asked_for_and_missing_have_nothing_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    there_are(monkeypatch, False)
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "native")
    assert f"kernels on CPU: none: {WHY}" in describe()


@pytest.mark.slow
def test_the_command_describes_this_machine() -> None:
    command = [sys.executable, "-m", "flair_nas", "--version", "-v"]
    environment = {**os.environ, "CXX": "/nowhere/g++"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"flair-nas {flair_nas.__version__}" and lines[2] == f"torch {version('torch')}"
    why = "columns, on PyTorch's operators: the compiler of the environment variable CXX, /nowhere/g++"
    assert f"kernels on CPU: {why}" in done.stdout


@pytest.mark.parametrize("words", ["--version -v", "-v --version", "--version --verbose", "--verbose --version"])
def test_version_and_verbose_come_in_any_order(capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert main(words.split()) == 0
    assert capsys.readouterr().out.splitlines() == describe()


def test_an_unknown_value_ends_the_command_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "fast")
    assert main(["--version", "-v"]) == 2
    assert "FLAIR_NAS_KERNELS 'fast'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "expected"), [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")]
)
def test_threads_of_the_command_sleep_soon_unless_told_otherwise(given: dict[str, str], expected: str) -> None:
    script = """
import os, sys
sys.argv = ["flair-nas", "genotypes", "nothing"]
from flair_nas.cli import main
main()
print(os.environ.get("GOMP_SPINCOUNT"))
"""
    kept = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run([sys.executable, "-c", script], env=kept | given, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == expected
