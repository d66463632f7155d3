"""Corpora of texts with classes, in the format of fastText and Flair's `ClassificationCorpus`."""

from __future__ import annotations

import io
from pathlib import Path

from flair.data import Corpus, Sentence
from flair.datasets import FlairDatapointDataset

from flair_nas.errors import FlairNasError, brief
from flair_nas.storage.paths import read_utf8, user_path
from flair_nas.tagging.data.corpora import TaggingCorpus, digest_of

LABEL = "__label__"
LABEL_TYPE = "class"


def load_classes(source: str | Path | Corpus[Sentence], label_type: str = LABEL_TYPE) -> TaggingCorpus:
    """Load a corpus of texts with one or more classes each.

    Args:
        source: a folder with ``train.txt``, ``dev.txt`` and an optional ``test.txt``, or a corpus of Flair. Each line
            is ``__label__NAME`` (more than once for several classes) and a text.
        label_type: the label type in Flair's corpus.

    Raises:
        FlairNasError: files are missing or faulty.
    """
    if isinstance(source, Corpus):
        return TaggingCorpus(source, label_type, source.name or "corpus", digest_of(source, label_type))
    folder = user_path(source)
    if not str(source) or not folder.is_dir():
        raise FlairNasError(f"corpus {brief(str(source))} is no folder: give one with train.txt and dev.txt in it")
    files = {part: folder / f"{part}.txt" for part in ("train", "dev", "test")}
    for part in ("train", "dev"):
        if not files[part].exists():
            raise FlairNasError(f"{folder} has no {part}.txt")
    train, dev, test = (_read(file) if file.exists() else None for file in files.values())
    corpus: Corpus[Sentence] = Corpus(train, dev, test, name=folder.resolve().name, sample_missing_splits=False)
    return TaggingCorpus(corpus, LABEL_TYPE, corpus.name, digest_of(corpus, LABEL_TYPE))


def _read(path: Path) -> FlairDatapointDataset[Sentence]:
    """Read one part. Flair's own reader drops lines without a blank, and misreads labels before several blanks."""
    lines = io.StringIO(read_utf8(path), newline=None)
    sentences = [_parse(line, f"{path}:{number}") for number, line in enumerate(lines, start=1) if line.strip()]
    if not sentences:
        raise FlairNasError(f"{path} is empty")
    return FlairDatapointDataset(sentences)


def _parse(line: str, where: str) -> Sentence:
    """Read a line of labels and a text."""
    labels, text = list[str](), line.strip()
    while text.startswith(LABEL):
        label, *rest = text.split(maxsplit=1)
        labels.append(label.removeprefix(LABEL))
        text = "".join(rest)
    sentence = Sentence(text) if text and labels and all(labels) else None
    if not sentence:
        raise FlairNasError(f"{where}: {brief(line.strip())} must be {LABEL}NAME and a text")
    if late := [word for word in text.split() if word.startswith(LABEL)]:
        raise FlairNasError(f"{where}: {brief(late[0])} is in the text; write all labels first")
    for label in dict.fromkeys(labels):
        sentence.add_label(LABEL_TYPE, label)
    return sentence
