"""Corpora for tagging: known ones, the demo, and folders of column files."""

from __future__ import annotations

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import flair
from flair.data import Corpus, Sentence, Token, _iter_dataset
from flair.datasets import CONLL_2000, WNUT_17
from torch.utils.data import Dataset

from flair_nas.errors import FlairNasError, brief, did_you_mean, listed, shown
from flair_nas.storage.paths import siblings, typed, user_path
from flair_nas.storage.resources import resource_path
from flair_nas.tagging.data.column_files import check_columns, pick_label_type, read_part
from flair_nas.tagging.data.column_rows import count_columns
from flair_nas.tagging.quiet import no_flair_remarks

log = logging.getLogger("flair_nas")

# Flair splits a missing dev part off with the global random state, so that every training seed would get another one.
SPLIT_SEED = 0
_LONG = 1000  # tokens of a sentence
_LOOKED_AT = 1000  # sentences, to see whether words are words


class TaggingCorpus(NamedTuple):
    """A corpus and what is tagged in it.

    Args:
        corpus: Flair's corpus; `test` is None where the folder has no test file.
        label_type: the name of the label column, as Flair's taggers want it.
        name: the known name, or the folder's own.
        sha256: digest of the words and labels of all parts, to tell whether the corpus is still the same.
    """

    corpus: Corpus
    label_type: str
    name: str
    sha256: str


class _KnownCorpus(NamedTuple):
    """How Flair lays out a corpus that it knows: its columns, what is tagged, the files, and who can download them."""

    columns: Mapping[int, str]
    label_type: str
    files: tuple[str, ...]
    download: type[Corpus] | None
    origin: str


KNOWN = {
    "conll_03": _KnownCorpus(
        columns={0: "text", 1: "pos", 3: "ner"},
        label_type="ner",
        files=("eng.train", "eng.testa", "eng.testb"),
        download=None,
        origin="https://www.clips.uantwerpen.be/conll2003/ner/",
    ),
    "conll_2000": _KnownCorpus(
        columns={0: "text", 1: "pos", 2: "np"},
        label_type="np",
        files=("train.txt", "test.txt"),
        download=CONLL_2000,
        origin="https://www.clips.uantwerpen.be/conll2000/chunking/",
    ),
    "wnut_17": _KnownCorpus(
        columns={0: "text", 1: "ner"},
        label_type="ner",
        files=("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"),
        download=WNUT_17,
        origin="https://noisy-text.github.io/2017/files/",
    ),
}


NAMES = ("demo", *KNOWN)


class _Parts(NamedTuple):
    """The files of a folder by the part of the corpus that they hold."""

    train: Path | None
    dev: Path | None
    test: Path | None


def load_corpus(
    source: str,
    *,
    label_type: str | None = None,
    columns: Mapping[int, str] | None = None,
    delimiter: str | None = None,
    comment: str | None = None,
    data_root: str | Path | None = None,
) -> TaggingCorpus:
    """Load a corpus; the same call always gives the same train, dev and test parts, whatever the random state.

    Args:
        source: ``wnut_17``, ``conll_03``, ``conll_2000``, ``demo``, or a folder of column files (one token per line,
            columns parted by blanks or tabs, an empty line between sentences). In a folder, files are told by their
            names, as in Flair: `train`; `dev` or `testa`; `testb` or `test`.
        label_type: what to tag, a name from `columns`. Default: the corpus's own, the only column besides the text,
            or ``ner``.
        columns: column number, from 0, to name; one is ``text``. Default: the corpus's own; for a folder the first
            column is the text and the last one the label.
        delimiter: character or regular expression that parts columns. Default: tabs where every row has one, else
            blanks and tabs.
        comment: rows that begin with this are comments. Default: rows that begin with ``#`` and are no words.
        data_root: the folder that holds ``wnut_17/`` and so on. Default: ``datasets/`` in Flair's cache, where
            wnut_17 and conll_2000 are downloaded if they are missing.

    Returns:
        The corpus. Without a dev file, dev is a fixed tenth of train; without a test file, test is None.

    Raises:
        FlairNasError: there is no such corpus, files are missing or faulty, or nothing is labelled.
    """
    if source == "demo":
        folder, columns = resource_path("demo"), columns or {0: "text", 1: "ner"}
    elif source in KNOWN:
        folder, columns = _known_folder(source, data_root), columns or KNOWN[source].columns
        label_type = label_type or KNOWN[source].label_type
    else:
        folder = _given_folder(source)
    corpus, label_type = _read_folder(folder, columns, label_type, delimiter, comment)
    name = source if source in NAMES else folder.resolve().name
    corpus.name = name
    return TaggingCorpus(corpus, label_type, name, digest_of(corpus, label_type))


