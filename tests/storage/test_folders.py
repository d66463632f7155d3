"""Sets of files are replaced whole or not at all, and only those that are ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flair_nas import FlairNasError
from flair_nas.storage.files import write_text
from flair_nas.storage.folders import LOCK, whole_files

LIST = "list"


def listed(folder: Path) -> set[str]:
    """The files of an earlier call, which its list names."""
    path = folder / LIST
    return {LIST, *path.read_text().split()} if path.exists() else set()


def write(folder: Path, **texts: str) -> None:
    with whole_files(folder, LIST, listed) as part:
        for name, text in texts.items():
            write_text(part / name, text)
        write_text(part / LIST, " ".join(texts))


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_files_that_the_earlier_call_alone_has_go_away(tmp_path: Path) -> None:
    write(tmp_path / "new" / "out", a="1", b="1")
    write(tmp_path / "new" / "out", b="2", c="2")
    assert contents(tmp_path / "new" / "out") == {"b": "2", "c": "2", LIST: "b c"}


def test_other_files_are_refused_and_stay(tmp_path: Path) -> None:
    write(tmp_path, a="1")
    (tmp_path / "b").write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(FlairNasError, match=r"holds other files \(b\); name a new folder"):
        write(tmp_path, a="2", b="2")
    assert contents(tmp_path) == before
    with pytest.raises(FlairNasError, match="a is a file; name a folder"):
        write(tmp_path / "a")


def test_an_error_leaves_what_was_there_and_names_the_file_that_was_wanted(tmp_path: Path) -> None:
    def fail(folder: Path, error: Exception) -> None:
        with whole_files(folder, LIST, listed) as part:
            write_text(part / "a", "half of it")
            raise error if str(error) else OSError(28, "no room", str(part / "a"))

    write(tmp_path, a="1")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="wrong"):
        fail(tmp_path, ValueError("wrong"))
    with pytest.raises(OSError, match="no room") as caught:
        fail(tmp_path, OSError())
    assert caught.value.filename == str(tmp_path / "a")
    assert contents(tmp_path) == before
    with pytest.raises(ValueError, match="wrong"):
        fail(tmp_path / "new", ValueError("wrong"))
    assert not (tmp_path / "new").exists()


def test_a_second_writer_is_refused_and_what_a_killed_one_left_goes_away(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from flair_nas.storage.folders import whole_files
with whole_files(Path(sys.argv[1]), "a") as part:
    (part / "a").write_text("half of it")
    print("begun", flush=True)
    time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    try:
        with pytest.raises(FlairNasError, match=rf"is in use by another process \({process.pid}\); wait until"):
            write(tmp_path, a="2")
    finally:
        process.kill()
        process.wait()
    assert len([*tmp_path.iterdir()]) == 2 and (tmp_path / LOCK).exists()
    write(tmp_path, a="2")
    assert contents(tmp_path) == {"a": "2", LIST: "a"}
