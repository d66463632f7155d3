"""A training of embeddings in seconds, and the text that it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import killing
import numpy as np

from flair_nas.embedding import words
from flair_nas.embedding.character_model import training as character_training
from flair_nas.embedding.config import EmbeddingConfig
from flair_nas.embedding.training import train_embeddings

STEMS = ("kan", "oslo", "ber", "ƙasa", "milo", "tun", "grace", "sofi")
ENDS = ("", "a", "en", "ta", "ing", "ó")


def write_raw(path: Path, lines: int = 400) -> str:
    """Write lines of made-up words, which end in punctuation."""
    random = np.random.default_rng(1)
    rows = [
        " ".join(STEMS[random.integers(8)] + ENDS[random.integers(6)] for _ in range(random.integers(3, 9))) + "."
        for _ in range(lines)
    ]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


def settings(raw: str, **changes: Any) -> dict[str, Any]:
    """Return settings of a training of seconds."""
    sizes = {"width": 8, "rows": 64, "epochs": 3, "hidden_size": 8, "character_epochs": 2}
    return {"text": raw, "device": "cpu", **sizes, **changes}


def run_training(settings: dict[str, Any], out: str) -> None:
    """Train in a process that is killed; its state is saved after every piece and step."""
    killing.be_quiet()
    with (
        mock.patch.object(words, "_PIECE", 500),
        mock.patch.object(words, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0),
        mock.patch.object(character_training, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0),
    ):
        train_embeddings(EmbeddingConfig(**settings), out, progress=False)
