"""The task of language models: jobs on a text."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flair_nas.errors import FlairNasError
from flair_nas.experiments.config import Settings
from flair_nas.experiments.counts import pack_counts
from flair_nas.experiments.worker_setup import time_steps, train_step, train_timed
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.language_model.perplexity import compute_stream_losses, evaluate_stream, sum_sentence_losses
from flair_nas.language_model.saved import build_language_model, load_language_model
from flair_nas.language_model.text.config import TextSettings
from flair_nas.language_model.text.corpus import END, TextCorpus, batchify, load_text
from flair_nas.nn.layers import TEXT_LAYERS
from flair_nas.runs.device import choose_device
from flair_nas.runs.metric import to_perplexity
from flair_nas.settings.fields import as_flags, get_kinds
from flair_nas.storage.files import copy_whole

log = logging.getLogger("flair_nas")

LAYERS = TEXT_LAYERS
_FEW_WORDS = 10_000
_STEPS = 5
_TIMED = 8  # segments


def read(settings: Settings) -> TextCorpus:
    """Return the text."""
    config = TextSettings(**{name: settings[name] for name in get_kinds(TextSettings) if name in settings})
    return load_text(config.text, config)


def seeded(seed: int) -> dict[str, Any]:
    """Return the setting of a seed."""
    return {"seed": seed}


def predictor(settings: Settings) -> tuple[Callable[[], object], int]:
    """Return a function that reads a few sentences, and their number; see `TaskModule`."""
    config, data = LanguageModelConfig(**settings), read(settings)
    model = build_language_model(config, len(data.vocabulary)).to(choose_device(config.device)).eval()
    few = data.valid[: config.bptt * _TIMED]
    sentences = max(1, int(np.count_nonzero(np.asarray(few) == data.vocabulary.index(END))))
    return functools.partial(evaluate_stream, model, few, batch_size=1), sentences


def estimate(settings: Settings) -> dict[str, Any]:
    """Time a few segments; see `TaskModule`."""
    config, data = LanguageModelConfig(**settings), read(settings)
    device = choose_device(config.device)
    segment = batchify(data.train, config.batch_size)[: config.bptt + 1].to(device)  # [T + 1, B]
    started = time.perf_counter()
    model = build_language_model(config, len(data.vocabulary)).to(device).train()
    around = time.perf_counter() - started

    def loss() -> torch.Tensor:
        return model.loss(segment[:-1], segment[1:], activation=config.activation, slowness=config.slowness).total

    step = train_step(model, loss, device, config.precision)
    training = time_steps(step, _STEPS) * len(data.train) / (config.batch_size * config.bptt)
    columns = max(1, min(config.valid_batch_size, len(data.valid) // 2))
    few = data.valid[: columns * config.bptt * _STEPS]
    evaluate = functools.partial(evaluate_stream, model, few, batch_size=columns)
    evaluation = time_steps(evaluate, 1) * len(data.valid) / len(few)
    return {"seconds": [training + evaluation], "around_seconds": around, "embedding_seconds": 0.0}


def shortage(data: TextCorpus) -> str:
    """Return the number of tokens of valid in words, if it is small."""
    return f"valid has {len(data.valid)} tokens" if len(data.valid) < _FEW_WORDS else ""


def prepare(settings: Settings, data: TextCorpus, progress: bool) -> None:
    """Log the size of the text. Its token ids are in the cache, for all processes."""
    tokens = {"train": data.train, "valid": data.valid, "test": data.test}
    sizes = ", ".join(f"{len(ids):,} {part}" for part, ids in tokens.items() if ids is not None)
    log.info("%s: %s tokens, %d types", data.name, sizes, len(data.vocabulary))


def train(settings: Settings, folder: str, score: bool) -> dict[str, Any]:
    """Train a language model; see `TaskModule`."""
    from flair_nas.language_model.training import train_language_model

    config, data = LanguageModelConfig(**settings), read(settings)

    def train_and_score() -> dict[str, Any]:
        metrics = train_language_model(config, folder, corpus=data, parts=(), progress=False)
        figures = {name: metrics[name] for name in ("parameters", "peak_memory_mb")}
        return figures | _scores(data, folder, config.device) if score else figures

    return train_timed(train_and_score, Path(folder), "dev_perplexity")


def _scores(data: TextCorpus, folder: str, device: str | None) -> dict[str, Any]:
    """Return the score of the model on test, or on valid if there is no test."""
    model = load_language_model(folder, choose_device(device)).model
    ids, end = data.valid if data.test is None else data.test, data.vocabulary.index(END)
    losses = compute_stream_losses(model, ids, first=end)
    if not np.isfinite(losses).all():
        raise FlairNasError(f"not finite: the loss of {folder}/model.pt on some words; a lower learning rate may help")
    counts = sum_sentence_losses(losses, np.asarray(ids) == end).astype(np.float32)
    test = None if data.test is None else to_perplexity(float(losses.mean(dtype=np.float64)))
    return {"test": test, "counts": pack_counts(counts)}


def place(model: Path, folder: Path) -> None:
    """Copy a language model."""
    copy_whole(model, folder / "model.pt")


def usage(settings: Settings) -> list[str]:
    """Return the command that trains the model again."""
    command = f"flair-nas lm train {as_flags(LanguageModelConfig(**settings), LanguageModelConfig)} --out runs/again"
    return ["To train it again:", "", "```sh", command, "```"]
