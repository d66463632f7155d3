"""Text as token ids: a vocabulary, and memory-mapped arrays that are made once for a text and settings.

A text has the parts train, valid and, if there is one, test. Words are what white space parts, and `END` follows the
last word of each line, also of an empty one, as in the language-model code of the field (PTB has no empty lines;
WikiText-103 has its 103,227,021 training tokens with them).

The ids of all parts are one file, ``CACHE/text/FINGERPRINT/ids.bin``, made in one pass over the text: each new word
gets the next number, numbers are written as they come, and are replaced by ids when the words are counted. Memory is
that of the words that differ, however long the text.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from flair_nas.errors import FlairNasError
from flair_nas.language_model.text.config import TextSettings
from flair_nas.language_model.text.sources import LINE_END, PARTS, Piece, Text, files_beside, find_text
from flair_nas.storage.cache import Kind, cached_folder
from flair_nas.storage.paths import typed

if TYPE_CHECKING:
    from torch import LongTensor

log = logging.getLogger("flair_nas")

UNKNOWN = "<unk>"
END = "<eos>"

TOKEN_IDS = Kind("text", "token ids")
MANY_UNKNOWN = 0.2  # of the words: more than that, and perplexities say little
_FORMAT = 1  # of the cache; another number makes all caches anew
_FEW_WORDS, _LONG_WORDS = 1.5, 12.0  # words a line, characters a word: a text beyond has almost no blanks
_BLOCK = 1 << 22  # ids that are in memory at a time

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Vocabulary:
    """The words that have ids: a word's id is its place.

    Args:
        words: by falling count; of words with equal counts, that which comes first in the text. `UNKNOWN` and `END`
            are always among them.
        counts: how often each id is in the training part; of `UNKNOWN`, all words that have no id of their own.
    """

    words: tuple[str, ...]
    counts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.words)

    def index(self, word: str) -> int:
        """The id of a word; that of `UNKNOWN` for a word that has none."""
        return self._index.get(word, self._index[UNKNOWN])

    @cached_property
    def _index(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}


@dataclass(frozen=True, eq=False)
class TextCorpus:
    """A text as token ids.

    Args:
        name: the folder's or file's name, or the Flair corpus' own.
        vocabulary: the words of the training part.
        train: ids, int32 [tokens], memory-mapped and read-only.
        valid: the same.
        test: the same; None where there is no test part.
        fingerprint: SHA-256 of text and settings in hexadecimal; another text or other settings have another one.
        origin: what it was made of, as JSON can hold it: files with sizes and digests, settings, tokens of each part,
            and where the valid part is from.
    """

    name: str
    vocabulary: Vocabulary
    train: Ids
    valid: Ids
    test: Ids | None
    fingerprint: str
    origin: dict[str, Any]

    @cached_property
    def unknown_shares(self) -> dict[str, float]:
        """The share of `UNKNOWN` in each part, as `unknown_share` counts it."""
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        return {name: unknown_share(ids, self.vocabulary) for name, ids in parts.items() if ids is not None}


def unknown_share(ids: Ids, vocabulary: Vocabulary) -> float:
    """Return the share of words that are `UNKNOWN`: written so in the text, or not in the vocabulary.

    Args:
        ids: token ids; `END` is no word.
        vocabulary: their words.
    """
    ends, unknown = (np.count_nonzero(ids == vocabulary.index(word)) for word in (END, UNKNOWN))
    return float(unknown / max(len(ids) - ends, 1))


def say_unknown(name: str, shares: Mapping[str, float]) -> None:
    """Log the shares of `UNKNOWN` in a text, if it has any; warn if one is above a fifth.

    Args:
        name: of the text.
        shares: by part; one of no part has an empty name.
    """
    said = ", ".join(f"{100 * share:.1f} % of the words{' of ' * bool(part)}{part}" for part, share in shares.items())
    if 0 < max(shares.values()) <= MANY_UNKNOWN:
        log.info("%s: %s stands for %s", name, UNKNOWN, said)
    elif any(shares.values()):
        log.warning(
            "%s: %s stands for %s, so a low perplexity says little. Is the text in another language, tokenised "
            "otherwise or lower-cased, or is the vocabulary small (--vocabulary-size, --min-count)?",
            *(name, UNKNOWN, said),
        )


def load_text(
    source: Any,
    *,
    vocabulary_size: int | None = None,
    min_count: int = 1,
    lowercase: bool = False,
    valid_share: float | None = None,
    cache: str | Path | None = None,
    progress: bool = False,
) -> TextCorpus:
    """Loads a text; the first time it is turned into token ids, which are kept for the next time.

    Args:
        source: a folder, a file, files by part (``{"train": PATH, "valid": PATH, "test": PATH}``, or as text
            ``train=PATH,valid=PATH,test=PATH``), a Flair corpus, or ``demo``, the bundled text (a folder of that name
            is given as ``./demo``). Files hold UTF-8, one sentence a line, packed by gzip or not. A folder's files are
            told by words in their names: train; valid, validation, val or dev; test.
        vocabulary_size: at most so many entries, `UNKNOWN` and `END` among them; the most frequent words stay.
        min_count: words that are less often in the training part have no id.
        lowercase: words are turned into lower case.
        valid_share: where there is no valid part, this share of the training lines, the last ones, becomes it (of a
            text of one line, this share of its words).
        cache: the folder for ids. Default: the environment variable ``FLAIR_NAS_CACHE``, else ``~/.cache/flair-nas``.
        progress: draw a progress bar on standard error while ids are made.

    Raises:
        FlairNasError: settings that cannot be used; no text, or no valid part; text that is empty, not UTF-8, damaged
            or cannot be read; a vocabulary of fewer than two words; a cache folder that cannot be written.
        OSError: the disk is full; nothing half-written stays.
    """
    settings: dict[str, Any] = {
        "vocabulary_size": vocabulary_size,
        "min_count": min_count,
        "lowercase": lowercase,
        "valid_share": valid_share,
    }
    TextSettings(**settings)  # refuses what cannot be used
    text = find_text(source, lowercase)
    _check_valid(text, valid_share)
    digests = {name: part.digest for name, part in text.parts.items()}
    key = json.dumps({"format": _FORMAT, "text": digests, "settings": settings}, sort_keys=True)
    fingerprint = hashlib.sha256(key.encode()).hexdigest()

    def build(folder: Path) -> dict[str, Any]:
        return _build(text, settings, folder, progress)

    folder, made = cached_folder(TOKEN_IDS, fingerprint, build, None if cache is None else Path(cache))
    ids = np.memmap(folder / "ids.bin", dtype="<i4", mode="r")
    ends = np.cumsum([made["tokens"][name] for name in PARTS])
    train, valid, test = (ids[end - made["tokens"][name] : end] for name, end in zip(PARTS, ends))
    origin = {
        "text": text.name,
        "files": {name: {"file": p.name, "bytes": p.size, "sha256": p.digest} for name, p in text.parts.items()},
        "settings": settings,
        "valid": text.valid.name if text.valid else f"{made['valid']} of {text.train.name}",
        "tokens": {name: count for name, count in made["tokens"].items() if count},
    }
    corpus = TextCorpus(
        name=text.name,
        vocabulary=Vocabulary(tuple(made["words"]), tuple(made["counts"])),
        train=train,
        valid=valid,
        test=test if text.test else None,
        fingerprint=fingerprint,
        origin=origin,
    )
    say_unknown(corpus.name, corpus.unknown_shares)
    _check_blanks(corpus)
    return corpus


def load_text_of(settings: TextSettings, source: Any = None, *, progress: bool = False) -> TextCorpus:
    """Loads the text that settings name, or another source in the same way.

    Args:
        settings: of a search or of a language model.
        source: as for `load_text`, in place of the setting `text`.
        progress: draw a progress bar on standard error while ids are made.

    Raises:
        FlairNasError: none is named; else as `load_text`.
        OSError: as `load_text`.
    """
    source = settings.text or None if source is None else source
    if source is None:
        raise FlairNasError("no text: give a folder with train and valid text with --text DIR (or --text demo)")
    return load_text(
        source,
        vocabulary_size=settings.vocabulary_size,
        min_count=settings.min_count,
        lowercase=settings.lowercase,
        valid_share=settings.valid_share,
        progress=progress,
    )


def batchify(ids: Ids, batch_size: int) -> LongTensor:
    """Cuts a stream of tokens into columns that are read side by side.

    Args:
        ids: token ids, [tokens].
        batch_size: the number of columns, B.

    Returns:
        Token ids, [T, B] with T = tokens // B; column b is the b-th contiguous piece of the stream, and the tokens
        that are left over are dropped.

    Raises:
        FlairNasError: there are fewer than two tokens for a column.
    """
    import torch

    if not _is_whole(batch_size) or batch_size < 1:
        raise FlairNasError(f"batch_size must be a whole number from 1, got {batch_size!r}")
    if len(ids) < 2 * batch_size:
        largest = len(ids) // 2
        works = f"the largest batch size that works is {largest:,}" if largest else "no batch size works"
        raise FlairNasError(
            f"{len(ids):,} tokens are too few for a batch of {batch_size:,}: each column needs two, one to read and "
            f"one to predict; {works}"
        )
    steps = len(ids) // batch_size
    batches = torch.empty(steps, batch_size, dtype=torch.long)  # [T, B]
    batches.numpy()[:] = ids[: steps * batch_size].reshape(batch_size, steps).T  # [B T] -> [B, T] -> [T, B]
    return batches  # type: ignore[return-value]  # torch.empty says Tensor


# --- checks ---


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_valid(text: Text, valid_share: float | None) -> None:
    if text.valid is None and valid_share is None:
        if beside := files_beside(text.train, "valid"):
            raise FlairNasError(
                f"{text.train.label} was given without the valid part that lies beside it; give both as "
                f"{typed(f'train={text.train.label},valid={beside[0]}')}"
            )
        raise FlairNasError(
            f"{text.train.label}: there is no valid part beside this text; add a file with 'valid' or 'dev' in "
            "its name to its folder and give the folder, or set valid_share: 0.1 (--valid-share 0.1) takes the last "
            "tenth of the lines"
        )
    if text.valid is not None and valid_share is not None:
        raise FlairNasError(
            f"valid_share is set, but there is a valid part ({text.valid.label}); leave one of the two out"
        )
    if text.valid is not None and text.valid.digest == text.train.digest:
        log.warning(
            "%s and %s are the same text, so losses on valid say nothing of other text",
            *(text.train.label, text.valid.label),
        )


def _check_blanks(corpus: TextCorpus) -> None:
    """Warn of a text in which sentences are words, or words are sentences."""
    counts = dict(zip(corpus.vocabulary.words, corpus.vocabulary.counts))
    lines, unknown = counts.pop(END), counts.pop(UNKNOWN)
    known = sum(counts.values())
    per_line, length = (known + unknown) / max(lines, 1), sum(len(w) * counts[w] for w in counts) / max(known, 1)
    if per_line < _FEW_WORDS or length > _LONG_WORDS:
        log.warning(
            "%s: almost no blanks (%.1f words a line, %.1f characters a word), so the model learns lines, not words. "
            "Write one sentence a line, words parted by blanks, with a segmenter such as jieba (Chinese), MeCab "
            "(Japanese) or PyThaiNLP (Thai)",
            *(corpus.name, per_line, length),
        )


# --- building ---


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


class _Numbers(dict[str, int]):
    """Numbers words in the order in which they are asked for first."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


