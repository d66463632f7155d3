"""Text as token ids: the same words as a plain reading gives, made once, and never from another text or half of one."""

from __future__ import annotations

import errno
import gzip
import itertools
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from full_disk import full_disk
from hypothesis import given, settings
from hypothesis import strategies as st

from flair_nas.errors import FlairNasError
from flair_nas.language_model.text import corpus as corpus_module
from flair_nas.language_model.text import sources
from flair_nas.language_model.text.corpus import END, UNKNOWN, TextCorpus, Vocabulary, batchify, load_text
from flair_nas.storage.resources import resource_path

TRAIN = "the cat saw the dog\nthe dog ran\n"
VALID = "the bird ran\n"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(folder))
    return folder


def folder_of(path: Path, **texts: str) -> Path:
    """Writes a folder of NAME.txt files."""
    path.mkdir(exist_ok=True)
    for name, text in texts.items():
        (path / f"{name}.txt").write_text(text, encoding="utf-8", newline="")
    return path


def words_of(corpus: TextCorpus, part: str) -> list[str]:
    return [corpus.vocabulary.words[number] for number in getattr(corpus, part)]


def plainly_read(path: Path) -> list[str]:
    """The words of a file as language-model code of the field reads them."""
    with open(path, encoding="utf-8-sig") as stream:
        return [word for line in stream for word in [*line.split(), END]]


def error_of(source: Any, **arguments: Any) -> str:
    with pytest.raises(FlairNasError) as caught:
        load_text(source, **arguments)
    return str(caught.value)


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


class Sentences:
    """A part of a Flair corpus, by its shape; counts how often it is read, and calls `at` before each sentence."""

    def __init__(self, *lines: str, at: Any = lambda reading, number: None) -> None:
        self.lines, self.at, self.readings = lines, at, 0

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, number: int) -> list[SimpleNamespace]:
        self.readings += number == 0
        self.at(self.readings, number)
        return [SimpleNamespace(text=word) for word in self.lines[number].split(" ") if word]


def flair_corpus(train: Sentences, dev: Sentences | None = None, test: Sentences | None = None) -> SimpleNamespace:
    return SimpleNamespace(train=train, dev=Sentences("a b") if dev is None else dev, test=test, name="/cache/mine")


# --- what a text becomes ---


def test_a_folder_of_three_parts(tmp_path: Path) -> None:
    corpus = load_text(folder_of(tmp_path / "pets", train=TRAIN, valid=VALID, test="a dog saw\n"))
    assert corpus.name == "pets"
    assert corpus.vocabulary == Vocabulary(("the", "dog", END, "cat", "saw", "ran", UNKNOWN), (3, 2, 2, 1, 1, 1, 0))
    assert words_of(corpus, "train") == ["the", "cat", "saw", "the", "dog", END, "the", "dog", "ran", END]
    assert words_of(corpus, "valid") == ["the", UNKNOWN, "ran", END]
    assert words_of(corpus, "test") == [UNKNOWN, "dog", "saw", END]
    assert corpus.vocabulary.index("dog") == 1 and corpus.vocabulary.index("bird") == 6 and len(corpus.vocabulary) == 7
    for part in (corpus.train, corpus.valid, corpus.test):
        assert isinstance(part, np.memmap) and part.dtype == np.int32
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 1


def test_empty_lines_count_as_in_the_code_of_the_field(tmp_path: Path) -> None:
    corpus = load_text(folder_of(tmp_path, train=f"\n = A = \n\n b  c\r\n<eos> d {UNKNOWN}", valid=VALID))
    assert words_of(corpus, "train") == [END, "=", "A", "=", END, END, "b", "c", END, END, "d", UNKNOWN, END]
    assert words_of(corpus, "train") == plainly_read(tmp_path / "train.txt")


TRICKY = st.text(alphabet=st.sampled_from(list("aab \t\n\n\r\x0b\x1c\x85\u00a0\u2028éß漢𝄞")), max_size=60)
WORDS = st.sampled_from(["a", "b", "c", "dd", "é", "Σ", "<unk>", "<eos>", "\n", "\n"])
TEXTS = st.lists(WORDS, max_size=60).map(" ".join)


