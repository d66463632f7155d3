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
from flair_nas.embedding.text import write_tokens
from flair_nas.embedding.words import default_epochs, train_words
from flair_nas.runs.duration import duration, parse_time
from flair_nas.settings.resolve import resolve

_SAMPLE = 300_000  # characters, on which speeds are measured
_MARGIN = 0.85  # of a budget: some steps take longer than measured


@dataclass
class Plan:
    """Plan of a training.

    Attributes:
        characters: characters of the text to read; all, if it is infinite.
        epochs: epochs of the word vectors, 0 without them.
        character_epochs: epochs of each character model, 0 without them.
        word_seconds: expected seconds of the word vectors.
        character_seconds: expected seconds of both character models.
    """

    characters: float
    epochs: int
    character_epochs: int
    word_seconds: float
    character_seconds: float

    def __str__(self) -> str:
        lines = []
        if self.epochs:
            lines.append(f"word vectors: epochs {self.epochs}, about {duration(self.word_seconds)}")
        if self.character_epochs:
            time = duration(self.character_seconds)
            lines.append(f"two character models: epochs {self.character_epochs} each, about {time}")
        return "\n".join(lines)


def make_plan(config: EmbeddingConfig) -> Plan:
    """Measure the speed of both trainings on the beginning of a text, and return the plan that fits the budget.

    A plan over budget has fewer epochs. If one epoch is too long, it reads the beginning of the text alone.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "sample"
        start = time.perf_counter()
        sample = write_tokens(config, folder, _SAMPLE, progress=False)
        reading = (time.perf_counter() - start) / sample.characters
        words_a_character = sample.words / sample.characters
        word, character = 0.0, 0.0  # seconds of an epoch for each character of the text
        if config.words:
            train_words(config, folder, sample, 1, folder / "words.model", lambda _: None)
            start = time.perf_counter()
            train_words(config, folder, sample, 2, folder / "words.model", lambda _: None)  # the second epoch
            word = (time.perf_counter() - start) / sample.characters
        if config.characters:
            cost = measure_cost(character_settings(config, folder, sample.characters, 1), progress=False)
            character = cost.whole / sample.characters
    characters = sample.characters / sample.part
    epochs = (config.epochs or default_epochs(words_a_character * characters)) * config.words
    character_epochs = (config.character_epochs or _default_character_epochs(characters)) * config.characters
    budget, limit = _MARGIN * (parse_time(config.budget or "") or math.inf), math.inf
    if characters * (reading + word + character) > budget:  # one epoch of both
        characters = limit = budget / (reading + word + character)
    seconds = characters * (word * epochs + character * character_epochs)
    if (left := budget - characters * reading) < seconds:
        share = left / seconds
        epochs, character_epochs = (count and max(1, int(count * share)) for count in (epochs, character_epochs))
    return Plan(limit, epochs, character_epochs, characters * word * epochs, characters * character * character_epochs)


def character_settings(config: EmbeddingConfig, folder: Path, characters: float, epochs: int) -> CharacterModelConfig:
    """Return the settings of both character models for a folder of text of so many characters."""
    flags = {
        "text": str(folder),
        "direction": "both",
        "hidden_size": config.hidden_size,
        "min_count": 5 if characters < 10_000_000 else 10,
        "split_size": int(min(2_500_000, max(100_000, characters / 2))),
        "epochs": epochs,
        "device": config.device,
        "seed": config.seed,
    }
    return resolve(CharacterModelConfig, kind="character_model", preset="small", flags=flags)


def _default_character_epochs(characters: float) -> int:
    """Return the epochs of character models: as many as make 25 million characters, but 3 to 12."""
    return min(12, max(3, round(25_000_000 / characters)))
