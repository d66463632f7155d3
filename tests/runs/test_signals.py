"""Ctrl-C and SIGTERM: one line and exit code 130, from the first moment on that is the command's own."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flair_nas.runs import signals

ROOT = Path(__file__).resolve().parents[2]


def until_it_listens(process: subprocess.Popen[str]) -> None:
    """Python itself catches SIGINT; from the moment on when SIGTERM is caught, the command is there."""
    for _ in range(1000):
        status = Path(f"/proc/{process.pid}/status").read_text()
        (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
        if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.002)
    raise AssertionError("it never listened")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_command_starts_is_answered_in_a_line(
    tmp_path: Path, number: signal.Signals, seconds: float
) -> None:
    command = [sys.executable, "-m", "flair_nas", "tag", "train", "-q", "--embeddings", "one-hot"]
    process = subprocess.Popen(
        [*command, "--epochs", "1000", "--hidden-size", "8", "--out", str(tmp_path / "run")],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # a shell has its background jobs ignore Ctrl-C, which the child would inherit from a suite run so
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    until_it_listens(process)
    time.sleep(seconds)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert output == "" and process.returncode == 130
    assert len(errors.splitlines()) == 1 and errors.startswith("flair-nas: ")
    assert ("terminated" in errors) == (number == signal.SIGTERM)


def test_within_the_block_a_signal_ends_and_afterwards_all_is_as_before() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with signals.stopped_at_once():
        assert all(signal.getsignal(number) is signals._end for number in before)
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_signal_that_the_process_was_told_to_ignore_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with signals.stopped_at_once():
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("argv", "original", "expected"),
    [
        (["/usr/bin/flair-nas", "tag"], ["python", "/usr/bin/flair-nas", "tag"], True),
        (["-m", "tag"], ["python", "-m", "flair_nas", "tag"], True),
        (["-m"], ["python", "-m", "pytest"], False),
        (["train.py"], ["python", "train.py"], False),
        ([], ["python"], False),
    ],
)
def test_a_program_that_imports_the_package_is_not_the_command(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], original: list[str], expected: bool
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", original)
    assert signals.is_command() is expected


def test_importing_the_package_leaves_signals_alone() -> None:
    code = "import signal; before = signal.getsignal(2); import flair_nas; print(signal.getsignal(2) is before)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


SLOW_STOP = """
import sys, time
from flair_nas import cli
sys.argv = ["flair-nas"]

def work(words):
    try:
        print("ready", flush=True)
        time.sleep(100)
    except KeyboardInterrupt:
        print("stopping", flush=True)
        time.sleep(100)

cli._run = work
sys.exit(cli.main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_it_at_once(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_STOP], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None
    for said in ("ready", "stopping"):
        assert process.stdout.readline() == f"{said}\n"
        process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130 and errors in ("flair-nas: stopped\n", "flair-nas: terminated\n")


def test_signals_that_come_while_python_ends_are_ignored() -> None:
    code = "import atexit, os, signal, sys; sys.argv = ['flair-nas']; from flair_nas import cli; "
    code += "atexit.register(lambda: [os.kill(os.getpid(), number) for number in (signal.SIGINT, signal.SIGTERM)]); "
    code += "sys.exit(cli.main(['--nonsense']) if False else cli.main(['--version', '-v']))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == "" and done.stdout.startswith("flair-nas ")


@pytest.mark.parametrize("closed", ["<&- >&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed: str, tmp_path: Path) -> None:
    """What cannot be read is empty, and what cannot be written is lost; the exit code says how it went."""
    command = f"{shlex.quote(sys.executable)} -m flair_nas lm train --text demo --epochs 0 --out x {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "" if "2>" in closed else "epochs must be a whole number" in done.stderr