@settings(max_examples=60)
@given(tricky=TRICKY, ending=st.sampled_from(["", "\n", "\r", " "]), mark=st.booleans(), size=st.integers(1, 9))
def test_ids_give_the_words_back_wherever_the_reading_is_cut(tricky: str, ending: str, mark: bool, size: int) -> None:
    with tempfile.TemporaryDirectory() as name, mock.patch.object(sources, "_PIECE", size):
        folder = folder_of(Path(name), train="\ufeff" * mark + "x y " + tricky + ending, valid=VALID)
        with mock.patch.object(corpus_module, "_BLOCK", size):
            corpus = load_text(folder)
        assert words_of(corpus, "train") == plainly_read(folder / "train.txt")


@settings(max_examples=60)
@given(
    train=TEXTS,
    valid=TEXTS,
    size=st.one_of(st.none(), st.integers(4, 8)),
    least=st.integers(1, 3),
    lowercase=st.booleans(),
)
def test_the_vocabulary_is_what_counting_gives(
    train: str, valid: str, size: int | None, least: int, lowercase: bool
) -> None:
    train = "x y x y x y Z " + train
    with tempfile.TemporaryDirectory() as name:
        folder = folder_of(Path(name), train=train, valid="x " + valid)
        corpus = load_text(folder, vocabulary_size=size, min_count=least, lowercase=lowercase)
        plain = {part: plainly_read(folder / f"{part}.txt") for part in ("train", "valid")}
    if lowercase:
        plain = {part: [word.lower() for word in words] for part, words in plain.items()}
    counted = Counter(word for word in plain["train"] if word not in (UNKNOWN, END))
    kept = {word for word, count in counted.most_common(size and size - 2) if count >= least} | {END}
    mapped = {part: [word if word in kept else UNKNOWN for word in words] for part, words in plain.items()}
    expected = Counter(mapped["train"])
    expected[UNKNOWN] += 0
    assert list(zip(corpus.vocabulary.words, corpus.vocabulary.counts)) == expected.most_common()
    assert {part: words_of(corpus, part) for part in mapped} == mapped
    assert size is None or len(corpus.vocabulary) <= size


@pytest.mark.slow
@pytest.mark.parametrize("line", ["abcdefghi " * 1_050_000, "ab c" + "d" * 10_000_000], ids=["words", "one word"])
def test_a_line_of_10_mb(tmp_path: Path, line: str) -> None:
    corpus = load_text(folder_of(tmp_path, train=f"c {line}\nlast\n", valid=VALID))
    assert len(corpus.train) == len(line.split()) + 4
    assert words_of(corpus, "train")[-3:] == [END, "last", END]


# --- where text is found ---


@pytest.mark.parametrize(
    "names",
    [
        ("train.txt", "valid.txt", "test.txt"),
        ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"),
        ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"),
        ("train", "dev", "test"),
        ("my-TRAIN.tok", "my-validation.tok", "my-test.tok"),
        ("train.txt.gz", "dev.txt.gz", "test.txt"),
        ("en_train_v2.gz", "en_val_v2", "en_test_v2"),
    ],
)
def test_parts_are_told_by_their_names(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name, text in zip(names, (TRAIN, "the cat\n", "a dog\n"), strict=True):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    (tmp_path / "README.md").write_text("pretrained latest contest")
    (tmp_path / ".train.txt.swp").write_text("of an editor")
    (tmp_path / "training").mkdir()
    corpus = load_text(str(tmp_path))
    assert len(corpus.train) == 10
    assert words_of(corpus, "valid") == ["the", "cat", END] and words_of(corpus, "test") == [UNKNOWN, "dog", END]


def test_a_packed_file_without_its_suffix_is_told_by_its_bytes(tmp_path: Path) -> None:
    folder_of(tmp_path, valid=VALID)
    (tmp_path / "train.txt").write_bytes(gzip.compress(TRAIN.encode()) + gzip.compress(b"one more\n"))
    assert len(load_text(tmp_path).train) == 13


def test_files_by_part(tmp_path: Path) -> None:
    folder_of(tmp_path, a=TRAIN, b=VALID, c="a dog\n")
    files = {"train": tmp_path / "a.txt", "valid": str(tmp_path / "b.txt"), "test": None}
    corpus = load_text(files)
    assert corpus.test is None and len(corpus.valid) == 4 and corpus.name == "a"
    written = f"train={tmp_path}/a.txt, valid={tmp_path}/b.txt,test={tmp_path}/c.txt"
    assert words_of(load_text(written), "test") == [UNKNOWN, "dog", END]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("train=a.txt,dev=b.txt", "the parts are train, valid, test; got train, dev"),
        ("train=a.txt,train=b.txt", "at most once"),
        ("valid=a.txt", "train is needed"),
        ("train=absent.txt", "absent.txt: this file cannot be read (No such file"),
        ({"train": "a", "dev": "b"}, "the parts are train, valid, test; got train, dev"),
        ("absent", "'absent': there is no such folder or file"),
        ("", "no text: give a folder"),
        (["train.txt"], "a folder, a file, files by part or a Flair corpus, got list"),
    ],
)
def test_a_source_that_is_none(source: Any, wanted: str) -> None:
    assert wanted in error_of(source)


