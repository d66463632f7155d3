"""Word vectors by gensim's FastText (Bojanowski et al., TACL 2017), trained in pieces that can be resumed."""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flair_nas.embedding.config import EmbeddingConfig
from flair_nas.embedding.text import TRAIN, TextCounts, read_lines
from flair_nas.errors import FlairNasError, shown
from flair_nas.storage.files import whole_file
from flair_nas.tagging.data.embedding_folder import write_table

if TYPE_CHECKING:
    from gensim.models import FastText

MAX_WORDS = 2**16
"""The most words with vectors of their own, the most frequent ones."""
_RATE, _LAST_RATE = 0.05, 0.0001  # of SGD, falling linearly
_COUNTED = 2_000_000  # words that are counted at most; rare ones are forgotten above
_SECONDS_BETWEEN_CHECKPOINTS = 60.0


def default_epochs(words: float) -> int:
    """Return the epochs of word vectors: as many as make eight million words, but 5 to 30."""
    return min(30, max(5, round(8_000_000 / words)))


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
        FlairNasError: the text repeats no words, or the checkpoint is damaged.
    """
    from gensim.models import FastText

    with _quiet_gensim():
        if checkpoint.exists():
            try:
                model = FastText.load(str(checkpoint))
                first = int(model.pieces_done)
            except Exception as error:  # unpickling can raise anything
                fault = f"is damaged ({shown(error)}); delete it to train the word vectors anew"
                raise FlairNasError(f"{checkpoint}: {fault}") from None
        else:
            model, first = _start(config, folder, counts), 0
        steps = len(counts.pieces) * epochs
        advance(sum(words for _, words in itertools.islice(itertools.cycle(counts.pieces), first)))
        saved = time.monotonic()
        for step in range(first, steps):
            start, words = counts.pieces[step % len(counts.pieces)]
            rates = (_RATE + (_LAST_RATE - _RATE) * place / steps for place in (step, step + 1))
            model.train(
                corpus_iterable=_Lines(folder, start, words, advance),
                total_words=words,
                epochs=1,
                **dict(zip(("start_alpha", "end_alpha"), rates)),
            )
            model.pieces_done = step + 1
            if time.monotonic() - saved > _SECONDS_BETWEEN_CHECKPOINTS or step + 1 == steps:
                save_model(model, checkpoint)
                saved = time.monotonic()
    if not (np.isfinite(model.wv.vectors).all() and np.isfinite(model.wv.vectors_ngrams).all()):
        raise FlairNasError("the word vectors are not finite; train them anew with another --seed")
    return model


def write_word_table(model: FastText, path: Path) -> dict[str, int]:
    """Write the vectors of a model in 8 bits, and return their numbers."""
    return write_table(path, model.wv.key_to_index, model.wv.vectors, model.wv.vectors_ngrams)


def save_model(model: FastText, path: Path) -> None:
    """Write a model to one file, whole or not at all."""
    with whole_file(path) as temporary:
        model.save(str(temporary), sep_limit=1 << 40)


def _start(config: EmbeddingConfig, folder: Path, counts: TextCounts) -> FastText:
    """Return a new model that knows the words of the text."""
    from gensim.models import FastText

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
    model.build_vocab(_Lines(folder, 0, sum(words for _, words in counts.pieces), lambda _: None))
    if len(model.wv) < 2:
        raise FlairNasError(
            f"{counts.name}: no words occur min_count = {model.min_count} times; give more text or a smaller min_count"
        )
    return model


class _Lines:
    """The lines of a piece of the text, which gensim reads more than once."""

    def __init__(self, folder: Path, start: int, words: int, advance: Callable[[int], object]) -> None:
        self.path, self.start, self.words, self.advance = folder / TRAIN, start, words, advance

    def __iter__(self) -> Iterator[list[str]]:
        for tokens in read_lines(self.path, self.start, self.words):
            yield tokens
            self.advance(len(tokens))


@contextlib.contextmanager
def _quiet_gensim() -> Iterator[None]:
    """Drop gensim's remarks on small texts within the block."""
    log = logging.getLogger("gensim")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
