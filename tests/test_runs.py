"""Run folders: one process at a time, checkpoints that survive kills, full disks and damage, and random states."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import random
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from flair_nas import runs
from flair_nas.errors import FlairNasError
from flair_nas.runs import Checkpoints, RunStopped, open_run, random_state, read_checkpoint, restore_random_state
from flair_nas.settings import problems_of, raise_problems, setting, to_yaml

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Walk:
    """Settings of a run."""

    steps: int = setting(3, "how many", low=1)
    pace: float = setting(1.0, "how fast")

    def __post_init__(self) -> None:
        raise_problems(problems_of(self))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Code in a process of its own, which has `Walk`."""
    command = [sys.executable, "-c", f"import sys\nfrom test_runs import *\n{code}", *map(str, arguments)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


# --- the folder -------------------------------------------------------------------------------------------------------

HOLD = """
with open_run(sys.argv[1], Walk()) as out:
    print("open", flush=True)
    signal.pause()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has tmp_path / "run" open."""
    process = python(HOLD, tmp_path / "run")
    assert process.stdout is not None and process.stdout.readline() == "open\n", process.communicate()[1]
    yield process
    process.kill()
    process.communicate()


def test_a_folder_in_use_by_another_process_is_refused_until_that_is_killed(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    out = tmp_path / "run"
    for _ in range(2):
        with pytest.raises(FlairNasError, match="is in use by another process") as caught, open_run(out, Walk()):
            pytest.fail("it was opened")
    assert str(out) in str(caught.value) and f"({holder.pid})" in str(caught.value)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert names_in(out) == [".lock"]  # which a killed process cannot take away, and which is in nobody's way
    with open_run(out, Walk()) as opened:
        assert opened == out
    assert names_in(out) == []


def test_a_folder_is_free_again_after_the_block_however_it_ends(tmp_path: Path) -> None:
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), open_run(tmp_path / "run", Walk()):
            raise error
    with (
        open_run(tmp_path / "run", Walk()),
        pytest.raises(FlairNasError, match="in use"),
        open_run(tmp_path / "run", Walk()),
    ):
        pytest.fail("opened twice in one process")


def test_many_processes_at_once_are_one_after_the_other(tmp_path: Path) -> None:
    code = """
from flair_nas.files import write_text
count = 0
while count < 40:
    try:
        with open_run(sys.argv[1], Walk()) as out:
            write_text(out / "config.yaml", to_yaml(Walk()))
            os.close(os.open(out / "mine", os.O_CREAT | os.O_EXCL))  # fails if another one is in here
            os.unlink(out / "mine")
            count += 1
    except FlairNasError as error:
        assert "in use" in str(error), error
"""
    processes = [python(code, tmp_path / "run") for _ in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors


def test_a_folder_with_something_else_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    file, full = tmp_path / "file", tmp_path / "full"
    file.write_text("mine")
    full.mkdir()
    (full / "thesis.tex").write_text("mine")
    for out, expected in (
        (file, "is a file"),
        (full, "is not empty, and holds no search to go on with"),
        (file / "below", "cannot write to the folder"),
    ):
        with pytest.raises(FlairNasError, match=expected) as caught, open_run(out, Walk(), quantity="search"):
            pytest.fail("it was opened")
        assert str(out) in str(caught.value)
    assert names_in(full) == ["thesis.tex"] and file.read_text() == "mine"


def test_the_settings_of_the_run_that_is_there_have_to_be_the_same(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(to_yaml(Walk()))
    with open_run(tmp_path, Walk(steps=9), may_change=["steps"]):
        pass
    with (
        pytest.raises(FlairNasError, match="holds a walk with other settings: steps was 3 and is now 9; pace was 1.0"),
        open_run(tmp_path, Walk(steps=9, pace=2), quantity="walk"),
    ):
        pytest.fail("it was opened")
    for content in ("steps: 0\n", "hidden_size: 3\n", ""):
        (tmp_path / "config.yaml").write_text(content)
        with pytest.raises(FlairNasError, match=r"holds no run to go on with.*choose"), open_run(tmp_path, Walk()):
            pytest.fail("it was opened")
    assert names_in(tmp_path) == ["config.yaml"]


def test_what_a_killed_process_left_half_written_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / ".config.yaml.abcd1234.part").write_text("steps")
    with open_run(tmp_path, Walk()) as out:
        assert names_in(out) == [".lock"]
        (out / "config.yaml").write_text(to_yaml(Walk()))
    (tmp_path / "seed-1").mkdir()
    (tmp_path / "seed-1" / ".checkpoint.pt.abcd_234.part").write_text("half")
    (tmp_path / "seed-1" / "checkpoint.pt").write_text("whole")
    with open_run(tmp_path, Walk()):
        assert names_in(tmp_path / "seed-1") == ["checkpoint.pt"]


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    out = tmp_path / "my run"
    with pytest.raises(RunStopped, match="^stopped; run it again$"), open_run(out, Walk(), command="walk"):
        raise KeyboardInterrupt
    with pytest.raises(RunStopped) as caught, open_run(out, Walk(), command="flair-nas walk"):
        (out / "config.yaml").write_text(to_yaml(Walk()))
        raise KeyboardInterrupt("stopped in step 2")
    assert str(caught.value) == (f"stopped in step 2; in this directory, go on with: flair-nas walk --resume '{out}'")
    assert isinstance(caught.value, KeyboardInterrupt)


def test_a_disk_without_locks_is_used_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(runs.fcntl, "flock", unsupported)
    with open_run(tmp_path / "run", Walk()):
        assert "cannot be locked (No locks available)" in caplog.text


# --- checkpoints ------------------------------------------------------------------------------------------------------


def state_of(number: int, size: int = 1000) -> dict[str, Any]:
    return {"number": number, "weights": torch.full((size,), float(number)), "best": (number, [None, "text"])}


def number_in(folder: Path) -> int:
    state = Checkpoints(folder).load()
    assert state is not None
    assert torch.equal(state["weights"], torch.full_like(state["weights"], state["number"]))
    assert state["best"] == (state["number"], [None, "text"])
    return int(state["number"])


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.load() is None
    for number in (1, 2, 3):
        checkpoints.save(state_of(number))
        assert number_in(tmp_path) == number
    Checkpoints(tmp_path).save(state_of(4))  # another process goes on
    assert names_in(tmp_path) == ["checkpoint-previous.pt", "checkpoint.pt"]
    assert [read_checkpoint(tmp_path / name)["number"] for name in names_in(tmp_path)] == [3, 4]


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def cut(path: Path, place: int) -> None:
    path.write_bytes(path.read_bytes()[:place])


def place_in_tensor(path: Path) -> int:
    """A byte of the weights, which torch.load takes as it is."""
    place = path.read_bytes().index(torch.full((9,), 2.0).numpy().tobytes()) + 21
    before = torch.load(path, weights_only=True)["weights"]
    flip(path, place)
    assert not torch.equal(torch.load(path, weights_only=True)["weights"], before)
    flip(path, place)
    return place


DAMAGES = {
    "empty": lambda path: cut(path, 0),
    "first bytes": lambda path: cut(path, 100),
    "half": lambda path: cut(path, path.stat().st_size // 2),
    "last byte": lambda path: cut(path, -1),
    "text": lambda path: path.write_text("no checkpoint"),
    "no dictionary": lambda path: torch.save([1], path),
    "flipped bit": lambda path: flip(path, place_in_tensor(path)),
    "folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_one_falls_back_and_says_so(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path)
    for number in (1, 2):
        checkpoints.save(state_of(number))
    DAMAGES[damage](checkpoints.newest)
    with caplog.at_level(logging.WARNING, logger="flair_nas"):
        assert number_in(tmp_path) == 1
    (record,) = caplog.records
    assert f"{checkpoints.newest}: this checkpoint cannot be read" in record.getMessage()
    assert f"the one before is used: {checkpoints.previous}" in record.getMessage()


@pytest.mark.parametrize("loaded_before", [True, False])
def test_a_damaged_one_never_replaces_a_good_one(tmp_path: Path, loaded_before: bool) -> None:
    for number in (1, 2):
        Checkpoints(tmp_path).save(state_of(number))
    checkpoints = Checkpoints(tmp_path)
    flip(checkpoints.newest, place_in_tensor(checkpoints.newest))
    if loaded_before:
        checkpoints.load()
    checkpoints.save(state_of(3))
    assert [read_checkpoint(tmp_path / name)["number"] for name in names_in(tmp_path)] == [1, 3]
    checkpoints.save(state_of(4))
    assert [read_checkpoint(tmp_path / name)["number"] for name in names_in(tmp_path)] == [3, 4]


def test_when_both_are_damaged_both_are_named(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for number in (1, 2):
        checkpoints.save(state_of(number))
    before = {}
    for path in (checkpoints.newest, checkpoints.previous):
        cut(path, 700)
        before[path] = path.read_bytes()
    with pytest.raises(FlairNasError, match="To start over, delete them") as caught:
        checkpoints.load()
    assert all(str(path) in str(caught.value) and path.read_bytes() == before[path] for path in before)
    checkpoints.previous.unlink()
    with pytest.raises(FlairNasError):  # not to be taken for a run that has not begun
        checkpoints.load()


def test_the_one_before_serves_when_the_newest_is_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in (1, 2):
        Checkpoints(tmp_path).save(state_of(number))
    (tmp_path / "checkpoint.pt").unlink()
    assert number_in(tmp_path) == 1 and "no " in caplog.text
    Checkpoints(tmp_path).save(state_of(3))
    assert [read_checkpoint(tmp_path / name)["number"] for name in names_in(tmp_path)] == [1, 3]


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Bad:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "made"),))

    torch.save({"state": Bad()}, tmp_path / "checkpoint.pt")
    with pytest.raises(FlairNasError, match="cannot be read"):
        Checkpoints(tmp_path).load()
    assert not (tmp_path / "made").exists()


# Saves in one child after the other, which is killed at its 1st, 2nd, ... call that touches files, until one is done.
KILLED = """
import shutil
def dying(function):
    def call(*arguments, **named):
        if next(count) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return call
for name in ("open", "link", "replace", "unlink", "fsync"):
    setattr(os, name, dying(getattr(os, name)))
torch.save = dying(torch.save)
begun = Path(sys.argv[1])
for at in itertools.count(1):
    count = itertools.count(-1000)  # not yet
    folder = shutil.copytree(begun, begun.with_name(f"killed-{at}"))
    child = os.fork()
    count = itertools.count(1)
    if not child:
        Checkpoints(folder).save(state_of(3))
        os._exit(0)
    if os.waitpid(child, 0)[1] != signal.SIGKILL:
        break
"""


def test_a_kill_at_any_moment_of_saving_leaves_a_good_one(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    for number in (1, 2):
        Checkpoints(begun).save(state_of(number))
    process = python(KILLED, begun)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found = []
    for at in range(1, len(list(tmp_path.glob("killed-*"))) + 1):
        folder = tmp_path / f"killed-{at}"
        newest, previous = folder / "checkpoint.pt", folder / "checkpoint-previous.pt"
        found.append((number_in(folder), read_checkpoint(previous)["number"]))
        Checkpoints(folder).save(state_of(4))  # and the run goes on
        assert [read_checkpoint(path)["number"] for path in (newest, previous)] == [4, found[-1][0]]
    assert found == sorted(found) and len(found) > 8
    assert set(found) == {(2, 1), (2, 2), (3, 2)}


FULL = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # writing more fails in the kernel, as on a full disk
try:
    Checkpoints(sys.argv[1]).save(state_of(3, size=1_000_000))
except OSError as error:
    print(error.filename, error.strerror)
"""


def test_a_full_disk_leaves_both_as_they_were(tmp_path: Path) -> None:
    for number in (1, 2):
        Checkpoints(tmp_path).save(state_of(number))
    out, errors = python(FULL, tmp_path).communicate(timeout=120)
    assert f"{tmp_path / 'checkpoint.pt'} no room to write this file" in out, errors
    assert names_in(tmp_path) == ["checkpoint-previous.pt", "checkpoint.pt"]
    assert [read_checkpoint(tmp_path / name)["number"] for name in names_in(tmp_path)] == [1, 2]


def test_a_disk_without_hard_links_serves_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", unsupported)
    for number in (1, 2, 3):
        Checkpoints(tmp_path).save(state_of(number))
    assert [read_checkpoint(tmp_path / name)["number"] for name in names_in(tmp_path)] == [2, 3]


def test_the_sums_of_every_member_are_there(tmp_path: Path) -> None:
    Checkpoints(tmp_path).save(state_of(2))
    with zipfile.ZipFile(tmp_path / "checkpoint.pt") as archive:
        assert all(member.CRC for member in archive.infolist() if member.file_size)


# --- random states ----------------------------------------------------------------------------------------------------


def draws() -> list[float]:
    return [
        *(random.random(), random.gauss(0, 1)),  # the second of a pair of normal numbers is part of the state
        *(numpy.random.random(), numpy.random.normal()),
        *(torch.rand(()).item(), torch.randn(()).item()),
        *([torch.rand((), device="cuda").item()] if torch.cuda.is_available() else []),
    ]


def test_random_states_go_through_a_checkpoint(tmp_path: Path) -> None:
    draws()
    Checkpoints(tmp_path).save({"random": random_state()})
    expected = list(itertools.chain.from_iterable(draws() for _ in range(3)))
    for seed in (random.seed, numpy.random.seed, torch.manual_seed):
        seed(5)
    assert draws() != expected[: len(draws())]
    restore_random_state(read_checkpoint(tmp_path / "checkpoint.pt")["random"])
    assert list(itertools.chain.from_iterable(draws() for _ in range(3))) == expected


def test_other_gpus_than_before_leave_their_random_state_alone() -> None:
    state = random_state() | {"cuda": [torch.zeros(16, dtype=torch.uint8)] * (torch.cuda.device_count() + 1)}
    expected = draws()[:6]
    restore_random_state(state)
    assert draws()[:6] == expected
