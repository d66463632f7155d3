"""Which kernels are used, as the environment says, and what the command tells of it."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

import flair_nas
from flair_nas import FlairNasError
from flair_nas.cli import main
from flair_nas.kernels import build
from flair_nas.kernels.choice import chosen, describe

ROOT = Path(__file__).resolve().parents[1]
CPU, CUDA, OTHER = torch.device("cpu"), torch.device("cuda", 1), torch.device("meta")
WHY = "no C++ compiler found (g++ or clang++); install one"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLAIR_NAS_KERNELS", raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def there_are(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    """Whether there are native kernels here."""
    place = {"compiler": "/usr/bin/g++ (g++ 12)", "place": "/cache/kernels/key.so"}
    found = build.Built(ctypes.CDLL(None), **place) if native else build.Built(None, reason=WHY)
    monkeypatch.setattr(build, "built", lambda: found)
    monkeypatch.setattr(build, "library", lambda: found.library)


def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise AssertionError("asked for native kernels")

    monkeypatch.setattr(build, "built", fail)
    monkeypatch.setattr(build, "library", fail)


@pytest.mark.parametrize("setting", [None, "", "auto"])
@pytest.mark.parametrize(("native", "expected"), [(True, "native"), (False, "columns")])
def test_a_cpu_has_native_kernels_where_there_are_any(
    monkeypatch: pytest.MonkeyPatch, setting: str | None, native: bool, expected: str
) -> None:
    if setting is not None:
        monkeypatch.setenv("FLAIR_NAS_KERNELS", setting)
    there_are(monkeypatch, native)
    assert chosen(CPU) == expected


@pytest.mark.parametrize("setting", ["auto", "native", "columns", "plain", "triton"])
def test_native_kernels_are_for_cpus_alone(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", setting)
    nothing_is_built(monkeypatch)
    assert chosen(OTHER) == ("plain" if setting == "plain" else "columns")
    assert chosen(CUDA) == (setting if setting in ("triton", "plain") else "columns")


def test_native_kernels_that_are_asked_for_and_missing_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "native")
    there_are(monkeypatch, True)
    assert chosen(CPU) == "native"
    there_are(monkeypatch, False)
    with pytest.raises(FlairNasError, match="FLAIR_NAS_KERNELS asks for native kernels.* install one"):
        chosen(CPU)


@pytest.mark.parametrize("setting", ["plain", "columns"])
def test_other_engines_build_nothing(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", setting)
    nothing_is_built(monkeypatch)
    assert chosen(CPU) == setting
    assert f"kernels on CPU: {setting}, as FLAIR_NAS_KERNELS says" in describe()


@pytest.mark.parametrize(
    ("interpreted", "native", "expected"),
    [("1", True, "triton"), ("0", True, "native"), (None, True, "native"), (None, False, "columns")],
)
def test_triton_on_a_cpu_is_for_its_interpreter(
    monkeypatch: pytest.MonkeyPatch, interpreted: str | None, native: bool, expected: str
) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "triton")
    if interpreted is not None:
        monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    there_are(monkeypatch, native)
    assert chosen(CPU) == expected
    (line,) = [line for line in describe() if line.startswith("kernels on CPU: ")]
    assert line.split()[3].strip(",").lower() == expected


@pytest.mark.parametrize("device", [CPU, CUDA], ids=str)
def test_an_unknown_value_is_an_error_that_lists_the_known(
    monkeypatch: pytest.MonkeyPatch, device: torch.device
) -> None:
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "nativ")
    with pytest.raises(FlairNasError) as raised:
        chosen(device)
    for words in ("FLAIR_NAS_KERNELS 'nativ'", "did you mean native?", "auto, native, columns, triton, plain"):
        assert words in str(raised.value)


def test_a_change_of_the_variable_is_heard_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    there_are(monkeypatch, True)
    assert chosen(CPU) == "native"
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "plain")
    assert chosen(CPU) == "plain"


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