def test_a_folder_without_text_lists_what_is_there(tmp_path: Path) -> None:
    assert "the folder holds nothing" in error_of(tmp_path)
    folder_of(tmp_path, valid=VALID, notes="x")
    (tmp_path / "pets").mkdir()
    message = error_of(tmp_path)
    assert str(tmp_path) in message and "no file has 'train' in its name" in message
    assert "the folder holds notes.txt, pets/, valid.txt" in message


def test_demo_is_the_bundled_text_and_a_folder_of_that_name_is_given_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of(tmp_path / "demo", train=TRAIN, valid=VALID)
    monkeypatch.chdir(tmp_path)
    corpus = load_text("demo")
    bundled = resource_path("demo_text")
    for part, sentences in (("train", 1376), ("valid", 150), ("test", 150)):
        words = plainly_read(bundled / f"{part}.txt")
        known = [word if word in corpus.vocabulary.words else UNKNOWN for word in words]
        assert words_of(corpus, part) == known and words.count(END) == sentences
    assert corpus.name == "demo"
    for own in ("./demo", Path("demo"), tmp_path / "demo"):
        assert words_of(load_text(own), "train") == plainly_read(tmp_path / "demo" / "train.txt")
    assert "'dmo': there is no such folder or file; demo is the bundled text" in error_of("dmo")


def test_the_bundled_text_has_no_sentence_twice_and_none_of_the_demo_corpus() -> None:
    text = [line for part in ("train", "valid", "test") for line in lines_of(resource_path("demo_text", f"{part}.txt"))]
    assert len({line.lower() for line in text}) == len(text) and all(line == " ".join(line.split()) for line in text)
    for part in ("train", "dev", "test"):
        rows = resource_path("demo", f"{part}.txt").read_text(encoding="utf-8").strip().split("\n\n")
        tagged = {" ".join(row.split()[0] for row in block.splitlines()).lower() for block in rows}
        assert len(tagged) > 70 and not tagged & {line.lower() for line in text}


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_files_that_could_be_the_same_part_are_named(tmp_path: Path) -> None:
    folder_of(tmp_path, train=TRAIN, valid=VALID, dev=VALID)
    assert "several files could be the dev part (dev.txt, valid.txt)" in error_of(tmp_path)
    (tmp_path / "dev.txt").rename(tmp_path / "test.valid.txt")
    message = error_of(tmp_path)
    assert "test.valid.txt: the name could mean dev or test; rename the file" in message


# --- the valid part ---


def test_a_missing_valid_part_is_refused_unless_a_share_is_given(tmp_path: Path) -> None:
    train = "".join(f"w{i} x\n" for i in range(20))
    folder_of(tmp_path, train=train)
    for source in (tmp_path, tmp_path / "train.txt"):
        message = error_of(source)
        assert f"{tmp_path / 'train.txt'}: there is no valid part" in message and "valid_share: 0.1" in message
        corpus = load_text(source, valid_share=0.1)
        assert words_of(corpus, "train") == [word for i in range(18) for word in (f"w{i}", "x", END)]
        assert words_of(corpus, "valid") == [UNKNOWN, "x", END] * 2
        assert sum(corpus.vocabulary.counts) == 54 and corpus.vocabulary.index("w18") == corpus.vocabulary.index("?")


@settings(max_examples=40)
@given(text=TEXTS, share=st.floats(0.01, 0.99), size=st.integers(1, 9))
def test_the_share_is_of_the_last_lines(text: str, share: float, size: int) -> None:
    with tempfile.TemporaryDirectory() as name, mock.patch.object(sources, "_PIECE", size):
        file = folder_of(Path(name), text=f"x y <eos>\n{text}\nx\n") / "text.txt"
        corpus = load_text(file, valid_share=share)
        lines = file.read_text().count("\n")
        with open(file) as stream:
            count = min(max(round(share * lines), 1), lines - 1)
            plain = [[*line.split(), END] for line in stream]
    mapped = [word for line in plain[-count:] for word in line]
    assert words_of(corpus, "train") == [word for line in plain[:-count] for word in line]
    assert words_of(corpus, "valid") == [w if w in words_of(corpus, "train") else UNKNOWN for w in mapped]


