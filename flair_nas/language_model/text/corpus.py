"""Text as token ids: a vocabulary, and the memory-mapped file ``CACHE/text/FINGERPRINT/ids.bin``.

The text is read once: each word gets the number of its first occurrence, which becomes an id when all words are
counted. `END` follows the last word of each line, also of an empty one: with them, WikiText-103 has its 103,227,021
training tokens. Memory grows with the number of different words, not with the text.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from flair_nas.errors import FlairNasError
from flair_nas.language_model.text.config import TextSettings
from flair_nas.language_model.text.sources import LINE_END, PARTS, Text, TextSource, find_text
from flair_nas.storage.cache import Kind, cached_folder

if TYPE_CHECKING:
    from torch import LongTensor

log = logging.getLogger("flair_nas")

UNKNOWN = "<unk>"
END = "<eos>"

TOKEN_IDS = Kind("text", "token ids")
MANY_UNKNOWN = 0.2  # share of the words above which perplexities say little
_FORMAT = 1  # of the cache; another number makes all caches anew
_FEW_WORDS, _LONG_WORDS = 1.5, 12.0  # words a line, characters a word: a text beyond has almost no blanks
_BLOCK = 1 << 20  # ids that are in memory at a time

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Vocabulary:
    """The words that have ids; the id of a word is its position. `UNKNOWN` and `END` are always among them."""

    words: tuple[str, ...]  # by falling count, then by first occurrence in the text
    counts: tuple[int, ...]  # of each id in the training part; `UNKNOWN` counts all words that have no id

    def __len__(self) -> int:
        return len(self.words)

    def index(self, word: str) -> int:
        """Return the id of a word, or the id of `UNKNOWN`."""
        return self._index.get(word, self._index[UNKNOWN])

    def encode(self, words: Iterable[str]) -> Ids:
        """Return the ids of words; `LINE_END` becomes `END`."""
        return np.fromiter(map(self._index.get, words, itertools.repeat(self._index[UNKNOWN])), "<i4")

    @cached_property
    def _index(self) -> dict[str, int]:
        index = {word: number for number, word in enumerate(self.words)}
        return index | {LINE_END: index[END]}


@dataclass(frozen=True, eq=False)
class TextCorpus:
    """A text as token ids, int32 [tokens], memory-mapped and read-only."""

    name: str  # of the folder or file, or the Flair corpus' own
    vocabulary: Vocabulary  # of the training part
    train: Ids
    valid: Ids
    test: Ids | None
    fingerprint: str  # SHA-256 of text and settings in hexadecimal
    labels: Mapping[str, str]  # by part, for messages: its path, or a part of a Flair corpus

    @cached_property
    def unknown_shares(self) -> dict[str, float]:
        """The share of words that are `UNKNOWN` in each part."""
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        return {name: unknown_share(ids, self.vocabulary) for name, ids in parts.items() if ids is not None}


def unknown_share(ids: Ids, vocabulary: Vocabulary) -> float:
    """Return the share of words in ids [tokens] that are `UNKNOWN`; `END` does not count as a word."""
    ends, unknown = (
        sum(np.count_nonzero(block == vocabulary.index(word)) for block in _blocks(ids)) for word in (END, UNKNOWN)
    )
    return float(unknown / max(len(ids) - ends, 1))


def say_unknown(name: str, shares: Mapping[str, float], unit: str = "word") -> None:
    """Log the shares of `UNKNOWN` by part of a text, if it has any; warn if one is above a fifth."""
    percent = {
        f" of {part}" if part else "": "less than 0.1" if 0 < share < 0.0005 else f"{100 * share:.1f}"
        for part, share in shares.items()
    }
    replaced = ", ".join(f"{number} % of the {_name_tokens(unit)}{where}" for where, number in percent.items())
    if 0 < max(shares.values()) <= MANY_UNKNOWN:
        log.info("%s: %s stands for %s", name, UNKNOWN, replaced)
    elif any(shares.values()):
        log.warning(
            "%s: %s stands for %s, so a low perplexity says little. Is the text in another language, tokenised "
            "otherwise or lower-cased, or is the vocabulary small (--vocabulary-size, --min-count)?",
            *(name, UNKNOWN, replaced),
        )


def _name_tokens(unit: str) -> str:
    return "words" if unit == "word" else "characters"


def load_text(
    source: TextSource,
    settings: TextSettings | None = None,
    *,
    words: Sequence[str] | None = None,
    cache: str | Path | None = None,
    progress: bool = False,
    **options: Any,
) -> TextCorpus:
    """Load a text as token ids. They are made the first time, and read from the cache later.

    Args:
        source: a folder, a file, files by part (``{"train": PATH, "valid": PATH, "test": PATH}``, or the text
            ``train=PATH,valid=PATH,test=PATH``), a Flair corpus, or ``demo``, the bundled text (``./demo`` is a
            folder). Files hold UTF-8, one sentence a line, packed by gzip or not. Words in the names of a folder's
            files tell the part: train; valid, dev and others; test.
        settings: vocabulary, unit and valid part. A vocabulary has `UNKNOWN` and `END` among its words. If the unit is
            ``char``, blanks are tokens, too.
        words: the vocabulary. `vocabulary_size` and `min_count` are then ignored.
        cache: folder for ids. Default: the environment variable ``FLAIR_NAS_CACHE``, else ``~/.cache/flair-nas``.
        progress: draw a progress bar on standard error while ids are made.
        options: settings by name, which replace those of `settings`.

    Raises:
        FlairNasError: settings that cannot be used; no text, or no valid part; text that is empty, not UTF-8, damaged
            or cannot be read; a vocabulary of fewer than two words; a cache folder that cannot be written.
        OSError: the disk is full; nothing half-written stays.
    """
    settings = settings or TextSettings()
    settings = replace(settings, **options) if options else settings
    text = find_text(source)
    _check_valid(text, settings.valid_share)
    chosen = {name: getattr(settings, name) for name in ("vocabulary_size", "min_count", "lowercase", "valid_share")}
    if settings.unit != "word":  # the caches of words keep their names
        chosen["unit"] = settings.unit
    if words is not None:
        chosen |= {"words": list(words), "vocabulary_size": None, "min_count": 1}
    digests = {name: part.digest for name, part in text.parts.items()}
    key = json.dumps({"format": _FORMAT, "text": digests, "settings": chosen}, sort_keys=True)
    fingerprint = hashlib.sha256(key.encode()).hexdigest()

    build = functools.partial(_build, text, settings, words, progress)
    folder, built = cached_folder(TOKEN_IDS, fingerprint, build, None if cache is None else Path(cache))
    ids = np.memmap(folder / "ids.bin", dtype="<i4", mode="r")
    train, valid, test, _ = np.split(ids, np.cumsum([built["tokens"][name] for name in PARTS]))
    corpus = TextCorpus(
        name=text.name,
        vocabulary=Vocabulary(tuple(built["words"]), tuple(built["counts"])),
        train=train,
        valid=valid,
        test=test if "test" in text.parts else None,
        fingerprint=fingerprint,
        # valid may be cut from train
        labels={"valid": f"the valid part of {text.name}", **{name: part.label for name, part in text.parts.items()}},
    )
    say_unknown(corpus.name, corpus.unknown_shares, settings.unit)
    if settings.unit == "word":
        counts = dict(zip(corpus.vocabulary.words, corpus.vocabulary.counts))
        lines, unknown = counts.pop(END), counts.pop(UNKNOWN)
        known, characters = sum(counts.values()), sum(len(word) * count for word, count in counts.items())
        per_line, length = (known + unknown) / max(lines, 1), characters / max(known, 1)
        check_blanks(corpus.name, per_line, length, "the model learns lines, not words")
    return corpus


def batchify(ids: Ids, batch_size: int, label: str = "the text") -> LongTensor:
    """Cut a stream of tokens [tokens] into B columns that are read side by side; the label names it in errors.

    Returns:
        Token ids, [T, B] with T = tokens // B. Column b is the b-th contiguous piece of the stream; the tokens that are
        left over are dropped.
    """
    import torch

    if len(ids) < 2 * batch_size:
        advice = f", or batch_size {len(ids) // 2:,} at most" if len(ids) > 1 else ""
        raise FlairNasError(
            f"{label}: {len(ids):,} tokens are too few for {batch_size:,} columns, each of which needs two; give more "
            f"text{advice}"
        )
    steps = len(ids) // batch_size
    batches = torch.empty(steps, batch_size, dtype=torch.long)  # [T, B]
    batches.numpy()[:] = ids[: steps * batch_size].reshape(batch_size, steps).T  # [B T] -> [B, T] -> [T, B]
    return batches  # type: ignore[return-value]  # torch.empty says Tensor


def _check_valid(text: Text, valid_share: float | None) -> None:
    """Raise FlairNasError unless the text has either a valid part or a share for one; warn of a copy of train."""
    train, valid = text.parts["train"], text.parts.get("valid")
    if valid is None and valid_share is None:
        raise FlairNasError(
            f"{train.label}: there is no valid part; give a folder that also has a file with 'valid' or 'dev' in its "
            "name, or set valid_share: 0.1 (--valid-share 0.1 takes the last tenth of the lines)"
        )
    if valid is not None and valid_share is not None:
        raise FlairNasError(f"valid_share is set, but there is a valid part ({valid.label}); leave one of the two out")
    if valid is not None and valid.digest == train.digest:
        log.warning(
            "%s and %s are the same text, so losses on valid say nothing of other text", train.label, valid.label
        )


def check_blanks(name: str, per_line: float, length: float, consequence: str) -> None:
    """Warn if there are few words a line, or many characters a word: sentences are words, or words are sentences."""
    if per_line < _FEW_WORDS or length > _LONG_WORDS:
        log.warning(
            "%s: almost no blanks (%.1f words a line, %.1f characters a word), so %s. "
            "Separate words by blanks, with a segmenter such as jieba (Chinese), MeCab (Japanese) or PyThaiNLP (Thai)",
            *(name, per_line, length, consequence),
        )


def _build(
    text: Text, settings: TextSettings, words: Sequence[str] | None, progress: bool, folder: Path
) -> dict[str, Any]:
    """Write ``ids.bin``, and return the other data on the text, for JSON."""
    numbers: defaultdict[str, int] = defaultdict()  # of words and `LINE_END`, by first occurrence
    numbers.default_factory = numbers.__len__
    tokens = dict.fromkeys(PARTS, 0)
    size = sum(part.size for part in text.parts.values())
    bar = tqdm(desc=f"reading {text.name}", total=size, unit="B", unit_scale=True, leave=False, disable=not progress)
    with bar, open(folder / "ids.bin", "wb") as stream:
        for name, part in text.parts.items():
            has_words = False
            for piece in part.read(settings, bar.update):
                stream.write(np.fromiter(map(numbers.__getitem__, piece), "<i4", len(piece)).data)
                tokens[name] += len(piece)
                has_words |= piece.count(LINE_END) < len(piece)
            if not has_words:
                tokens_name = _name_tokens(settings.unit)
                raise FlairNasError(f"{part.label}: the text holds no {tokens_name}; give text, one sentence a line")
    ids, label = np.memmap(folder / "ids.bin", "<i4", "r+"), text.parts["train"].label
    if settings.valid_share is not None:
        num_train = _find_valid(ids[: tokens["train"]], numbers[LINE_END], settings, label)
        tokens |= {"train": num_train, "valid": tokens["train"] - num_train}
    counted = np.zeros(len(numbers), np.int64)
    for block in _blocks(ids[: tokens["train"]]):
        counted += np.bincount(block, minlength=len(numbers))
    counts = Counter({word: count for word, count in zip(numbers, counted.tolist()) if count})
    vocabulary = _count_vocabulary(counts, _choose_words(counts, settings, label) if words is None else words)
    final = np.array([vocabulary.index(word) for word in numbers], "<i4")
    for block in _blocks(ids):
        block[:] = final[block]
    ids.flush()
    return {"tokens": tokens, "words": vocabulary.words, "counts": vocabulary.counts}


def _blocks(ids: Ids) -> Iterator[Ids]:
    """Yield ids in blocks of bounded size."""
    return (ids[start : start + _BLOCK] for start in range(0, len(ids), _BLOCK))


def _find_valid(train: Ids, end: int, settings: TextSettings, label: str) -> int:
    """Return the place where the last share of the lines begins, or of the words of a text of one line."""
    share, names = settings.valid_share or 0.0, _name_tokens(settings.unit)
    unit, place = "lines", 0
    lines = sum(np.count_nonzero(block == end) for block in _blocks(train))
    if lines > 1:
        left = lines - min(max(round(share * lines), 1), lines - 1)  # lines before the place
        for block in _blocks(train):
            ends = np.flatnonzero(block == end)
            if left <= len(ends):
                place += int(ends[left - 1]) + 1
                break
            left, place = left - len(ends), place + len(block)
    else:
        unit, place = names, len(train) - min(max(round(share * len(train)), 2), len(train) - 1)
    for where, part in (("before", train[:place]), ("in", train[place:])):
        if all(np.all(block == end) for block in _blocks(part)):
            place_name = f"{where} the last {100 * share:.4g} % of the {unit}"
            raise FlairNasError(f"{label}: there are no {names} {place_name}; choose another valid_share")
    return place


def _choose_words(counts: Counter[str], settings: TextSettings, label: str) -> list[str]:
    """Return the words that get ids, from the counts of the training part."""
    words = [word for word, _ in counts.most_common() if word not in (LINE_END, END, UNKNOWN)]
    kept = [word for word in words if counts[word] >= settings.min_count]
    kept = kept[: None if settings.vocabulary_size is None else settings.vocabulary_size - 2]
    if len(kept) < 2:
        names, advice = _name_tokens(settings.unit), " or a smaller min_count" * (settings.min_count > 1)
        raise FlairNasError(
            f"{label}: a vocabulary of {len(kept)} leaves nothing to predict; of {len(words)} different {names}, "
            f"{len(kept)} occur min_count = {settings.min_count} times; give more text{advice}"
        )
    return kept


def _count_vocabulary(counts: Counter[str], kept: Sequence[str]) -> Vocabulary:
    """Return a vocabulary of these words, `UNKNOWN` and `END`, by falling count in the training part."""
    targets = dict(zip(kept, kept)) | {LINE_END: END, END: END}
    merged: Counter[str] = Counter()
    for word, count in counts.items():
        merged[targets.get(word, UNKNOWN)] += count
    merged.update(dict.fromkeys((END, UNKNOWN, *kept), 0))
    names, numbers = zip(*merged.most_common())
    return Vocabulary(names, numbers)
