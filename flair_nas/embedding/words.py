"""Word vectors by gensim's FastText (Bojanowski et al., TACL 2017), trained in pieces that can be resumed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import psutil

from flair_nas.embedding.config import EmbeddingConfig
from flair_nas.embedding.text import TOKENS, TextCounts
from flair_nas.errors import FlairNasError, shown
from flair_nas.storage.files import whole_file
from flair_nas.tagging.quiet import logs_from

if TYPE_CHECKING:
    from gensim.models import FastText

MAX_WORDS = 2**16
"""The most words with vectors of their own, the most frequent ones."""
_RATE, _LAST_RATE = 0.05, 0.0001  # of SGD, falling linearly
_COUNTED = 2_000_000  # words that are counted at most; rare ones are forgotten above
_PIECE = 1_000_000  # words between two states that can be saved
_SECONDS_BETWEEN_CHECKPOINTS = 60.0


def train_words(
    config: EmbeddingConfig,
    folder: Path,
    counts: TextCounts,
    epochs: int,
    checkpoint: Path,
    advance: Callable[[int], object],
) -> FastText:
    """Train word vectors on the tokens of a folder.

    Args:
        config: the settings.
        folder: the folder of `write_tokens`.
        counts: its counts.
        epochs: number of epochs.
        checkpoint: a file with the state between two pieces of the text, from which a former training goes on.
        advance: is called with the number of words that were read.

    Raises:
        FlairNasError: the text repeats no words, memory is too small, or the checkpoint is damaged.
    """
    from gensim.models import FastText

    total = epochs * counts.words
    with logs_from(logging.ERROR, logging.getLogger("gensim")), open(folder / TOKENS, "rb") as stream:
        if checkpoint.exists():
            try:
                model = FastText.load(str(checkpoint))
                stream.seek(model.place)
                advance(model.words_read)
            except Exception as error:  # unpickling can raise anything
                fault = f"is damaged, or of another version ({shown(error)}); delete it to train anew"
                raise FlairNasError(f"{checkpoint}: {fault}") from None
        else:
            model = _start(config, stream, counts)
            model.words_read = 0
        saved = time.monotonic()
        while model.words_read < total:
            left = counts.words - model.words_read % counts.words  # in this epoch
            if left == counts.words:
                stream.seek(0)
            with _Lines(stream, min(left, _PIECE), advance) as lines:
                done = model.words_read / total, (model.words_read + lines.words) / total
                start, end = (_RATE + (_LAST_RATE - _RATE) * share for share in done)
                model.train(lines, total_words=lines.words, epochs=1, start_alpha=start, end_alpha=end)
            model.words_read += lines.words_read
            model.place = stream.tell()
            if time.monotonic() - saved > _SECONDS_BETWEEN_CHECKPOINTS or model.words_read == total:
                with whole_file(checkpoint) as temporary:
                    model.save(str(temporary), sep_limit=1 << 40)  # in one file
                saved = time.monotonic()
    if not (np.isfinite(model.wv.vectors).all() and np.isfinite(model.wv.vectors_ngrams).all()):
        raise FlairNasError("the word vectors are not finite; train them anew with another --seed")
    return model


def _start(config: EmbeddingConfig, stream: BinaryIO, counts: TextCounts) -> FastText:
    """Return a new model that knows the words of the text."""
    from gensim.models import FastText

    size = 8 * config.width * (config.rows + 2 * min(MAX_WORDS, counts.words))  # bytes, with a copy
    if size > psutil.virtual_memory().available:
        raise FlairNasError(f"word vectors take {size / 1e9:.1f} GB of memory; a smaller --rows or --width needs less")
    model = FastText(
        vector_size=config.width,
        sg=1,
        min_count=config.min_count or (2 if counts.words < 1_000_000 else 5),
        max_final_vocab=MAX_WORDS,
        max_vocab_size=_COUNTED,
        min_n=3,
        max_n=6,
        bucket=config.rows,
        workers=config.workers,
        seed=config.seed,
    )
    with _Lines(stream, counts.words, lambda _: None) as lines:
        model.build_vocab(lines)
    if len(model.wv) < 2:
        raise FlairNasError(
            f"{counts.name}: no words occur min_count = {model.min_count} times; give more text or a smaller min_count"
        )
    return model


class _Lines:
    """The next lines of the text, until they have a number of words. gensim reads them in a thread of its own.

    Leaving the block raises an error of reading. gensim would wait for ever if it were raised in its thread.
    """

    def __init__(self, stream: BinaryIO, words: int, advance: Callable[[int], object]) -> None:
        self.stream, self.words, self.advance = stream, words, advance
        self.words_read = 0
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[list[str]]:
        try:
            while self.words_read < self.words:
                if not (line := self.stream.readline()):
                    path = Path(self.stream.name)
                    raise FlairNasError(f"{path}: is cut short; delete {path.parent} to have the text read again")
                tokens = line.decode().split()
                self.words_read += len(tokens)
                yield tokens
                self.advance(len(tokens))
        except Exception as error:  # every fault of reading
            self.error = error

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        if self.error:
            raise self.error