def test_the_share_of_a_text_of_one_line_is_of_its_words(tmp_path: Path) -> None:
    corpus = load_text(folder_of(tmp_path, text="a b " * 50) / "text.txt", valid_share=0.1)
    assert (len(corpus.train), len(corpus.valid)) == (91, 10)


def test_a_share_beside_a_valid_part_is_refused(tmp_path: Path) -> None:
    assert "valid.txt" in error_of(folder_of(tmp_path, train=TRAIN, valid=VALID), valid_share=0.1)


def test_lines_without_words_are_no_valid_part(tmp_path: Path) -> None:
    file = folder_of(tmp_path, text=TRAIN + "\n\n\n") / "text.txt"
    assert "text.txt: there are no words in the last 50 % of the lines" in error_of(file, valid_share=0.5)
    folder_of(tmp_path, text="\n\n\n" + TRAIN)
    assert "no words before the last 50 % of the lines" in error_of(file, valid_share=0.5)


def test_train_and_valid_of_the_same_words_are_remarked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    load_text(folder_of(tmp_path, train=TRAIN, valid=TRAIN))
    assert "are the same text" in caplog.text


# --- remarks ---


@pytest.mark.parametrize(
    ("valid", "shares"),
    [("the cat ran\n\n", (0, 0)), (f"the {UNKNOWN} ran bird\n", (0, 0.5)), ("un ave <eos>\n", (0, 1))],
)
def test_the_share_of_unknown_words_is_counted_and_a_large_one_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, valid: str, shares: tuple[float, float]
) -> None:
    caplog.set_level("INFO", logger="flair_nas")
    corpus = load_text(folder_of(tmp_path / "birds", train=TRAIN, valid=valid))
    assert corpus.unknown_shares == dict(zip(("train", "valid"), shares))
    records = [record for record in caplog.records if "stands for" in record.getMessage()]
    assert len(records) == bool(shares[1])  # none is no news
    if not records:
        return
    (record,) = records
    said = f"birds: <unk> stands for 0.0 % of the words of train, {100 * shares[1]:.1f} % of the words of valid"
    assert record.getMessage().startswith(said)
    assert record.levelname == ("WARNING" if shares[1] > 0.2 else "INFO")


def test_words_beyond_the_vocabulary_count_as_those_that_are_written_unknown(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, train=f"a a a b b c {UNKNOWN} d\n", valid="a e\n", test="c d\n")
    assert load_text(folder).unknown_shares == {"train": 1 / 8, "valid": 1 / 2, "test": 0}
    assert load_text(folder, min_count=2).unknown_shares == {"train": 3 / 8, "valid": 1 / 2, "test": 1}


@pytest.mark.parametrize(
    ("line", "warned"),
    [
        ("今天公园很好我们去上海喜欢老师读书天气", True),
        ("今天 公园 很 好 我们 去 上海", False),
        ("สวัสดีครับวันนี้อากาศดีมาก ผมไปโรงเรียนกับเพื่อนของผม", True),
        ("Donaudampfschifffahrtsgesellschaft ist ein sehr langes Wort , die meisten sind kurz .", False),
        ("word", True),  # a column file, a word a line
        ("a b", False),
    ],
)
def test_text_with_almost_no_blanks_is_warned_of_also_when_it_is_in_the_cache(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str, warned: bool
) -> None:
    folder = folder_of(tmp_path, train="".join(f"{line} {n}\n{line}\n{n}{line}\n" for n in range(5)), valid=line)
    for _ in range(2):
        caplog.clear()
        load_text(folder)
        assert ("almost no blanks" in caplog.text) is warned


# --- bad text ---


