"""Corpora for tagging: published ones, the demo, and folders of column files."""

from __future__ import annotations

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import flair
from flair.data import Corpus, Sentence, Token, _iter_dataset
from flair.datasets import CONLL_2000, WNUT_17
from torch.utils.data import Dataset

from flair_nas.errors import FlairNasError, brief, listed, shown
from flair_nas.settings.fields import get_kinds
from flair_nas.storage.files import hash_data
from flair_nas.storage.parts import find_parts
from flair_nas.storage.paths import user_path
from flair_nas.storage.resources import resource_path
from flair_nas.tagging.config import NAMES, CorpusSettings, find_folder
from flair_nas.tagging.data.column_files import parse_columns, pick_columns, read_part
from flair_nas.tagging.data.column_rows import ColumnFormat
from flair_nas.tagging.quiet import no_flair_remarks

log = logging.getLogger("flair_nas")


class TaggingCorpus(NamedTuple):
    """A corpus and its label type."""

    corpus: Corpus[Sentence]  # Flair's; `test` is None if the folder has no test file
    label_type: str  # name of the label column, as Flair's taggers take it
    name: str  # the published name, or that of the folder
    sha256: str  # of the words and labels of all parts, by which a changed corpus is recognised
    taught: Any = None  # a `Taught`: sentences that teachers have labelled

    @property
    def fingerprint(self) -> str:
        """The digest of all that is learned from, by the name that it has for every kind of data."""
        return self.sha256 if self.taught is None else hash_data([self.sha256, self.taught.sha256])


class _KnownCorpus(NamedTuple):
    """The layout of a published corpus in Flair's cache, and Flair's class that downloads it."""

    columns: Mapping[int, str]  # the last one has the labels
    files: tuple[str, ...]
    download: type[Corpus[Sentence]] | None
    origin: str