class _Part(NamedTuple):
    """A part as it was written: how many tokens and lines, and after each piece how many so far."""

    tokens: int
    lines: int
    marks: list[tuple[int, int]]


def _build(text: Text, settings: Mapping[str, Any], folder: Path, progress: bool) -> dict[str, Any]:
    """Writes ``ids.bin``, and gives what else there is to know of the text, for JSON."""
    numbers = _Numbers()
    parts = {name: _Part(0, 0, []) for name in PARTS}
    total = sum(part.size for part in text.parts.values())
    valid_from = ""
    path = folder / "ids.bin"
    with (
        open(path, "w+b") as stream,
        tqdm(
            desc=f"reading {text.name}", total=total, unit="B", unit_scale=True, leave=False, disable=not progress
        ) as bar,
    ):
        for name, part in text.parts.items():
            parts[name] = _write_numbers(part.read(bar.update), numbers, stream)
            if parts[name].tokens == parts[name].lines:
                raise FlairNasError(f"{part.label}: the text holds no words; give text, one sentence a line")
        tokens = {name: part.tokens for name, part in parts.items()}
        if text.valid is None:
            whole, share = parts["train"], settings["valid_share"]
            cut, lines = _valid_start(whole, share, numbers[LINE_END], stream)
            unit = "lines" if whole.lines > 1 else "words"
            for where, words in (("before", cut - lines), ("in", whole.tokens - cut - (whole.lines - lines))):
                if words == 0:
                    raise FlairNasError(
                        f"{text.train.label}: there are no words {where} the last {_percent(share)} of the {unit}; "
                        "choose another valid_share"
                    )
            tokens |= {"train": cut, "valid": whole.tokens - cut}
            valid_from = f"the last {_percent(share)} of the {unit}"
        counts = np.zeros(len(numbers), dtype=np.int64)
        for block in _blocks(stream, tokens["train"]):
            counts += np.bincount(block, minlength=len(numbers))
        vocabulary, id_of = _choose_vocabulary(numbers, counts, settings, text.train.label)
        place = 0
        for block in _blocks(stream, sum(tokens.values())):
            ids = id_of[block]
            stream.seek(place)
            stream.write(ids.data)
            place += ids.nbytes
    return {"tokens": tokens, "valid": valid_from, "words": vocabulary.words, "counts": vocabulary.counts}