@pytest.mark.parametrize("part", ["train", "valid", "test"])
@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"", ": the file is empty (0 bytes)"),
        (b"\n \n\n", ": the text holds no words"),
        (b"\xef\xbb\xbf", ": the text holds no words"),
        (b"good\ngo\xf6d\n", ":2: not UTF-8 (byte 0xf6"),
        (b"good\r\n\xe6\xbc", ":2: not UTF-8 (byte 0xe6)"),
        ("good\n".encode("utf-16"), ":1: not UTF-8 but UTF-16; convert it"),
        ("größer\n".encode() + b"gr\xf6\xdfer\xff\n", ":2: not UTF-8 (byte 0xf6), broken lines: 2; correct them"),
        (b"a b\nc\0d\n", ":2: a NUL byte, so this is no plain text"),
        (b"line\n" * 300_000 + b"\xff", ":300001: not UTF-8"),
        (b"line\n" * 300_000 + b"\0", ":300001: a NUL byte"),
    ],
)
def test_text_that_is_none(tmp_path: Path, cache: Path, part: str, data: bytes, wanted: str) -> None:
    folder_of(tmp_path, train=TRAIN, valid=VALID, test=VALID)
    (tmp_path / f"{part}.txt").write_bytes(data)
    assert f"{tmp_path / part}.txt{wanted}" in error_of(tmp_path)
    assert files_below(cache / "text") == []


@pytest.mark.parametrize("name", ["train.txt.gz", "train.txt"])
@pytest.mark.parametrize("damage", ["cut", "changed", "rubbish after"])
def test_a_damaged_gz_file(tmp_path: Path, cache: Path, name: str, damage: str) -> None:
    folder_of(tmp_path, valid=VALID)
    packed = bytearray(gzip.compress(TRAIN.encode() * 99))
    if damage == "cut":
        packed = packed[:-12]
    elif damage == "changed":
        packed[len(packed) // 2] ^= 255
    else:
        packed += b"rubbish"
    (tmp_path / name).write_bytes(packed)
    message = error_of(tmp_path)
    assert f"{tmp_path / name}: this .gz file is damaged or cut short" in message
    assert files_below(cache / "text") == []


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file that root cannot read either is one of Linux")
def test_an_unreadable_file(tmp_path: Path) -> None:
    folder_of(tmp_path, valid=VALID)
    (tmp_path / "train.txt").symlink_to("/proc/self/mem")
    assert "train.txt: this file cannot be read (Input/output error)" in error_of(tmp_path)
    (tmp_path / "train.txt").unlink()
    (tmp_path / "train.txt").symlink_to(tmp_path / "absent")
    assert "train.txt: this file cannot be read (No such file" in error_of(tmp_path)
    (tmp_path / "train.txt").unlink()
    os.mkfifo(tmp_path / "train.txt")
    assert "no regular file" in error_of(tmp_path)


def test_a_file_that_changes_while_it_is_read(tmp_path: Path, cache: Path) -> None:
    folder = folder_of(tmp_path, train=TRAIN, valid=VALID)
    found = sources.find_text(folder)
    with mock.patch.object(corpus_module, "find_text", return_value=found):
        folder_of(tmp_path, train=TRAIN + "and more\n")
        assert "train.txt: the text changed while it was read" in error_of(folder)
    assert files_below(cache / "text") == []


def test_a_flair_corpus_that_changes_while_it_is_read(cache: Path) -> None:
    def change(reading: int, number: int) -> None:
        train.lines = ("a b", "c d e") if reading == 2 else ("a b", "c d")

    train = Sentences("a b", "c d", at=change)
    assert "the Flair corpus' train part: the text changed while it was read" in error_of(flair_corpus(train))
    assert files_below(cache / "text") == []


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a a a\na\n", {}),
        (f"a {UNKNOWN} {END}\n", {}),
        (f"{UNKNOWN} {END}\n", {}),
        ("a a a b b c\n", {"min_count": 3}),
    ],
)
def test_a_vocabulary_of_one_word(tmp_path: Path, cache: Path, text: str, options: dict[str, Any]) -> None:
    message = error_of(folder_of(tmp_path, train=text, valid="a b c\n"), **options)
    assert f"{tmp_path / 'train.txt'}: " in message and "nothing to predict" in message
    assert files_below(cache / "text") == []


def test_a_vocabulary_of_one_character(tmp_path: Path) -> None:
    message = error_of(folder_of(tmp_path, train=" \n \n", valid="a b\n"), unit="char", min_count=10)
    assert "of 1 different characters, 0 occur min_count = 10 times; give more text or a smaller min_count" in message
    message = error_of(folder_of(tmp_path, train="\n\n", valid="a b\n"), unit="char")
    assert "train.txt: the text holds no characters; give text" in message


# --- Flair ---