KNOWN = {
    "conll_03": _KnownCorpus(
        columns={0: "text", 1: "pos", 3: "ner"},
        files=("eng.train", "eng.testa", "eng.testb"),
        download=None,
        origin="https://www.clips.uantwerpen.be/conll2003/ner/",
    ),
    "conll_2000": _KnownCorpus(
        columns={0: "text", 1: "pos", 2: "np"},
        files=("train.txt", "test.txt"),
        download=CONLL_2000,
        origin="https://www.clips.uantwerpen.be/conll2000/chunking/",
    ),
    "wnut_17": _KnownCorpus(
        columns={0: "text", 1: "ner"},
        files=("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        download=WNUT_17,
        origin="https://noisy-text.github.io/2017/files/",
    ),
}


def load_corpus(
    source: str | os.PathLike[str],
    *,
    label_type: str | None = None,
    columns: Mapping[int, str] | None = None,
    delimiter: str | None = None,
    comment: str | None = None,
    data_root: str | Path | None = None,
) -> TaggingCorpus:
    """Load a corpus, with the same train, dev and test parts whatever the random state.

    Args:
        source: ``wnut_17``, ``conll_03``, ``conll_2000``, ``demo``, or a folder of column files (one token per line,
            columns separated by blanks or tabs, an empty line between sentences). Words in file names tell the parts:
            train; dev, valid or testa; test or testb.
        label_type: the name of the label column. Default: the corpus's own, the only column besides the text, or
            ``ner``.
        columns: column number, from 0, to name; one is ``text``. Default: the corpus's own; in a folder, the first
            column is the text and the last one the label.
        delimiter: character or regular expression that separates columns. Default: tabs if every row has one, else
            blanks and tabs.
        comment: beginning of rows that are comments. Default: ``#`` in rows that are no words.
        data_root: the folder that holds ``wnut_17/`` and so on. Default: ``datasets/`` in Flair's cache, to which
            wnut_17 and conll_2000 are downloaded if they are missing.

    Returns:
        The corpus. Without a dev file, dev is a fixed tenth of train; without a test file, test is None.

    Raises:
        FlairNasError: there is no such corpus, files are missing or faulty, or nothing is labelled.

    Example:
        >>> from flair_nas import load_corpus
        >>> corpus = load_corpus("demo")
        >>> corpus.label_type, len(corpus.corpus.train)
        ('ner', 309)
    """
    if not isinstance(source, (str, os.PathLike)):
        raise FlairNasError(f"a corpus is a name or a folder, got {brief(source)}")
    source = os.fspath(source)
    if columns is not None and not (isinstance(columns, Mapping) and all(type(number) is int for number in columns)):
        raise FlairNasError(f"columns must map numbers to names, as {{0: 'text', 3: 'ner'}}, got {brief(columns)}")
    if source == "demo":
        folder, columns = resource_path("demo"), columns or {0: "text", 1: "ner"}
    elif source in KNOWN:
        folder, columns = _known_folder(source, data_root), columns or KNOWN[source].columns
        label_type = label_type or [*KNOWN[source].columns.values()][-1]
    else:
        folder = find_folder(source)
    corpus, label_type = _read_folder(folder, columns, label_type, ColumnFormat(delimiter, comment))
    corpus.name = source if source in NAMES else folder.resolve().name
    return TaggingCorpus(corpus, label_type, corpus.name, digest_of(corpus, label_type))


def load_corpus_of(config: CorpusSettings) -> TaggingCorpus:
    """Return the corpus that the settings name."""
    named = {name: getattr(config, name) for name in ("label_type", "data_root", *get_kinds(ColumnFormat))}
    return load_corpus(config.corpus, columns=parse_columns(config.columns) if config.columns else None, **named)


def describe_corpus(corpus: TaggingCorpus) -> None:
    """Log the sizes and labels of a corpus, and warn of probable mistakes."""
    parts = {name: sentences_of(getattr(corpus.corpus, name)) for name in ("train", "dev", "test")}
    counts = Counter(label.value for s in parts["train"] for label in s.get_labels(corpus.label_type))
    first = next((s for s in parts["train"] if not s.is_document_boundary), parts["train"][0])
    words = " ".join(token.text for token in first.tokens[:5])[:200]
    log.info(
        "%s: %s sentences (train, dev, test), beginning %r; %s: %s",
        *(corpus.name, ", ".join(str(len(part)) for part in parts.values()), words, corpus.label_type),
        listed([f"{label} {count:,}" for label, count in sorted(counts.items())]),
    )
    for fault in _find_oddities(parts, counts, corpus.label_type):
        log.warning("%s: %s", corpus.name, fault)


def _find_oddities(parts: Mapping[str, Sequence[Sentence]], counts: Counter[str], label_type: str) -> Iterator[str]:
    """Yield a sentence for each probable mistake in a corpus, from its parts and the counts of labels in train."""
    train = parts["train"]
    if not parts["test"]:
        yield "no test file, so there will be no test figure"
    if once := [label for label, count in counts.items() if count == 1]:
        yield f"train has a single example of {listed(once)}, too little to learn from; is it spelt as it should be?"
    for name in ("dev", "test"):
        pairs = zip(parts[name], train)
        if len(parts[name]) == len(train) and all(a.to_tokenized_string() == b.to_tokenized_string() for a, b in pairs):
            yield f"{name} is the same as train, so its figures say nothing"
        if unseen := sorted(labels_of(parts[name], label_type) - counts.keys()):
            yield f"{', '.join(unseen)} occurs in {name} and not in train: it cannot be learned and counts as missed"


def check_labelled(corpus: TaggingCorpus, part: str = "dev") -> None:
    """Refuse a part without a label: trainings, layers and cells are compared by its labels."""
    if not labels_of(sentences_of(getattr(corpus.corpus, part)), corpus.label_type):
        remedy = "; label some, or leave the dev file out: dev is then a tenth of train" if part == "dev" else ""
        fault = f"no {part} sentence has a label of type {corpus.label_type!r}, so nothing can be compared on it"
        raise FlairNasError(f"corpus {corpus.name}: {fault}{remedy}")


def digest_of(corpus: Corpus[Sentence], label_type: str) -> str:
    """Return the SHA-256 of the words and labels of all parts."""
    digest = hashlib.sha256(label_type.encode())
    for part in (corpus.train, corpus.dev, corpus.test):
        digest.update(b"\0part")
        for sentence in sentences_of(part):
            digest.update("\0".join(["", *(token.text for token in sentence)]).encode())
            for label in sentence.get_labels(label_type):
                digest.update(f"\0{label.data_point.unlabeled_identifier}\0{label.value}".encode())
    return digest.hexdigest()


def labels_of(sentences: Iterable[Sentence], label_type: str) -> set[str]:
    """Return the labels of a type that occur in sentences."""
    return {label.value for sentence in sentences for label in sentence.get_labels(label_type)}


def sentences_of(dataset: Dataset[Sentence] | None) -> list[Sentence]:
    """Return the sentences of a part of a corpus, or an empty list if there is no such part."""
    return [] if dataset is None else list(_iter_dataset(dataset))


def _known_folder(name: str, data_root: str | Path | None) -> Path:
    """Return the folder of a published corpus, after Flair has downloaded it if it can."""
    known = KNOWN[name]
    folder = (user_path(data_root) if data_root is not None else flair.cache_root / "datasets") / name
    cause, why = None, "is not there"
    # Flair downloads to its cache whatever its base_path, so a data_root of the user's has to hold the files
    if known.download is not None and data_root is None and not _is_complete(folder, known):
        try:
            known.download()
            why = "could not be downloaded in full"
        except (OSError, EOFError, RuntimeError) as error:  # no network, a broken archive, an empty folder
            cause, why = error, f"could not be downloaded ({shown(error)})"
    if _is_complete(folder, known):
        return folder
    raise FlairNasError(
        f"corpus {name} {why}: looked in {folder}; put {', '.join(known.files)} there (from {known.origin}), "
        f"or give the data root: the folder that holds {name}/"
    ) from cause


def _is_complete(folder: Path, known: _KnownCorpus) -> bool:
    return folder.is_dir() and len(_find_parts(folder)) >= len(known.files)


def _find_parts(folder: Path) -> dict[str, Path]:
    """Return the files of train, dev and test; packed files and those of editors are none."""
    return find_parts(file for file in folder.iterdir() if file.is_file() and file.suffix not in (".gz", ".swp"))


def _read_folder(
    folder: Path, columns: Mapping[int, str] | None, label_type: str | None, form: ColumnFormat
) -> tuple[Corpus[Sentence], str]:
    """Return the corpus in a folder, and its label type."""
    files = _find_parts(folder)
    if "train" not in files:
        there = ", ".join(sorted(f.name for f in folder.iterdir())) or "nothing"
        remedy = "call one train.txt; without a dev file, dev is a tenth of it"
        raise FlairNasError(f"{folder}: no file has 'train' in its name; the folder holds {there}; {remedy}")
    columns, label_type = pick_columns(files["train"], columns, label_type, form)
    parts = {part: read_part(file, columns, label_type, form) for part, file in files.items()}
    train = parts["train"].datapoints
    _check_labels(files["train"], train, label_type)
    level = is_token_level(train, label_type)
    for part, file in files.items():
        if {level, is_token_level(parts[part].datapoints, label_type)} == {True, False}:
            kinds = ("spans", "tokens") if level else ("tokens", "spans")
            others = f"those of {files['train']} of {kinds[1]} (B- and I- mark spans)"
            raise FlairNasError(f"{file}: its tags are of {kinds[0]}, {others}; write all parts in one way")
    with no_flair_remarks("No dev split found"):  # the warning below names the files
        dev, test = parts.get("dev"), parts.get("test")
        # by the global random state, each training seed would get another dev part
        corpus = Corpus(parts["train"], dev, test, sample_missing_splits="only_dev", random_seed=0)
    if "dev" not in files:
        sampled = len(sentences_of(corpus.dev))
        if not sampled:
            raise FlairNasError(f"{folder}: {len(train)} sentences are too few to split dev off; add a dev file")
        unused = sorted(f.name for f in folder.iterdir() if f.is_file() and f not in files.values())
        log.warning(
            "%s: no file with 'dev' or 'valid' in its name%s, so dev is a fixed tenth of train (%d sentences)",
            *(folder, f" ({', '.join(unused)} passed over)" if unused else "", sampled),
        )
    return corpus, label_type


def _check_labels(file: Path, sentences: Sequence[Sentence], label_type: str) -> None:
    """Refuse training sentences without labels of a type, or with one label for all tokens."""
    label_types = sorted({name for sentence in sentences for name in sentence.annotation_layers})
    if label_type not in label_types:
        raise FlairNasError(
            f"{file}: no sentence has a label of type {brief(label_type)}; label types there: "
            f"{', '.join(label_types) or 'none, as every label is O'}; choose another label type or column"
        )
    if not is_token_level(sentences, label_type):
        return
    if len(tags := {token.get_label(label_type, "O").value for sentence in sentences for token in sentence}) == 1:
        raise FlairNasError(
            f"{file}: every token has the {label_type} {tags.pop()!r}, so there is nothing to learn; is this the label "
            "column? Name it as in --columns text=0,ner=3, counted from 0"
        )


def is_token_level(sentences: Iterable[Sentence], label_type: str) -> bool | None:
    """Return True if labels are of tokens, False if of spans, by the first label, or None without labels."""
    first = next((label for sentence in sentences for label in sentence.get_labels(label_type)), None)
    return None if first is None else isinstance(first.data_point, Token)
