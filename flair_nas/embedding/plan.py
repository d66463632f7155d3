"""The plan of a training of embeddings: epochs, the part of the text, and their times, measured on its beginning."""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from flair_nas.embedding.character_model.config import CharacterModelConfig
from flair_nas.embedding.character_model.training import measure_cost
from flair_nas.embedding.config import EmbeddingConfig
from flair_nas.embedding.text import MIN_WORDS, TOKENS, TextCounts, write_tokens
from flair_nas.embedding.words import train_words
from flair_nas.errors import FlairNasError
from flair_nas.language_model.text.corpus import check_blanks
from flair_nas.language_model.text.sources import Text
from flair_nas.runs.duration import MARGIN, duration, format_time, parse_time
from flair_nas.settings.resolve import resolve

_SAMPLE = 300_000  # characters, on which speeds are measured


@dataclass
class Plan:
    """Plan of a training.

    Attributes:
        digest: SHA-256 of the text.
        part: share of the text to read.
        characters: characters to read; infinite for all.
        epochs: epochs of the word vectors, 0 without them.
        character_epochs: epochs of each character model, 0 without them.
        word_seconds: expected seconds of the word vectors.
        character_seconds: expected seconds of both character models.
    """

    digest: str
    part: float
    characters: float
    epochs: int
    character_epochs: int
    word_seconds: float
    character_seconds: float

    def __str__(self) -> str:
        lines = [f"the budget allows the first {100 * self.part:.2g} % of the text"] if self.part < 1 else []
        if self.epochs:
            lines.append(f"word vectors: epochs {self.epochs}, about {duration(self.word_seconds)}")
        if self.character_epochs:
            time = duration(self.character_seconds)
            lines.append(f"two character models: epochs {self.character_epochs} each, about {time}")
        return "\n".join(lines)


def make_plan(config: EmbeddingConfig, source: Text) -> Plan:
    """Measure the speed of both trainings on the beginning of a text, and return the plan that fits the budget.

    A plan over budget has fewer epochs. Word vectors get the time that whole epochs of the character models leave. If
    one epoch is too long, the plan reads the beginning of the text alone.

    Raises:
        FlairNasError: the text or the budget is too small.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / source.name
        start = time.perf_counter()
        sample = write_tokens(config, source, folder, _SAMPLE, progress=False)
        reading = (time.perf_counter() - start) / sample.characters
        word, character = 0.0, 0.0  # seconds of an epoch for each character of the text
        if config.words:
            length = sample.characters / sample.words - 1  # without the blank
            check_blanks(source.name, sample.words / sample.lines, length, "word vectors are of no use (--no-words)")
            train_words(config, folder, sample, 1, folder / "words.model", lambda _: None)
            start = time.perf_counter()
            train_words(config, folder, sample, 2, folder / "words.model", lambda _: None)  # the second epoch
            word = (time.perf_counter() - start) / sample.characters
        if config.characters:
            seconds, _ = measure_cost(character_settings(config, folder, sample, 1), progress=False)
            character = seconds / sample.characters
    whole = sample.characters / sample.part
    words = whole * sample.words / sample.characters
    # small texts are read more often: eight million words, and 25 million characters
    epochs = (config.epochs or min(30, max(5, round(8_000_000 / words)))) * config.words
    character_epochs = (config.character_epochs or min(12, max(3, round(25_000_000 / whole)))) * config.characters
    budget = MARGIN * (parse_time(config.budget or "") or math.inf)
    part = min(1.0, budget / (whole * (reading + word + character)))  # of one epoch of both
    if part * words < min(MIN_WORDS, words):
        needed = format_time(MIN_WORDS / words / part * budget / MARGIN)
        raise FlairNasError(f"budget {config.budget} is too small for {MIN_WORDS:,} words; give {needed} or more")
    seconds = part * whole * (word * epochs + character * character_epochs)
    if (left := budget - part * whole * reading) < seconds:
        character_epochs = character_epochs and max(1, int(character_epochs * left / seconds))
        left -= part * whole * character * character_epochs
        epochs = epochs and min(epochs, max(1, int(left / (part * whole * word))))
    return Plan(
        digest=source.parts["train"].digest,
        part=part,
        characters=part * whole if part < 1 else math.inf,
        epochs=epochs,
        character_epochs=character_epochs,
        word_seconds=part * whole * word * epochs,
        character_seconds=part * whole * character * character_epochs,
    )


def character_settings(config: EmbeddingConfig, folder: Path, counts: TextCounts, epochs: int) -> CharacterModelConfig:
    """Return the settings of both character models for a folder of `write_tokens` with these counts."""
    flags = {
        "text": str(folder / TOKENS),
        "valid_share": counts.held / counts.lines,
        "direction": "both",
        "hidden_size": config.hidden_size,
        "min_count": 5 if counts.characters < 10_000_000 else 10,
        "split_size": int(min(2_500_000, max(100_000, counts.characters / 2))),
        "epochs": epochs,
        "device": config.device,
        "seed": config.seed,
    }
    return resolve(CharacterModelConfig, kind="character_model", preset="small", flags=flags)
