"""Files are written whole or not at all: also when the block raises, the process dies, or the disk is full."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from full_disk import full_disk
from safetensors.torch import save_file

from flair_nas.storage.files import check_writable, whole_file, write_text

ROOT = Path(__file__).resolve().parents[2]
OLD = "what was there before\n"
PLAIN_WORDS = "no room to write this file"

# Writes 400 kB over TARGET, by HOW; prints type, errno, file name and words of the error, a line each.
WRITER = """
import sys
from flair_nas.storage.files import whole_file, write_text
target, how = sys.argv[1:]
if how == "torch":
    import torch
    weights = {"weight": torch.zeros(100_000)}
try:
    if how == "text":
        write_text(target, "x" * 400_000)
    else:
        with whole_file(target) as temporary:
            torch.save(weights, temporary)
except OSError as error:
    print(type(error).__name__, error.errno, error.filename, error.strerror, sep="\\n")
else:
    print("written")
"""


def write_large(target: Path, how: str) -> list[str]:
    """Runs the writer in a process of its own and gives the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(target), how],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 128 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        command = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(disk)]
        mounted = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here (that needs root): {mounted.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("text", ["", "plain\n", "naïve – 漢字\r\nsecond\n"])
def test_text_is_written_as_given_over_what_was_there(text: str, tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    for _ in range(2):
        write_text(path, text)
        assert path.read_bytes() == text.encode("utf-8")
        write_text(str(path), OLD)
        assert path.read_text() == OLD
    assert names_in(tmp_path) == ["file.txt"]


def test_what_was_there_stays_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text(OLD)
    with whole_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == OLD
        assert temporary.parent == tmp_path  # on the same disk, so that the renaming is one step
    assert path.read_text() == "new" and names_in(tmp_path) == ["file.txt"]


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyboardInterrupt("stopped"), OSError(errno.EACCES, "denied")])
@pytest.mark.parametrize("existed", [True, False])
def test_a_block_that_raises_leaves_the_old_file_and_no_part(
    error: BaseException, existed: bool, tmp_path: Path
) -> None:
    path = tmp_path / "file.txt"
    if existed:
        path.write_text(OLD)
    with pytest.raises(type(error)) as caught, whole_file(path) as temporary:
        temporary.write_text("half of it")
        raise error
    assert caught.value is error  # what is no full disk is handed on as it was
    assert names_in(tmp_path) == (["file.txt"] if existed else [])
    assert not existed or path.read_text() == OLD


def test_a_new_file_can_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "file.txt", "new")
        assert os.umask(0o027) == 0o027  # left as it was
    finally:
        os.umask(before)
    assert (tmp_path / "file.txt").stat().st_mode & 0o777 == 0o640


def test_a_process_that_is_killed_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text(OLD)
    code = """
import os, signal, sys
from flair_nas.storage.files import whole_file
with whole_file(sys.argv[1]) as temporary:
    temporary.write_text("half of it")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=ROOT, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == OLD


@pytest.mark.slow
@pytest.mark.parametrize("how", ["text", "torch"])
@pytest.mark.parametrize("existed", [True, False])
def test_a_write_beyond_the_limit_is_told_in_plain_words_and_undone(how: str, existed: bool, tmp_path: Path) -> None:
    path = tmp_path / "file.pt"
    if existed:
        path.write_text(OLD)
    with full_disk(50_000):
        kind, number, filename, words = write_large(path, how)
    assert (kind, int(number), filename) == ("OSError", errno.ENOSPC, str(path))
    assert words.startswith(PLAIN_WORDS) and "free some disk space" in words
    assert ("the file that was there before is kept" in words) is existed
    assert ("no half-written file is left" in words) is not existed
    assert names_in(tmp_path) == (["file.pt"] if existed else [])
    assert not existed or path.read_text() == OLD


def test_a_full_disk_under_an_array_of_numpy_is_told_in_plain_words(tmp_path: Path) -> None:
    path = tmp_path / "table.npy"
    path.write_text(OLD)
    with full_disk(50_000), pytest.raises(OSError, match=PLAIN_WORDS) as caught, whole_file(path) as temporary:
        np.save(temporary.open("wb"), np.zeros(100_000))
    assert caught.value.errno == errno.ENOSPC and caught.value.filename == str(path)
    assert names_in(tmp_path) == ["table.npy"] and path.read_text() == OLD


@pytest.mark.slow
@pytest.mark.parametrize("how", ["text", "torch"])
def test_a_full_disk_is_told_in_plain_words_and_undone(how: str, tiny_disk: Path) -> None:
    path = tiny_disk / "file.pt"
    path.write_text(OLD)
    kind, number, filename, words = write_large(path, how)
    assert (kind, int(number), filename) == ("OSError", errno.ENOSPC, str(path))
    assert words.startswith(PLAIN_WORDS) and "the file that was there before is kept" in words
    assert names_in(tiny_disk) == ["file.pt"] and path.read_text() == OLD
    write_text(path, "x" * 100_000)  # the room that the failed write had taken is free again
    assert path.stat().st_size == 100_000


def test_errors_name_the_file_that_is_wanted_and_no_hidden_one(tmp_path: Path) -> None:
    for write in (lambda path: write_text(path, "x"), check_writable):
        with pytest.raises(FileNotFoundError) as caught:
            write(tmp_path / "gone" / "file.txt")
        assert caught.value.filename == str(tmp_path / "gone" / "file.txt") and ".part" not in str(caught.value)
    with pytest.raises(IsADirectoryError):
        check_writable(tmp_path)
    check_writable(tmp_path / "file.txt")
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("how", ["text", "torch", "safetensors"])
def test_a_folder_that_is_deleted_meanwhile_is_told_in_plain_words(tmp_path: Path, how: str) -> None:
    (folder := tmp_path / "run").mkdir()
    path = folder / "model.pt"
    with pytest.raises(FileNotFoundError, match="the folder of this file is gone") as caught, whole_file(path) as part:
        shutil.rmtree(folder)
        {"torch": torch.save, "safetensors": save_file}.get(how, lambda _, path: path.write_text("x"))({}, part)
    assert caught.value.filename == str(path)


def test_a_name_may_be_as_long_as_names_can_be(tmp_path: Path) -> None:
    for name in ("x" * 255, "ü" * 127):
        write_text(tmp_path / name, "new")
        assert (tmp_path / name).read_text() == "new"


def test_a_folder_in_the_place_of_a_file_is_told_by_its_name(tmp_path: Path) -> None:
    (path := tmp_path / "history.jsonl").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        write_text(path, "x")
    assert caught.value.filename == str(path) and names_in(tmp_path) == ["history.jsonl"]
