"""Locks: one process at a time, given back when it ends in whatever way, and never through a symbolic link."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from own_process import python

from flair_nas.storage.folders import LockHeldError, locked

HOLD = """
import signal
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    signal.pause()
"""
FORK = """
import os, signal
with locked(Path(sys.argv[1])):
    if not os.fork():
        print(os.getpid(), flush=True)
    signal.pause()
"""
WAIT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell has its background jobs ignore
with locked(Path(sys.argv[1]), waiting=lambda: print("waiting", flush=True)):
    print("held", flush=True)
"""


def start(code: str, path: Path) -> tuple[subprocess.Popen[str], str]:
    """A process, and the first line that it prints."""
    process = python(__name__, code, path)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock."""
    process, said = start(HOLD, path)
    assert said == "held", process.communicate()[1]
    yield process
    end(process)


def test_what_is_held_names_its_process_and_is_free_when_that_is_killed(
    path: Path, holder: subprocess.Popen[str]
) -> None:
    for _ in range(2):
        with pytest.raises(LockHeldError, match=rf"^another process \({holder.pid}\)$"), locked(path):
            pytest.fail("held twice")
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert path.exists()  # a killed process cannot take it away
    with locked(path) as fault:
        assert fault is None and path.read_text() == str(os.getpid())
    assert not path.exists()


def test_a_lock_is_free_after_the_block_however_that_ends(path: Path) -> None:
    for error in (ValueError, KeyboardInterrupt, OSError):
        with pytest.raises(error), locked(path):
            raise error
        assert not path.exists()
    with locked(path), pytest.raises(LockHeldError), locked(path):
        pytest.fail("held twice in one process")


def test_one_that_waits_says_so_and_goes_on(path: Path, holder: subprocess.Popen[str]) -> None:
    waiting, said = start(WAIT, path)
    assert said == "waiting" and waiting.stdout is not None
    holder.send_signal(signal.SIGKILL)
    assert waiting.stdout.readline() == "held\n"
    assert waiting.wait(timeout=60) == 0 and not path.exists()


@pytest.mark.slow
def test_ctrl_c_ends_the_wait_and_leaves_the_lock_to_its_holder(path: Path, holder: subprocess.Popen[str]) -> None:
    waiting, said = start(WAIT, path)
    assert said == "waiting"
    time.sleep(0.2)
    waiting.send_signal(signal.SIGINT)
    out, errors = waiting.communicate(timeout=60)
    assert (out, waiting.returncode != 0) == ("", True) and "KeyboardInterrupt" in errors
    with pytest.raises(LockHeldError, match=str(holder.pid)), locked(path):
        pytest.fail("it was let go")


def test_a_fork_of_the_holder_does_not_keep_the_lock(path: Path) -> None:
    process, child = start(FORK, path)
    process.kill()
    process.wait()
    try:
        os.kill(int(child), 0)  # it is still there
        with locked(path) as fault:
            assert fault is None
    finally:
        os.kill(int(child), signal.SIGKILL)
        process.communicate()


def test_a_fork_that_leaves_the_block_takes_nothing_away(path: Path) -> None:
    with locked(path):
        child = -1
        try:
            with locked(path.with_name("other")):
                child = os.fork()
                if not child:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert path.read_text() == str(os.getpid())
        with pytest.raises(LockHeldError), locked(path):
            pytest.fail("held twice")


@pytest.mark.slow
def test_many_processes_hold_it_one_after_the_other(path: Path) -> None:
    code = """
import os
path = Path(sys.argv[1])
mine = path.with_name("mine")
for _ in range(30):
    with locked(path, waiting=lambda: None):
        os.close(os.open(mine, os.O_CREAT | os.O_EXCL))  # fails if another one is in here
        mine.unlink()
"""
    processes = [python(__name__, code, path) for _ in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert not path.exists()


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_is_refused_and_what_it_leads_to_stays_as_it_is(
    tmp_path: Path, path: Path, there: bool
) -> None:
    thesis = tmp_path / "thesis.tex"
    if there:
        thesis.write_text("mine")
    path.symlink_to(thesis)
    for waiting in (None, lambda: None):
        with pytest.raises(OSError, match="symbolic links") as caught, locked(path, waiting):
            pytest.fail("it was held")
        assert caught.value.filename == str(path)
    assert path.is_symlink() and thesis.exists() == there and (not there or thesis.read_text() == "mine")


@pytest.mark.parametrize("code", ["ENOLCK", "ENOSYS", "EOPNOTSUPP"])
def test_on_a_disk_without_locks_the_block_is_told_and_runs(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(getattr(errno, code), "No locks available")

    monkeypatch.setattr("fcntl.flock", unsupported)
    for waiting in (None, lambda: None):
        with locked(path, waiting) as fault:
            assert fault is not None and fault.strerror == "No locks available"
        assert not path.exists()


def test_a_file_that_cannot_be_written_is_an_error_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path, tmp_path / "file" / "lock"):
        with pytest.raises(OSError) as caught, locked(path):
            pytest.fail("it was held")
        assert caught.value.filename is not None
    assert (tmp_path / "file").read_text() == "mine"
