"""The text of embeddings as a file of tokens, which word vectors and character models read.

FOLDER/tokens.txt  a line of tokens each, joined by blanks, as Flair reads sentences. The last ones are a twentieth of
                   all, up to 100,000 characters, from the whole text: on them character models are judged
FOLDER/text.json   counts. It is written last
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from flair.tokenization import SegtokTokenizer
from tqdm import tqdm

from flair_nas.embedding.config import EmbeddingConfig
from flair_nas.errors import FlairNasError, shown
from flair_nas.language_model.text.config import TextSettings
from flair_nas.language_model.text.sources import LINE_END, Text, TextPart, find_text
from flair_nas.storage.files import whole_file, write_text
from flair_nas.tagging.data.corpora import load_corpus_of

MIN_WORDS = 1000
"""The fewest words of a text: fewer teach nothing."""
LONG_LINE = 200
"""The most words of a line. Longer lines go on in the next one."""
TOKENS, _COUNTS = "tokens.txt", "text.json"
_LONG_WORD = 1000  # characters; longer words are cut
_VALID_SHARE, _MAX_VALID = 20, 100_000

Data = TypeVar("Data")


@dataclass
class TextCounts:
    """Counts of a text.

    Attributes:
        name: name of the text.
        lines: lines that have words.
        held: lines at the end that are held out from character models.
        words: tokens.
        characters: characters of tokens and the blanks between them.
        long: lines of more than 200 words.
        part: share of the text that was read, by bytes.
    """

    name: str
    lines: int = 0
    held: int = 0
    words: int = 0
    characters: int = 0
    long: int = 0
    part: float = 1.0


def find_source(config: EmbeddingConfig) -> Text:
    """Return the text, or the training sentences of the corpus, that settings name."""
    return find_text(config.text if config.corpus is None else load_corpus_of(config).corpus)


def write_tokens(
    config: EmbeddingConfig, source: Text, folder: Path, max_characters: float, progress: bool
) -> TextCounts:
    """Write the tokens of a text to a folder, unless it has them, and return their counts.

    Words of a text are split as Flair splits them for a tagger (segtok); those of a corpus stay.

    Args:
        config: the settings. Without character models, nothing is held out.
        source: the text, as `find_source` returns it.
        folder: the folder.
        max_characters: where to stop.
        progress: draw a progress bar.

    Raises:
        FlairNasError: the text cannot be read, or has fewer than 1,000 words.
    """
    if (folder / _COUNTS).exists():
        return read_state(folder / _COUNTS, TextCounts)
    folder.mkdir(parents=True, exist_ok=True)
    part, counts = source.parts["train"], TextCounts(source.name)
    split = SegtokTokenizer().tokenize if config.corpus is None else str.split
    held, held_characters = list[str](), 0
    bar = tqdm(desc=f"reading {source.name}", total=part.size, unit="B", unit_scale=True, leave=False,
               disable=not progress)  # fmt: skip
    with bar, whole_file(folder / TOKENS) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for line in _lines(part, bar, counts):
            if not (tokens := split(line)):
                continue
            counts.lines += 1
            counts.words += len(tokens)
            written = " ".join(tokens) + "\n"
            counts.characters += len(written)
            if config.characters and held_characters < min(counts.characters // _VALID_SHARE, _MAX_VALID):
                held.append(written)
                held_characters += len(written)
            else:
                stream.write(written)
            if counts.characters >= max_characters:
                break
        stream.writelines(held)
    if counts.words < MIN_WORDS:
        raise FlairNasError(f"{part.label}: has {counts.words:,} words; embeddings need {MIN_WORDS:,} or more")
    counts.held = len(held)
    write_text(folder / _COUNTS, json.dumps(asdict(counts)))
    return counts


def _lines(part: TextPart, bar: tqdm[Any], counts: TextCounts) -> Iterator[str]:
    """Yield the lines of a part without empty ones, long ones in pieces. Note the share that was read."""
    words: list[str] = []
    before = after = 0  # bytes before and after these tokens
    is_long = False

    def advance(size: int) -> None:
        nonlocal after
        after += size
        bar.update(size)

    for tokens in part.read(TextSettings(), advance):
        for place, token in enumerate(tokens, 1):
            if token != LINE_END:
                words += [token[start : start + _LONG_WORD] for start in range(0, len(token), _LONG_WORD)]
            if len(words) >= LONG_LINE or token == LINE_END:
                counts.long += token != LINE_END and not is_long
                is_long = token != LINE_END
                if words:
                    counts.part = min(1.0, (before + (after - before) * place / len(tokens)) / part.size)
                    yield " ".join(words)
                    words = []
        before = after
    counts.part = 1.0


def read_state(path: Path, data_class: type[Data]) -> Data:
    """Return the data of a JSON file of an unfinished run.

    Raises:
        FlairNasError: the file is damaged, or of another version.
    """
    try:
        return data_class(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise FlairNasError(
            f"{path}: is damaged, or of another version ({shown(error)}); delete {path.parent} to start over"
        ) from None
