"""Checkpoints that survive kills, full disks and damage."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from full_disk import full_disk
from own_process import python

from flair_nas.errors import FlairNasError
from flair_nas.runs.checkpoints import Checkpoints, read_checkpoint


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


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
    with pytest.raises(FlairNasError, match=f"To start over, delete {tmp_path}") as caught:
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
import itertools, os, shutil, signal
def dying(function):
    def call(*arguments, **named):
        if next(count) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    return call
for name in ("open", "replace", "unlink", "fsync"):
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


@pytest.mark.slow
def test_a_kill_at_any_moment_of_saving_leaves_a_good_one(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    for number in (1, 2):
        Checkpoints(begun).save(state_of(number))
    process = python(__name__, KILLED, begun)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    found = []
    for at in range(1, len(list(tmp_path.glob("killed-*"))) + 1):
        folder = tmp_path / f"killed-{at}"
        newest, previous = folder / "checkpoint.pt", folder / "checkpoint-previous.pt"
        found.append((number_in(folder), read_checkpoint(previous)["number"]))
        Checkpoints(folder).save(state_of(4))  # and the run goes on
        assert [read_checkpoint(path)["number"] for path in (newest, previous)] == [4, found[-1][0]]
    assert found == sorted(found) and len(found) > 6
    assert set(found) == {(2, 1), (2, 2), (3, 2)}


FULL = """
try:
    Checkpoints(sys.argv[1]).save(state_of(3, size=1_000_000))
except OSError as error:
    print(error.filename, error.strerror)
"""


@pytest.mark.slow
def test_a_full_disk_leaves_both_as_they_were(tmp_path: Path) -> None:
    for number in (1, 2):
        Checkpoints(tmp_path).save(state_of(number))
    with full_disk(100_000):
        out, errors = python(__name__, FULL, tmp_path).communicate(timeout=120)
    assert f"{tmp_path / 'checkpoint.pt'} no room to write this file" in out, errors
    assert names_in(tmp_path) == ["checkpoint-previous.pt", "checkpoint.pt"]
    assert [read_checkpoint(tmp_path / name)["number"] for name in names_in(tmp_path)] == [1, 2]
