"""Sentences that teachers have labelled, in a folder from which students learn.

OUT/00000.npz, ...   words, and the likeliest tags of each with their probabilities, a thousand sentences each
OUT/targets.json     tags, teachers, text and counts; it is written last
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flair.data import Sentence
from flair.models import SequenceTagger
from tqdm import tqdm

from flair_nas.errors import FlairNasError, shown
from flair_nas.runtime.words import split_words
from flair_nas.storage.files import hash_data, hash_file, whole_file, write_text
from flair_nas.storage.paths import explain_not_utf8, read_file, user_path
from flair_nas.tagging.data.frozen_embeddings import describe_state
from flair_nas.tagging.distillation.teachers import Targets, annotate

log = logging.getLogger("flair_nas")

ABOUT = "targets.json"
CHUNK = 1000
"""Sentences of a file."""
LONG = 200
"""Words above which a line is left out: few of them are sentences."""
_MAX_BYTES = 10_000_000  # of targets.json


class Taught(NamedTuple):
    """Labelled sentences, and what is known of them."""

    sentences: list[tuple[Sentence, Targets]]
    names: list[str]  # of the tags
    sha256: str


def read_lines(text: str) -> Iterator[str]:
    """Yield the lines of a file, or of all files of a folder in the order of their names.

    Raises:
        FlairNasError: there is no such file, or one is not UTF-8.
    """
    path = user_path(text)
    if not path.exists():
        raise FlairNasError(f"text {path}: there is no such file or folder")
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    for file in files:
        with file.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    yield line.decode("utf-8").rstrip("\r\n")
                except UnicodeDecodeError:
                    raise FlairNasError(explain_not_utf8(file, [line], number)) from None


def write_targets(
    teachers: Sequence[SequenceTagger],
    text: str,
    names: Sequence[str],
    folder: Path,
    *,
    is_over: Callable[[], bool],
    progress: bool = False,
) -> dict[str, Any]:
    """Label a text, unless the folder has all of it, and return the contents of ``targets.json``.

    A stopped call goes on after the last whole file.

    Args:
        teachers: taggers that `load_tagger` returned.
        text: a file of raw text with a sentence a line, or a folder of such files.
        names: tags of the student.
        folder: the folder to write to.
        is_over: function that tells if there is no more time; it is asked before each file.
        progress: draw a progress bar.

    Raises:
        FlairNasError: the text is empty or cannot be read, or a file in the folder is of another text or teacher.
        OSError: a file cannot be written, or the disk is full.
    """
    if (folder / ABOUT).exists():
        return _read_about(folder)
    folder.mkdir(parents=True, exist_ok=True)
    counts = {"lines": 0, "empty": 0, "long": 0, "sentences": 0, "labelled": 0}

    def sentences() -> Iterator[list[str]]:
        for line in read_lines(text):
            words = [word.text for word in split_words(line)]
            counts["lines"] += 1
            counts["empty"] += not words
            counts["long"] += len(words) > LONG
            if 0 < len(words) <= LONG:
                yield words

    source, files, is_whole = sentences(), dict[str, str](), False
    who = hash_data(repr([describe_state(teacher.state_dict()) for teacher in teachers]))
    with tqdm(desc="teaching", unit="sentence", disable=not progress, leave=False) as bar:
        while some := [*islice(source, CHUNK)]:
            file, digest = folder / f"{len(files):05}.npz", hash_data([who, [*names], some])
            if not file.exists():
                if is_over():
                    break
                labelled = [Sentence(words) for words in some]
                _write(file, [*zip(labelled, annotate(teachers, labelled, names))], digest)
            elif _read_digest(file) != digest:
                raise FlairNasError(f"{file}: is of another text or teacher; give these back, or delete {folder}")
            files[file.name] = hash_file(file)
            counts["sentences"] += len(some)
            counts["labelled"] += _count_labelled(file, names.index("O") if "O" in names else -1)
            bar.update(len(some))
        else:
            is_whole = True
    if not counts["sentences"]:
        cause = "it has no words" if is_whole else "there was no time to label a thousand sentences; raise --budget"
        raise FlairNasError(f"text {text}: {cause}")
    about: dict[str, Any] = {"names": [*names], "text": text, "is_whole": is_whole, **counts, "files": files}
    about["sha256"] = hash_data(about)
    write_text(folder / ABOUT, json.dumps(about) + "\n")
    return about


def describe_targets(about: dict[str, Any]) -> str:
    """Return a sentence on what was labelled, and what was left out."""
    words = f"{about['text']}: teachers have labelled {about['sentences']:,} sentences"
    words += f", and found labels in {about['labelled']:,}"
    if not about["is_whole"]:
        words += "; there was no time for the rest"
    if about["long"]:
        words += f"; {about['long']:,} lines of more than {LONG} words are left out"
    return words


def read_targets(folder: str) -> Taught:
    """Read labelled sentences.

    Raises:
        FlairNasError: the folder is not whole, or a file has changed.
    """
    path = user_path(folder)
    about, pairs = _read_about(path), list[tuple[Sentence, Targets]]()
    for name, sha256 in about["files"].items():
        file = path / name
        if not file.exists() or hash_file(file) != sha256:
            raise FlairNasError(f"{file} is missing or damaged; give it back, or label the text again")
        with np.load(file) as data:
            ends = np.cumsum(data["lengths"])[:-1]
            words = np.split(np.array(data["words"].tobytes().decode("utf-8").split("\n"), object), ends)
            parts = np.split(data["tags"], ends), np.split(data["chances"], ends)
            pairs += [(Sentence([*own]), Targets(*two)) for own, *two in zip(words, *parts)]
    return Taught(pairs, about["names"], about["sha256"])


def _read_about(folder: Path) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads(read_file(folder / ABOUT, _MAX_BYTES))
        if about.pop("sha256") != (sha256 := hash_data(about)):
            raise ValueError("it has changed")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise FlairNasError(f"{folder}: no whole folder of labelled sentences ({shown(error)})") from None
    return about | {"sha256": sha256}


def _write(file: Path, pairs: Sequence[tuple[Sentence, Targets]], digest: str) -> None:
    words = "\n".join(token.text for sentence, _ in pairs for token in sentence)
    with whole_file(file) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(
            stream,
            source=np.frombuffer(digest.encode(), np.uint8),
            words=np.frombuffer(words.encode("utf-8"), np.uint8),
            lengths=np.array([len(sentence) for sentence, _ in pairs]),
            tags=np.concatenate([targets.tags for _, targets in pairs]),
            chances=np.concatenate([targets.chances for _, targets in pairs]),
        )


def _read_digest(file: Path) -> str:
    with np.load(file) as data:
        return str(data["source"].tobytes().decode())


def _count_labelled(file: Path, outside: int) -> int:
    """Return the number of sentences of a file with a word whose likeliest tag is not O."""
    with np.load(file) as data:
        starts = np.concatenate([[0], np.cumsum(data["lengths"])[:-1]])
        return int(np.logical_or.reduceat(data["tags"][:, 0] != outside, starts).sum())
