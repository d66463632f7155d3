"""Ctrl-C and SIGTERM: one line and exit code 130, from the first moment on that is the command's own."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
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


@pytest.mark.slow
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


EARLY = """
import io, os, sys

class Stream(io.TextIOWrapper):
    def reconfigure(self, **changes):
        os.kill(os.getpid(), int(sys.argv.pop()))

sys.stdout = Stream(sys.stdout.detach())
from flair_nas.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_action_is_answered_in_a_line(number: signal.Signals) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EARLY, str(int(number))], cwd=ROOT, capture_output=True, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (130, "") and len(done.stderr.splitlines()) == 1


def test_handlers_are_installed_within_the_block_and_restored_after_it() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with signals.exit_on_signal():
        assert all(signal.getsignal(number) is signals._exit for number in before)
    assert {number: signal.getsignal(number) for number in before} == before


def test_another_thread_leaves_handlers_alone() -> None:
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}

    def work() -> dict[int, object]:
        with signals.interrupt_on_signal(), signals.exit_on_signal():
            return {number: signal.getsignal(number) for number in signal.valid_signals()}

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == before


def test_a_process_that_is_started_with_the_interrupt_blocked_never_gets_it() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('alive')"
    with signals.block_interrupt():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_signal_that_the_process_was_told_to_ignore_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with signals.exit_on_signal():
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


SLOW_STOP = """
import sys, time
from types import SimpleNamespace
from flair_nas.cli import command, main
sys.argv = ["flair-nas"]

def work(arguments):
    try:
        print("ready", flush=True)
        time.sleep(100)
    except KeyboardInterrupt:
        print("stopping", flush=True)
        time.sleep(100)

parsed = SimpleNamespace(run=work), []
command.build_parser = lambda: SimpleNamespace(parse_known_args=lambda words: parsed)
sys.exit(main())
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


INTERRUPTED = """
import sys
from types import SimpleNamespace
from flair_nas.cli import command, main
parsed = SimpleNamespace(run=lambda _: exec("raise KeyboardInterrupt")), []
command.build_parser = lambda: SimpleNamespace(parse_known_args=lambda _: parsed)
sys.exit(main())
"""


def test_an_interrupt_within_code_made_from_text_has_its_exit_code(tmp_path: Path) -> None:
    """Dataclasses are made so. Python notes it, and `python -m` would end by SIGINT at last."""
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    command = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (130, "flair-nas: stopped\n")


@pytest.mark.slow
def test_signals_that_come_while_python_ends_are_ignored() -> None:
    code = "import atexit, os, signal, sys; sys.argv = ['flair-nas', '--version', '-v']; "
    code += "atexit.register(lambda: [os.kill(os.getpid(), number) for number in (signal.SIGINT, signal.SIGTERM)]); "
    code += "from flair_nas.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stderr == "" and done.stdout.startswith("flair-nas ")


@pytest.mark.parametrize("closed", ["<&- >&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(closed: str, tmp_path: Path) -> None:
    """What cannot be read is empty, and what cannot be written is lost; the exit code says how it went."""
    command = f"{shlex.quote(sys.executable)} -m flair_nas lm train --text demo --epochs 0 --out x {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "" if "2>" in closed else "epochs must be a whole number" in done.stderr