def _write_numbers(pieces: Iterator[Piece], numbers: _Numbers, stream: BinaryIO) -> _Part:
    tokens = lines = 0
    marks = [(0, 0)]
    for piece in pieces:
        count = len(piece.words)
        stream.write(np.fromiter(map(numbers.__getitem__, piece.words), "<i4", count).data)
        tokens += count
        lines += piece.lines
        marks.append((tokens, lines))
    return _Part(tokens, lines, marks)


def _valid_start(train: _Part, share: float, line_end: int, stream: BinaryIO) -> tuple[int, int]:
    """The numbers of tokens and of lines before the last share of the lines (of the only line: of its words)."""
    if train.lines == 1:
        return train.tokens - min(max(round(share * train.tokens), 2), train.tokens - 1), 0
    lines = train.lines - min(max(round(share * train.lines), 1), train.lines - 1)
    # the piece in which the last line of train ends
    place = next(number for number, mark in enumerate(train.marks) if mark[1] >= lines)
    (before, lines_before), (after, _) = train.marks[place - 1 : place + 1]
    stream.seek(4 * before)
    numbers = np.frombuffer(stream.read(4 * (after - before)), "<i4")
    ends = np.flatnonzero(numbers == line_end)
    return before + int(ends[lines - lines_before - 1]) + 1, lines


