"""The text of embeddings as files of tokens, which word vectors and character models read.

FOLDER/train.txt  a line of tokens each, joined by blanks, as Flair reads sentences
FOLDER/valid.txt  every twentieth line, up to 100,000 characters: character models are judged on it
FOLDER/text.json  counts and pieces. It is written last
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flair.tokenization import SegtokTokenizer
from tqdm import tqdm

from flair_nas.embedding.config import EmbeddingConfig
from flair_nas.errors import FlairNasError
from flair_nas.language_model.text.config import TextSettings
from flair_nas.language_model.text.sources import LINE_END, Text, TextPart, find_text
from flair_nas.storage.files import whole_file, write_text
from flair_nas.tagging.data.corpora import load_corpus_of

log = logging.getLogger("flair_nas")

TRAIN, VALID, COUNTS = "train.txt", "valid.txt", "text.json"
MIN_WORDS = 1000
"""The fewest words of a text: fewer teach nothing."""
_MAX_LINE = 1000  # words; longer lines are cut, as gensim would drop their ends
_VALID_SHARE, _MAX_VALID = 20, 100_000  # one line of so many, until it has so many characters
_PIECE = 1_000_000  # words between two states of a training that can be saved
_LONG_WORD = 12.0  # mean characters of a word; the longest of 45 languages with blanks have 8


@dataclass
class TextCounts:
    """Counts of a text.

    Attributes:
        name: name of the text.
        digest: SHA-256 of the text.
        lines: lines that have words.
        words: tokens.
        characters: characters of tokens and the blanks between them.
        cut: lines that were longer than 1,000 words.
        part: share of the text that was read, by bytes.
        pieces: place in bytes and number of words of each piece of ``train.txt``.
    """

    name: str
    digest: str
    lines: int = 0
    words: int = 0
    characters: int = 0
    cut: int = 0
    part: float = 1.0
    pieces: list[tuple[int, int]] = field(default_factory=list)


def find_source(config: EmbeddingConfig) -> Text:
    """Return the text or the training sentences of the corpus that settings name."""
    return find_text(config.text if config.corpus is None else load_corpus_of(config).corpus)


def write_tokens(config: EmbeddingConfig, folder: Path, max_characters: float, progress: bool) -> TextCounts:
    """Write the tokens of a text to a folder, unless it has them, and return their counts.

    Words of a text are split as Flair splits them for a tagger (segtok); those of a corpus stay.

    Raises:
        FlairNasError: the text cannot be read or has fewer than 1,000 words, or a former text was another one.
    """
    source = find_source(config)
    part = source.parts["train"]
    if (folder / COUNTS).exists():
        counts = TextCounts(**json.loads((folder / COUNTS).read_text(encoding="utf-8")))
        if counts.digest != part.digest:
            raise FlairNasError(f"{part.label}: the text is another one than when this run began; give it back")
        return counts
    folder.mkdir(parents=True, exist_ok=True)
    counts = TextCounts(source.name, part.digest)
    split = SegtokTokenizer().tokenize if config.corpus is None else str.split
    bar = tqdm(desc=f"reading {source.name}", total=part.size, unit="B", unit_scale=True, leave=False,
               disable=not progress)  # fmt: skip
    with bar, whole_file(folder / TRAIN) as train, whole_file(folder / VALID) as valid:
        _deal(counts, part, split, max_characters, bar, (train, valid))
    if counts.words < MIN_WORDS:
        raise FlairNasError(f"{part.label}: has {counts.words:,} words; embeddings need {MIN_WORDS:,} or more")
    if counts.characters > _LONG_WORD * counts.words:
        log.warning(
            "%s: almost no blanks (%.1f characters a word), so word vectors are of no use. Separate words by blanks, "
            "as those of your corpus, with a segmenter such as jieba (Chinese), MeCab (Japanese) or PyThaiNLP (Thai)",
            *(source.name, counts.characters / counts.words),
        )
    if counts.cut:
        log.info("%s: %d lines have more than %d words, and were cut there", source.name, counts.cut, _MAX_LINE)
    write_text(folder / COUNTS, json.dumps(asdict(counts)))
    return counts


def _deal(
    counts: TextCounts,
    part: TextPart,
    split: Callable[[str], list[str]],
    max_characters: float,
    bar: tqdm[Any],
    paths: tuple[Path, Path],
) -> None:
    """Write the lines of a part to the two files, and count them."""
    read = held = 0

    def advance(size: int) -> None:
        nonlocal read
        read += size
        bar.update(size)

    with open(paths[0], "wb") as train, open(paths[1], "wb") as valid:
        for line in _lines(part, advance, counts):
            tokens = split(line)
            if not tokens:
                continue
            counts.lines += 1
            counts.words += len(tokens)
            data = " ".join(tokens)
            counts.characters += len(data) + 1
            if counts.lines % _VALID_SHARE == 0 and held < _MAX_VALID:
                held += valid.write(f"{data}\n".encode())
            else:
                if not counts.pieces or counts.pieces[-1][1] >= _PIECE:
                    counts.pieces.append((train.tell(), 0))
                counts.pieces[-1] = (counts.pieces[-1][0], counts.pieces[-1][1] + len(tokens))
                train.write(f"{data}\n".encode())
            if counts.characters >= max_characters:
                counts.part = min(1.0, read / part.size)
                break


def _lines(part: TextPart, advance: Callable[[int], object], counts: TextCounts) -> Iterator[str]:
    """Yield the lines of a part without empty ones. Long lines come in pieces."""
    words: list[str] = []
    for tokens in part.read(TextSettings(), advance):
        for token in tokens:
            if token != LINE_END:
                words.append(token)
            if words and (token == LINE_END or len(words) == _MAX_LINE):
                counts.cut += token != LINE_END
                yield " ".join(words)
                words = []


def read_lines(path: Path, start: int, words: int) -> Iterator[list[str]]:
    """Yield the tokens of lines from a place in bytes on, until they have a number of words."""
    with open(path, "rb") as stream:
        stream.seek(start)
        while words > 0:
            tokens = stream.readline().decode().split()
            words -= len(tokens)
            yield tokens
