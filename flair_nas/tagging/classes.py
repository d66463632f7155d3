"""Corpora of texts with classes, as Flair's `ClassificationCorpus` reads them."""

from __future__ import annotations

from pathlib import Path

from flair.data import Corpus
from flair.datasets import ClassificationCorpus

from flair_nas.errors import FlairNasError, brief
from flair_nas.paths import user_path
from flair_nas.tagging.corpora import TaggingCorpus, digest_of

LABEL = "__label__"
LABEL_TYPE = "class"


def load_classes(source: str | Path | Corpus, label_type: str = LABEL_TYPE) -> TaggingCorpus:
    """Loads a corpus of texts with one or more classes each.

    Args:
        source: a folder of ``train.txt``, ``dev.txt`` and, if there is one, ``test.txt``, in which each line is
            ``__label__NAME`` (more than once for several classes) and a text; or a corpus of Flair.
        label_type: of Flair's corpus.

    Raises:
        FlairNasError: files are missing or faulty.
    """
    if isinstance(source, Corpus):
        return TaggingCorpus(source, label_type, source.name or "corpus", digest_of(source, label_type))
    folder = user_path(source).resolve()  # a relative one Flair would take twice
    if not str(source) or not folder.is_dir():
        raise FlairNasError(f"corpus {brief(str(source))} is no folder: give one with train.txt and dev.txt in it")
    names = [part for part in ("train", "dev", "test") if (folder / f"{part}.txt").exists()]
    for part in ("train", "dev"):
        if part not in names:
            raise FlairNasError(f"{folder} has no {part}.txt")
    for part in names:
        _check(folder / f"{part}.txt")
    train, dev, test = (folder / f"{part}.txt" if part in names else None for part in ("train", "dev", "test"))
    corpus = ClassificationCorpus(folder, LABEL_TYPE, train, test, dev, memory_mode="full", sample_missing_splits=False)
    corpus.name = folder.name
    return TaggingCorpus(corpus, LABEL_TYPE, corpus.name, digest_of(corpus, LABEL_TYPE))


def _check(path: Path) -> None:
    """That each line has a class and a text; Flair leaves out those that have not."""
    count = 0
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                words = line.split()
                text = [word for word in words if not word.startswith(LABEL)]
                if words and (not words[0].startswith(LABEL) or not text):
                    raise FlairNasError(f"{path}:{number}: {brief(line.strip())} must be {LABEL}NAME and a text")
                count += bool(words)
    except UnicodeDecodeError as error:
        raise FlairNasError(f"{path} is not UTF-8: {error}") from None
    if not count:
        raise FlairNasError(f"{path} is empty")
