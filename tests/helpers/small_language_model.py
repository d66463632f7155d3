"""A text and a training run of seconds for language models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from flair_nas.language_model.config import LanguageModelConfig

GATED = "tanh0-tanh1/state=tanh-tanh+tanh1,init_range=0.2"


def write_text_folder(folder: Path, lines: int = 60) -> str:
    """A text whose next words can be guessed, in three parts; gives its path."""
    words = re.findall(r"\w+", "the cat sat on a mat and then it ran to its old red house near green hills")
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for part, count in (("train", lines), ("valid", 8), ("test", 9)):
        starts = random.integers(0, len(words), count)
        rows = [" ".join(words[(start + k) % len(words)] for k in range(random.integers(3, 9))) for start in starts]
        (folder / f"{part}.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(folder)


def settings(text: str, /, **changes: Any) -> LanguageModelConfig:
    """A run of seconds, with every dropout and varied lengths, so that a resume has random states to restore."""
    given: dict[str, Any] = {
        "text": text,
        "rnn": "darts-v1,init_range=0.2",
        "hidden_size": 16,
        "batch_size": 4,
        "bptt": 5,
        "epochs": 4,
        "learning_rate": 5.0,
        "clip": 1.0,
        "dropout": 0.2,
        "input_dropout": 0.2,
        "recurrent_dropout": 0.2,
        "average_after": 2,
        "valid_batch_size": 3,
    }
    return LanguageModelConfig(**(given | changes))