def test_a_flair_corpus_serves_as_text() -> None:
    train = Sentences("the cat", "", "the 10\u00a0000 dogs")
    corpus = load_text(flair_corpus(train, Sentences("a cat"), Sentences("the dogs")))
    assert corpus.name == "mine"
    assert words_of(corpus, "train") == ["the", "cat", END, END, "the", "10\u00a0000", "dogs", END]
    assert words_of(corpus, "valid") == [UNKNOWN, "cat", END] and words_of(corpus, "test") == ["the", "dogs", END]
    lower = load_text(flair_corpus(Sentences("The the CAT")), lowercase=True)
    assert words_of(lower, "train") == ["the", "the", "cat", END]


def test_flair_s_own_corpus() -> None:
    from flair.data import Corpus, Sentence
    from flair.datasets import FlairDatapointDataset

    parts = [FlairDatapointDataset([Sentence(text)]) for text in ("Ada saw Paris .", "Ada saw .", "Rome .")]
    corpus = load_text(Corpus(*parts, name="demo"))
    assert (corpus.name, words_of(corpus, "train")) == ("demo", ["Ada", "saw", "Paris", ".", END])
    assert words_of(corpus, "valid") == ["Ada", "saw", ".", END] and words_of(corpus, "test") == [UNKNOWN, ".", END]


def test_the_words_of_a_flair_corpus_are_its_fingerprint() -> None:
    lines = ("a b", "c d"), ("a b c", "d"), ("a b c d",), ("a b", "c d", ""), ("ab", "c d")
    prints = [load_text(flair_corpus(Sentences(*some, "e f"))).fingerprint for some in lines]
    assert len(set(prints)) == len(lines)
    assert load_text(flair_corpus(Sentences("a b", "c d", "e f"))).fingerprint == prints[0]


def test_a_flair_corpus_without_parts() -> None:
    assert "no train part" in error_of(SimpleNamespace(train=None, dev=Sentences("a"), test=None))
    assert "train part: the text holds no words" in error_of(flair_corpus(Sentences("", "")))
    assert "train part: a NUL character in the sentence 'a b" in error_of(flair_corpus(Sentences("a b\0")))
    missing = SimpleNamespace(train=Sentences("a b", "c d"), dev=None, test=None)
    assert "the Flair corpus' train part: there is no valid part" in error_of(missing)
    assert words_of(load_text(missing, valid_share=0.5), "train") == ["a", "b", END]


# --- the cache ---


def test_ids_are_made_once(tmp_path: Path, cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path, train=TRAIN, valid=VALID)
    first = load_text(folder, progress=True)
    assert "reading" in capfd.readouterr().err
    kept = cache / "text" / first.fingerprint
    before = {path: path.stat() for path in kept.iterdir()}
    second = load_text(folder, progress=True)
    assert capfd.readouterr().err == ""
    after = {path: path.stat() for path in kept.iterdir()}
    assert {p: (s.st_ino, s.st_mtime_ns) for p, s in before.items()} == {
        p: (s.st_ino, s.st_mtime_ns) for p, s in after.items()
    }
    assert words_of(first, "train") == words_of(second, "train") and first.vocabulary == second.vocabulary
    train = Sentences("a b", "c")
    load_text(flair_corpus(train))
    assert train.readings == 2  # one for the fingerprint, one to write ids
    load_text(flair_corpus(train))
    assert train.readings == 3


def test_the_same_text_elsewhere_has_the_same_ids_and_its_own_name(tmp_path: Path) -> None:
    one = load_text(folder_of(tmp_path / "one", train=TRAIN, valid=VALID))
    two = load_text(folder_of(tmp_path / "two", train=TRAIN, valid=VALID))
    assert (one.name, two.name) == ("one", "two") and one.fingerprint == two.fingerprint
    assert one.train.filename == two.train.filename


def test_ids_of_another_text_are_not_taken(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, train=TRAIN, valid=VALID)
    first = load_text(folder)
    times = (folder / "train.txt").stat()
    folder_of(tmp_path, train=TRAIN.replace("cat", "cow"))
    os.utime(folder / "train.txt", ns=(times.st_atime_ns, times.st_mtime_ns))  # nothing but the bytes tells
    second = load_text(folder)
    assert "cow" in words_of(second, "train") and first.fingerprint != second.fingerprint
    other = [
        load_text(folder, vocabulary_size=5),
        load_text(folder, min_count=2),
        load_text(folder, lowercase=True),
        load_text({"train": folder / "valid.txt", "valid": folder / "train.txt"}),
        load_text({"train": folder / "train.txt"}, valid_share=0.5),
    ]
    assert len({second.fingerprint, *(corpus.fingerprint for corpus in other)}) == 6