def describe_corpus(corpus: TaggingCorpus) -> None:
    """Logs what was read, and warns of what is probably a mistake."""
    parts = {name: sentences_of(getattr(corpus.corpus, name)) for name in ("train", "dev", "test")}
    counts = Counter(label.value for s in parts["train"] for label in s.get_labels(corpus.label_type))
    words = " ".join(token.text for token in parts["train"][0].tokens[:5])[:200]
    log.info(
        "%s: %s sentences (train, dev, test), beginning %r; %s: %s",
        *(corpus.name, ", ".join(str(len(part)) for part in parts.values()), words, corpus.label_type),
        listed([f"{label} {count:,}" for label, count in sorted(counts.items())]),
    )
    texts = [token.text for sentence in parts["train"][:_LOOKED_AT] for token in sentence.tokens]
    if sum(text.isdigit() for text in texts) > len(texts) / 2:
        log.warning(
            "%s: more than half of its words are numbers; is this the column of words? Which is, columns says, as in "
            "--columns text=1,ner=3, counted from 0",
            corpus.name,
        )
    if ":" in (prefix := os.path.commonprefix(texts)) and len(set(texts)) > 1:
        log.warning("%s: every word begins with %r; if that is no part of the words, take it away", corpus.name, prefix)
    if (longest := max(map(len, parts["train"]))) > _LONG:
        log.warning(
            "%s: train has a sentence of %s tokens, and takes long and much memory for it; an empty line ends a "
            "sentence, is one missing?",
            *(corpus.name, f"{longest:,}"),
        )
    for name in ("dev", "test"):
        pairs = zip(parts[name], parts["train"])
        if len(parts[name]) == len(parts["train"]) and all(
            one.to_tokenized_string() == other.to_tokenized_string() for one, other in pairs
        ):
            log.warning("%s: %s is the same as train, so its figures say nothing", corpus.name, name)
    if corpus.corpus.test is None:
        log.warning("%s: no test file, so there will be no test figure", corpus.name)
    if once := [label for label, count in counts.items() if count == 1][:21]:  # `listed` shows 20; hints take time
        hints = [did_you_mean(label, [other for other in counts if other != label]).strip() for label in once]
        log.warning(
            "%s: train has a single example of %s, too little to learn from; is it spelt as it should be?",
            *(corpus.name, listed([f"{label} ({hint})" if hint else label for label, hint in zip(once, hints)])),
        )
    for name in ("dev", "test"):
        unseen = sorted(labels_of(parts[name], corpus.label_type) - counts.keys())
        if unseen:
            log.warning(
                "%s: %s occurs in %s and not in train: it cannot be learned and counts as missed",
                *(corpus.name, ", ".join(unseen), name),
            )


def digest_of(corpus: Corpus, label_type: str) -> str:
    """Of the words and labels of all parts."""
    digest = hashlib.sha256(label_type.encode())
    for part in (corpus.train, corpus.dev, corpus.test):
        digest.update(b"\0part")
        for sentence in sentences_of(part):
            digest.update("\0".join(["", *(token.text for token in sentence)]).encode())
            for label in sentence.get_labels(label_type):
                digest.update(f"\0{label.data_point.unlabeled_identifier}\0{label.value}".encode())
    return digest.hexdigest()


def labels_of(sentences: Iterable[Sentence], label_type: str) -> set[str]:
    """The labels of a type that occur in sentences."""
    return {label.value for sentence in sentences for label in sentence.get_labels(label_type)}


def sentences_of(dataset: Dataset | None) -> list[Sentence]:
    """The sentences of a part of a corpus; none when there is no such part."""
    return [] if dataset is None else list(_iter_dataset(dataset))


def _given_folder(source: str) -> Path:
    folder = user_path(source)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise FlairNasError(f"corpus {brief(source)} is a file; give the folder that holds train, dev and test files")
    near = {name: typed(Path(where)) for name, where in siblings(Path(source)).items() if Path(where).is_dir()}
    hint = did_you_mean(Path(source).name.replace("-", "_"), near | dict(zip(NAMES, NAMES)), count=2)
    raise FlairNasError(
        f"unknown corpus {brief(source)}: {hint}give one of {', '.join(NAMES)}, or a folder of column files; "
        f"there is no folder {folder.absolute()}"
    )


