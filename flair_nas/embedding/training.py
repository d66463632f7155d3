"""Training of embeddings on one's own text: word vectors, then character models, in one folder without pickles.

OUT/config.yaml        the settings               OUT/embedding.json      contents, source, figures and checksums
OUT/table.safetensors  word vectors, in 8 bits    OUT/forward.safetensors, OUT/backward.safetensors  character models
OUT/training/          the state of an unfinished run, removed at its end
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from flair_nas.embedding.character_model.training import train_directions
from flair_nas.embedding.config import EmbeddingConfig
from flair_nas.embedding.plan import Plan, character_settings, make_plan
from flair_nas.embedding.text import TextCounts, write_tokens
from flair_nas.embedding.words import train_words, write_word_table
from flair_nas.runs.run import open_run
from flair_nas.settings.fields import check_config
from flair_nas.storage.files import copy_whole, write_text
from flair_nas.tagging.data.character_models import DATA
from flair_nas.tagging.data.embedding_folder import ABOUT, REMEDY, TABLE, check_file, read_about, write_about
from flair_nas.tagging.quiet import flair_device

log = logging.getLogger("flair_nas")

STATE = "training"
"""The folder of the state of an unfinished run."""
_PLAN, _MODEL, _CHARACTERS, _TEXT = "plan.json", "words.model", "characters", "text"


def train_embeddings(config: EmbeddingConfig, out: str | Path, *, progress: bool = True) -> dict[str, Any]:
    """Train word vectors and two character models on one's own text, and write them to one folder.

    The word vectors are gensim's FastText with skip-grams (Bojanowski et al., TACL 2017). The character models are
    those of `train_character_models`, with the preset ``small``. With one worker, the same settings and text give the
    same bytes. A budget makes the plan depend on the speed of the machine; a resumed run keeps its plan.

    Args:
        config: the settings.
        out: a folder that is new or empty, or that of an unfinished run with the same settings. Such a run resumes
            with the same result as one that never stopped.
        progress: draw progress bars on standard error.

    Returns:
        The contents of ``embedding.json``: source, sizes, figures and checksums.

    Raises:
        FlairNasError: settings, text or folder cannot be used.
        RunStopped: after Ctrl-C; the last state is on disk.
        OSError: the folder cannot be written, or the disk is full; the last good state is kept.

    Example:
        >>> from flair_nas import EmbeddingConfig, train_embeddings
        >>> config = EmbeddingConfig(text="demo", characters=False, width=20, rows=1000, epochs=1)
        >>> about = train_embeddings(config, "embeddings/demo", progress=False)
        >>> about["width"]
        20
    """
    check_config(config, EmbeddingConfig)
    with (
        flair_device(config.device),
        open_run(out, config, may_change=config.may_change, command="flair-nas embed train") as run,
    ):
        folder = run.folder
        if (folder / ABOUT).exists():
            about = read_about(folder, REMEDY)
            for name in about["files"]:
                check_file(folder, name, about, REMEDY)
            shutil.rmtree(folder / STATE, ignore_errors=True)  # a kill can leave it
            log.warning("%s is finished, so nothing was trained", folder)
            return about
        return _train(config, folder, run.accept, progress)


def describe_plan(config: EmbeddingConfig) -> str:
    """Return the plan of a training and its times in words, measured on the beginning of the text."""
    check_config(config, EmbeddingConfig)
    with flair_device(config.device):
        return str(make_plan(config))


def _train(config: EmbeddingConfig, folder: Path, accept: Callable[[], None], progress: bool) -> dict[str, Any]:
    """Train what is not yet trained, and write the folder."""
    state = folder / STATE
    if (state / _PLAN).exists():
        plan = Plan(**json.loads((state / _PLAN).read_text(encoding="utf-8")))
    else:
        plan = make_plan(config)
    log.info("%s", plan)
    accept()
    state.mkdir(exist_ok=True)
    write_text(state / _PLAN, json.dumps(asdict(plan)))
    counts = write_tokens(config, state / _TEXT, plan.characters, progress)
    log.info("%s", describe_text(counts))
    about: dict[str, Any] = {
        "name": folder.resolve().name,
        "text": {name: value for name, value in asdict(counts).items() if name != "pieces"},
        "seed": config.seed,
    }
    if plan.epochs:
        about |= {"word_epochs": plan.epochs, **_train_words(config, state, counts, plan.epochs, progress)}
    if plan.character_epochs:
        about |= {
            "character_epochs": plan.character_epochs,
            "bits_per_character": _train_characters(config, state, counts, plan.character_epochs, progress),
        }
        for direction in ("forward", "backward"):
            copy_whole(state / _CHARACTERS / direction / DATA, folder / f"{direction}.safetensors")
    if plan.epochs:
        copy_whole(state / TABLE, folder / TABLE)
    write_about(folder, about)
    shutil.rmtree(state, ignore_errors=True)
    return read_about(folder, REMEDY)


def describe_text(counts: TextCounts) -> str:
    """Return the size of a text in words, and the part of it that was read."""
    part = f"; the budget allows the first {100 * counts.part:.2g} % of it" if counts.part < 1 else ""
    return f"{counts.name}: lines {counts.lines:,}, words {counts.words:,}, characters {counts.characters:,}{part}"


def _train_words(
    config: EmbeddingConfig, state: Path, counts: TextCounts, epochs: int, progress: bool
) -> dict[str, Any]:
    """Train the word vectors, write their table to the state, and return its figures."""
    start = time.perf_counter()
    total = epochs * sum(words for _, words in counts.pieces)
    with tqdm(desc="word vectors", total=total, unit="word", unit_scale=True, disable=not progress, leave=False) as bar:
        model = train_words(config, state / _TEXT, counts, epochs, state / _MODEL, bar.update)
    figures = write_word_table(model, state / TABLE)
    log.info("word vectors: %s words, %.0f s", f"{figures['words']:,}", time.perf_counter() - start)
    return figures


def _train_characters(
    config: EmbeddingConfig, state: Path, counts: TextCounts, epochs: int, progress: bool
) -> dict[str, float]:
    """Train both character models in the state, and return their bits per character on held-out lines."""
    settings = character_settings(config, state / _TEXT, counts.characters, epochs)
    with open_run(state / _CHARACTERS, settings, may_change=settings.may_change) as run:
        figures = train_directions(run, progress)
    return {direction: own["dev_bits"] for direction, own in figures.items()}