def _blocks(stream: BinaryIO, tokens: int) -> Iterator[npt.NDArray[np.int32]]:
    """The first numbers of a file, in blocks; the file may be written to in between."""
    for start in range(0, tokens, _BLOCK):
        stream.seek(4 * start)
        yield np.frombuffer(stream.read(4 * min(_BLOCK, tokens - start)), "<i4")


def _choose_vocabulary(
    numbers: _Numbers, counts: npt.NDArray[np.int64], settings: Mapping[str, Any], label: str
) -> tuple[Vocabulary, Ids]:
    """The words that get ids.

    Args:
        numbers: all words of all parts; the smaller number came first.
        counts: how often each is in the training part, [numbers].
        settings: `vocabulary_size` and `min_count`.
        label: what messages call the training part.

    Returns:
        The vocabulary, and the id of each number, [numbers].
    """
    words = list(numbers)
    ends = [numbers[word] for word in (LINE_END, END) if word in numbers]
    unknowns = [numbers[UNKNOWN]] if UNKNOWN in numbers else []
    special = {*ends, *unknowns}
    size = settings["vocabulary_size"] or len(words) + 2
    frequent = np.argsort(-counts, kind="stable")  # stable, so that what came first stays first
    frequent = frequent[counts[frequent] >= settings["min_count"]]
    kept = [number for number in frequent.tolist() if number not in special][: size - 2]
    if len(kept) < 2:
        raise FlairNasError(
            f"{label}: a vocabulary of {len(kept)} words beside {UNKNOWN} and {END} leaves nothing to predict; of "
            f"{len(words) - len(special)} different words, {len(kept)} occur min_count = {settings['min_count']} times"
        )
    rest = np.ones(len(words), dtype=bool)
    rest[kept + ends] = False
    unknown_numbers = np.flatnonzero(rest & (counts > 0))
    # what an id stands for is as old as the first of its words
    entries = [(-int(counts[number]), number, words[number]) for number in kept]
    entries.append((-int(counts[ends].sum()), min(ends), END))
    first_unknown = int(unknown_numbers[0]) if len(unknown_numbers) else len(words)
    entries.append((-int(counts[unknown_numbers].sum()), first_unknown, UNKNOWN))
    entries.sort()
    vocabulary = Vocabulary(tuple(word for _, _, word in entries), tuple(-count for count, _, _ in entries))
    id_of = np.full(len(words), vocabulary.index(UNKNOWN), dtype="<i4")
    id_of[kept] = [vocabulary.index(words[number]) for number in kept]
    id_of[ends] = vocabulary.index(END)
    return vocabulary, id_of