def _known_folder(name: str, data_root: str | Path | None) -> Path:
    """The folder of a corpus that Flair knows, downloaded by Flair where it can be."""
    known = KNOWN[name]
    root = user_path(data_root) if data_root is not None else flair.cache_root / "datasets"
    folder = root / name
    if _is_complete(folder, known):
        return folder
    files = ", ".join(known.files)
    cause = None
    # Flair downloads into its cache alone, whatever base_path says, so a data_root of the user's has to hold the files.
    if known.download is not None and data_root is None:
        try:
            known.download()
        except (OSError, EOFError, RuntimeError) as error:  # no network, a broken archive, an empty folder
            cause = error
        if _is_complete(folder, known):
            return folder
        why = f"could not be downloaded ({shown(cause)})" if cause else "could not be downloaded in full"
    else:
        why = "is not there"
    raise FlairNasError(
        f"corpus {name} {why}: looked in {folder}; put {files} there (from {known.origin}), "
        f"or give the data root: the folder that holds {name}/"
    ) from cause


def _is_complete(folder: Path, known: _KnownCorpus) -> bool:
    return folder.is_dir() and sum(part is not None for part in _find_parts(folder)) >= len(known.files)


def _find_parts(folder: Path) -> _Parts:
    """Tells files by their names as Flair does, but never by the order in which the file system lists them."""
    files = [f for f in sorted(folder.iterdir()) if f.is_file() and not {".gz", ".swp"} & set(f.suffixes)]

    def only(part: str, found: list[Path]) -> Path | None:
        if len(found) > 1:
            names = ", ".join(f.name for f in found)
            raise FlairNasError(f"{folder}: several files could be the {part} part ({names}); keep one of them here")
        return found[0] if found else None

    train = only("train", [f for f in files if "train" in f.name and "54019" not in f.name])
    dev = only("dev", [f for f in files if ("dev" in f.name or "testa" in f.name) and f != train])
    rest = [f for f in files if f not in (train, dev)]
    test = only("test", [f for f in rest if "testb" in f.name] or [f for f in rest if "test" in f.name])
    return _Parts(train, dev, test)


def _read_folder(
    folder: Path, columns: Mapping[int, str] | None, label_type: str | None, delimiter: str | None, comment: str | None
) -> tuple[Corpus, str]:
    """Read the parts of a corpus; return its label type, too."""
    files = _find_parts(folder)
    if files.train is None:
        there = ", ".join(sorted(f.name for f in folder.iterdir())) or "nothing"
        raise FlairNasError(f"{folder}: no file has 'train' in its name; the folder holds {there}")
    if columns is None:
        columns = {0: "text", count_columns(files.train, delimiter, comment) - 1: label_type or "ner"}
    check_columns(columns)
    label_type = pick_label_type(columns, label_type)

    train = read_part(files.train, columns, label_type, delimiter, comment)
    dev = read_part(files.dev, columns, label_type, delimiter, comment) if files.dev else None
    test = read_part(files.test, columns, label_type, delimiter, comment) if files.test else None
    level = is_token_level(train.datapoints, label_type)
    for file, part in ((files.dev, dev), (files.test, test)):
        if part is not None and {level, is_token_level(part.datapoints, label_type)} == {True, False}:
            kinds = ("spans", "tokens") if level else ("tokens", "spans")
            raise FlairNasError(
                f"{file}: its tags are of {kinds[0]}, those of {files.train} of {kinds[1]} (B- and I- mark spans); "
                "write all parts in one way"
            )
    label_types = sorted({name for sentence in train.datapoints for name in sentence.annotation_layers})
    if label_type not in label_types:
        raise FlairNasError(
            f"{files.train}: no sentence has a label of type {brief(label_type)}; label types there: "
            f"{', '.join(label_types) or 'none, as every label is O'}; choose another label type or column"
        )
    if level and len(tags := {t.get_label(label_type, "O").value for s in train.datapoints for t in s}) == 1:
        raise FlairNasError(
            f"{files.train}: every token has the {label_type} {tags.pop()!r}, so there is nothing to learn; is this "
            "the label column? Which is, columns says, as in --columns text=0,ner=3, counted from 0"
        )
    with no_flair_remarks("No dev split found"):  # which is said below, with the file names looked for
        corpus = Corpus(train, dev, test, sample_missing_splits="only_dev", random_seed=SPLIT_SEED)
    if dev is None:
        sampled = len(sentences_of(corpus.dev))
        if not sampled:
            raise FlairNasError(
                f"{folder}: {len(train)} training sentences are too few to split dev off; add a dev file"
            )
        unused = sorted(f.name for f in folder.iterdir() if f.is_file() and f not in files)
        log.warning(
            "%s: no file with 'dev' or 'testa' in its name%s, so dev is a fixed tenth of train (%d sentences)",
            *(folder, f" ({', '.join(unused)} passed over)" if unused else "", sampled),
        )
    return corpus, label_type


def is_token_level(sentences: Iterable[Sentence], label_type: str) -> bool | None:
    """Whether labels are of tokens, not of spans, by the first one; None when there are none."""
    labels = (label for sentence in sentences for label in sentence.get_labels(label_type))
    first = next(labels, None)
    return None if first is None else isinstance(first.data_point, Token)