def test_where_the_cache_is(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = folder_of(tmp_path / "text", train=TRAIN, valid=VALID)
    given_folder, home = tmp_path / "given", tmp_path / "home"
    kept = f"text/{load_text(text, cache=given_folder).fingerprint}/ids.bin"
    assert (given_folder / kept).exists() and files_below(cache) == []
    load_text(text)
    assert (cache / kept).exists()
    monkeypatch.delenv("FLAIR_NAS_CACHE")
    monkeypatch.setenv("HOME", str(home))
    load_text(text)
    assert (home / ".cache/flair-nas" / kept).exists()


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    text = folder_of(tmp_path / "text", train=TRAIN, valid=VALID)
    message = error_of(text, cache=text / "train.txt")
    assert f"{text / 'train.txt' / 'text'}: cannot write to this cache" in message and "FLAIR_NAS_CACHE" in message


def damage_other_text(folder: Path) -> None:
    other = load_text(flair_corpus(Sentences("of another text"))).fingerprint
    shutil.rmtree(folder)
    shutil.copytree(folder.parent / other, folder)


def damage_folder_is_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("?")


def damage_a_byte_of(name: str) -> Any:
    def damage(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / name).write_bytes(data)

    return damage


DAMAGES = {
    "ids cut short": lambda folder: os.truncate(folder / "ids.bin", 20),
    "ids changed": damage_a_byte_of("ids.bin"),
    "manifest changed": damage_a_byte_of("corpus.json"),
    "manifest is a list": lambda folder: (folder / "corpus.json").write_text("[1]"),
    "another text": damage_other_text,
    "a file": damage_folder_is_a_file,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_cache_is_made_again(
    tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    folder = folder_of(tmp_path, train=TRAIN, valid="the dog ran\n")
    first = load_text(folder)
    kept = cache / "text" / first.fingerprint
    good, words = (kept / "ids.bin").read_bytes(), words_of(first, "train")
    damage(kept)
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="flair_nas"):
        second = load_text(folder)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{kept}: this cache of token ids is damaged (" in caplog.text
    assert words_of(second, "train") == words and second.vocabulary == first.vocabulary
    assert (kept / "ids.bin").read_bytes() == good
    caplog.clear()
    load_text(folder)
    assert caplog.text == ""


def test_a_damaged_cache_that_cannot_be_removed(tmp_path: Path, cache: Path) -> None:
    folder = folder_of(tmp_path, train=TRAIN, valid=VALID)
    kept = cache / "text" / load_text(folder).fingerprint
    os.truncate(kept / "ids.bin", 20)
    with mock.patch.object(shutil, "rmtree"):  # as for the folder of another user
        message = error_of(folder)
    assert f"{kept}: this cache of token ids is damaged (ids.bin has 20 bytes, not 56) and cannot be removed" in message
    assert len(load_text(folder).train) == 10


def test_an_interrupted_build_leaves_nothing(cache: Path) -> None:
    def stop(reading: int, number: int) -> None:
        if reading == 2 and number == 1:
            assert len(files_below(cache / "text")) > 1  # something had been begun
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_text(flair_corpus(Sentences("a b", "c d", at=stop)))
    assert files_below(cache / "text") == []
    assert len(load_text(flair_corpus(Sentences("a b", "c d"))).train) == 6


@pytest.mark.slow
def test_a_full_disk_is_told_in_plain_words(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = flair_corpus(Sentences(*["a b c d e f g h"] * 20_000))
    with full_disk(100_000), pytest.raises(OSError, match="no room for the token ids") as caught:
        load_text(corpus)
    assert caught.value.errno == errno.ENOSPC and str(cache) in caught.value.filename
    assert files_below(cache / "text") == []
    assert len(load_text(corpus).train) == 180_000


# Loads a Flair-like corpus; on its second reading, which writes the ids, says so and waits if it was told to.
BUILDER = """
import logging, os, sys, time
from pathlib import Path
from types import SimpleNamespace
from flair_nas.language_model.text.corpus import load_text
logging.basicConfig(level=logging.INFO, format="%(message)s")
what, folder = sys.argv[1], Path(sys.argv[2])
class Sentences(list):
    readings = 0
    def __getitem__(self, number):
        self.readings += number == 0
        if self.readings == 2 and number == 3:
            (folder / f"{what}-builds").touch()
            while what == "waits" and not (folder / "go").exists():
                time.sleep(0.005)
        return [SimpleNamespace(text=word) for word in super().__getitem__(number).split()]
train = Sentences(["a b c", "d e"] * 10_000)
corpus = load_text(SimpleNamespace(train=train, dev=Sentences(["a b"]), test=None), cache=folder)
print(train.readings, len(corpus.train), corpus.train.filename, os.stat(corpus.train.filename).st_ino)
"""


def start_builder(what: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER, what, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_of_two_processes_one_builds_and_both_load(tmp_path: Path) -> None:
    with start_builder("waits", tmp_path) as first:
        for _ in range(2000):
            if (tmp_path / "waits-builds").exists():
                break
            time.sleep(0.01)
        with start_builder("second", tmp_path) as second:
            assert second.stderr is not None
            assert "waiting for another process" in second.stderr.readline()
            (tmp_path / "go").touch()
            assert first.communicate(timeout=60)[0].split()[:2] == ["2", "70000"]
            out = second.communicate(timeout=60)[0].split()
    assert out[:2] == ["1", "70000"]  # read for the fingerprint alone
    assert [path.name for path in (tmp_path / "text").iterdir()] == [Path(out[2]).parent.name]


def test_where_there_are_no_locks_ids_are_made_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)

    def another_is_faster(reading: int, number: int) -> None:
        if reading == 2 and number == 0:
            load_text(flair_corpus(Sentences("a b", "c d")), cache=tmp_path)

    corpus = load_text(flair_corpus(Sentences("a b", "c d", at=another_is_faster)), cache=tmp_path)
    assert words_of(corpus, "train") == ["a", "b", END, "c", "d", END]
    assert [path.name for path in (tmp_path / "text").iterdir()] == [corpus.fingerprint]


def test_neither_torch_nor_flair_is_imported(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, train=TRAIN, valid=VALID)
    code = "import sys; from flair_nas.language_model.text.corpus import load_text; load_text(sys.argv[1])\n"
    code += "assert not {'torch', 'flair'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)


# --- batches ---


@settings(deadline=None)
@given(tokens=st.integers(0, 60), batch_size=st.integers(1, 30))
def test_columns_are_contiguous_pieces(tokens: int, batch_size: int) -> None:
    ids = np.arange(100, 100 + tokens, dtype=np.int32)
    if tokens < 2 * batch_size:
        with pytest.raises(FlairNasError) as caught:
            batchify(ids, batch_size)
        assert f"{tokens} tokens are too few for {batch_size} columns" in str(caught.value)
        assert str(caught.value).endswith(f"batch_size {tokens // 2} at most") is (tokens > 1)
        return
    batches = batchify(ids, batch_size)
    steps = tokens // batch_size
    assert batches.shape == (steps, batch_size) and batches.is_contiguous() and str(batches.dtype) == "torch.int64"
    flat = list(itertools.chain.from_iterable(batches.T.tolist()))
    assert flat == list(range(100, 100 + steps * batch_size))


# --- characters ---


def test_characters_are_tokens_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("Ab b\r\n\nbä😊 a", encoding="utf-8")
    (tmp_path / "valid.txt").write_text("a z\n", encoding="utf-8")
    corpus = load_text(tmp_path, unit="char", lowercase=True)
    words = corpus.vocabulary.words
    assert [words[number] for number in corpus.train] == [*"ab b", END, END, *"bä😊 a", END]
    assert [words[number] for number in corpus.valid] == ["a", " ", UNKNOWN, END]
    assert corpus.fingerprint != load_text(tmp_path, lowercase=True).fingerprint


def test_characters_of_a_flair_corpus_are_those_of_its_sentences() -> None:
    sentences = [[SimpleNamespace(text=word) for word in text.split()] for text in ("Ada sang .", "so")]
    corpus = load_text(SimpleNamespace(train=sentences, dev=sentences[1:], test=None), unit="char")
    words = corpus.vocabulary.words
    assert [words[number] for number in corpus.train] == [*"Ada sang .", END, *"so", END]


def test_unknown_characters_are_called_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "train.txt").write_text("ab ab\n")
    (tmp_path / "valid.txt").write_text("xy\n")
    load_text(tmp_path, unit="char")
    assert "100.0 % of the characters of valid" in caplog.text and "almost no blanks" not in caplog.text


def test_a_single_file_may_have_words_of_several_parts_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "train_dev.txt").write_text("a b a\n" * 50, encoding="utf-8")
    text = load_text(tmp_path / "train_dev.txt", valid_share=0.2, cache=tmp_path / "cache")
    assert text.name == tmp_path.name
