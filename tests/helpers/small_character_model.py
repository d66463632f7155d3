"""A training of seconds for character models, and the text that it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import killing

from flair_nas.embedding.character_model import training
from flair_nas.embedding.character_model.config import CharacterModelConfig
from flair_nas.embedding.character_model.training import train_character_models

GATED = "tanh0-relu1/state=tanh-relu/input=sigmoid-identity"
LINES = ("Ada Byron saw London .", "In Oslo Grace sang", "so it was , and so it is")


def write_text_folder(folder: Path) -> str:
    """Write a folder as Flair's `TextCorpus` has it, with two files to train on."""
    (folder / "train").mkdir()
    for name in ("train/split_0", "train/split_1", "valid.txt", "test.txt"):
        (folder / name).write_text("\n".join(LINES * 30) + "\n")
    return str(folder)


def settings(text: str, **changes: Any) -> dict[str, Any]:
    """Return settings of a training of seconds."""
    sizes = {"hidden_size": 8, "embedding_size": 5, "batch_size": 4, "bptt": 11, "split_size": 1500, "epochs": 2}
    return {"text": text, "learning_rate": 2.0, "device": "cpu", **sizes, **changes}


def run_training(settings: dict[str, Any], out: str) -> None:
    """Train in a process that is killed; checkpoints are written after every step."""
    killing.be_quiet()
    with mock.patch.object(training, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0):
        train_character_models(CharacterModelConfig(**settings), out, progress=False)
