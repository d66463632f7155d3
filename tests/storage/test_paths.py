"""Paths as users write them: what cannot be one is told in a line, and what is printed can be typed again."""

from __future__ import annotations

import io
import os
import shlex
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from flair_nas.errors import FlairNasError
from flair_nas.storage.paths import (
    cache_root,
    explain_not_utf8,
    find_foreign_writer,
    read_file,
    typed,
    user_path,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\0b", "embedded null"),
        ("half \ud83d of a pair", "cannot be a path: 'utf-8' codec can't encode character"),
        ("~nosuchuser/x", "'~nosuchuser' has no home folder here; write the whole path"),
        ("~" + "x" * 5000, "has no home folder here"),
        ("x" * 5000, "too long (5,000 characters)"),
        ("x/" * 5000, "too long (10,000 characters)"),
    ],
)
def test_what_is_no_path_is_told_in_a_short_line(text: str, words: str) -> None:
    with pytest.raises(FlairNasError) as caught:
        user_path(text)
    message = str(caught.value)
    assert words in message and len(message) < 300 and "\n" not in message
    message.encode()


@pytest.mark.parametrize("text", ["a b", "-x", "line\nbreak", "\udcff", "ü", ".", "/", "not/there", "a/../b"])
def test_all_else_is_a_path_whether_it_is_there_or_not(text: str) -> None:
    assert user_path(text) == Path(text)


def test_home_folders_are_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert user_path("~/x") == Path("/somewhere/x") and user_path(Path("~")) == Path("/somewhere")
    assert user_path("x/~") == Path("x/~")


@pytest.mark.parametrize("text", ["-x", "--out", "a b", "it's", "line\nbreak", "$HOME", "~", "plain", ""])
def test_what_is_typed_is_one_word_and_no_flag(text: str) -> None:
    (word,) = shlex.split(typed(text))
    assert not word.startswith("-") and Path(word) == Path(text)


def make_socket(path: Path) -> None:
    socket.socket(socket.AF_UNIX).bind(os.path.relpath(path))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (os.mkfifo, "no regular file"),
        (make_socket, "no regular file"),
        (Path.mkdir, "Is a directory"),
        (lambda path: path.symlink_to("/dev/zero"), "no regular file"),
        (lambda path: path.symlink_to(path), "symbolic links"),
        (lambda path: None, "No such file"),
        (lambda path: path.write_bytes(bytes(1001)), "more than 1,000 bytes"),
    ],
)
def test_what_never_ends_is_not_read(tmp_path: Path, make: Callable[[Path], None], words: str) -> None:
    make(path := tmp_path / "file")
    with pytest.raises(OSError, match=words) as caught:
        read_file(path, 1000)
    assert caught.value.filename == str(path) and caught.value.strerror


CUT = "Старый мост чинят.\n".encode() * 3
STAYS = "leave out the broken bytes with: iconv -c -f UTF-8 -t UTF-8"


@pytest.mark.parametrize(
    ("text", "fault", "remedy"),
    [
        (CUT[:-3], "a.txt:3: not UTF-8 (byte 0xd1), broken lines: 3; correct them, or", STAYS),
        (CUT + b"M\xfcller\n" * 9 + b"end\n", "a.txt:4: not UTF-8 (byte 0xfc), broken lines: 4, 5, ", STAYS),
        (b"M\xfcller\n" + CUT, "a.txt:1: not UTF-8 (byte 0xfc), broken lines: 1; ", STAYS),
        (b"one\xff\n" + b"plain\n" * 99, "a.txt:1: not UTF-8 (byte 0xff), broken lines: 1; ", STAYS),
        ("Müller läßt grüßen\n".encode("latin1"), "a.txt:1: not UTF-8 (byte 0xfc)", "iconv -f LATIN1 -t UTF-8"),
        ("Müller".encode("utf-16"), "a.txt:1: not UTF-8 but UTF-16", "iconv -f UTF-16 -t UTF-8"),
        ("Müller".encode("utf-16-le"), "a.txt:1: not UTF-8 but UTF-16LE", "iconv -f UTF-16LE -t UTF-8"),
        ("Müller".encode("utf-16-be"), "a.txt:1: not UTF-8 but UTF-16BE", "iconv -f UTF-16BE -t UTF-8"),
    ],
    ids=["cut", "lines of Latin 1", "one line of Latin 1", "a stray byte", "Latin 1", "UTF-16", "UTF-16LE", "UTF-16BE"],
)
def test_text_that_is_not_utf8_is_told_by_line_with_a_remedy(text: bytes, fault: str, remedy: str) -> None:
    message = explain_not_utf8(Path("a.txt"), [text])
    assert message.startswith(fault) and message.endswith(f"{remedy} a.txt > NEW")
    assert explain_not_utf8(Path("a.txt"), io.BytesIO(text)) == message


def test_latin1_is_not_proposed_where_earlier_lines_are_utf8() -> None:
    line = "Müller läßt grüßen".encode("latin1")
    assert "LATIN1" in explain_not_utf8("standard input", [line], 3)
    message = explain_not_utf8("standard input", [line], 3, knows_valid=True)
    assert message.startswith("standard input:3: not UTF-8") and message.endswith(STAYS)


def test_a_file_is_ours_when_nobody_else_may_write_to_it(tmp_path: Path) -> None:
    (path := tmp_path / "file").write_text("")
    path.chmod(0o644)
    assert find_foreign_writer(path) == ""
    path.chmod(0o664)
    assert "can be written to by others" in find_foreign_writer(path)
    (link := tmp_path / "link").symlink_to(path)
    assert "can be written to by others" in find_foreign_writer(link)
    if os.getuid() == 0:
        path.chmod(0o644)
        os.chown(path, 12345, -1)
        assert find_foreign_writer(path) == find_foreign_writer(link) == "belongs to another user (12345)"


def test_a_user_without_a_home_has_a_private_folder_for_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for variable in ("HOME", "FLAIR_NAS_CACHE"):
        monkeypatch.delenv(variable, raising=False)
    folder = cache_root()
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700 and cache_root() == folder
    folder.chmod(0o777)  # as one that somebody else has made, who knew the name
    with pytest.raises(FlairNasError, match="can be written to by others.*FLAIR_NAS_CACHE"):
        cache_root()
    assert cache_root(tmp_path / "given") == tmp_path / "given"
