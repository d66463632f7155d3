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
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from flair_nas.embedding.character_model.training import train_directions
from flair_nas.embedding.config import EmbeddingConfig
from flair_nas.embedding.plan import Plan, character_settings, make_plan
from flair_nas.embedding.text import LONG_LINE, TextCounts, find_source, read_state, write_tokens
from flair_nas.embedding.words import train_words
from flair_nas.errors import FlairNasError
from flair_nas.runs.duration import duration
from flair_nas.runs.run import Run, open_run
from flair_nas.settings.fields import check_config
from flair_nas.storage.files import copy_whole, write_text
from flair_nas.tagging.data.character_models import DATA
from flair_nas.tagging.data.embedding_folder import (
    ABOUT,
    CHARACTERS,
    REMEDY,
    TABLE,
    check_file,
    read_about,
    write_about,
    write_table,
)
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
        return _train(run, progress)


def describe_plan(config: EmbeddingConfig) -> str:
    """Return the plan of a training and its times in words, measured on the beginning of the text."""
    check_config(config, EmbeddingConfig)
    with flair_device(config.device):
        return str(make_plan(config, find_source(config)))


def _train(run: Run[EmbeddingConfig], progress: bool) -> dict[str, Any]:
    """Train what is not yet trained, and write the folder."""
    config, folder = run.config, run.folder
    state, source = folder / STATE, find_source(config)
    train_part = source.parts["train"]
    if (state / _PLAN).exists():
        plan = read_state(state / _PLAN, Plan)
        if plan.digest != train_part.digest:
            raise FlairNasError(f"{train_part.label}: the text is another one than when this run began; give it back")
    else:
        plan = make_plan(config, source)
    log.log(logging.WARNING if plan.part < 1 else logging.INFO, "%s", plan)
    run.accept()
    state.mkdir(exist_ok=True)
    write_text(state / _PLAN, json.dumps(asdict(plan)))
    counts = write_tokens(config, source, state / _TEXT, plan.characters, progress)
    _tell(counts, unread=[part.label for name, part in source.parts.items() if name != "train"])
    text = {**asdict(counts), "sha256": plan.digest}
    about: dict[str, Any] = {"name": folder.resolve().name, "text": text, "seed": config.seed}
    if plan.epochs:
        about |= {"word_epochs": plan.epochs, **_train_words(run, counts, plan.epochs, progress)}
    if plan.character_epochs:
        settings = character_settings(config, state / _TEXT, counts, plan.character_epochs)
        with open_run(state / _CHARACTERS, settings, may_change=settings.may_change) as inner:
            figures = train_directions(inner, progress)
        bits = {direction: own["dev_bits"] for direction, own in figures.items()}
        about |= {"character_epochs": plan.character_epochs, "bits_per_character": bits}
        for direction, name in zip(figures, CHARACTERS):
            copy_whole(state / _CHARACTERS / direction / DATA, folder / name)
    written = write_about(folder, about)
    shutil.rmtree(state, ignore_errors=True)
    return written


def _tell(counts: TextCounts, unread: Sequence[str]) -> None:
    """Log the size of a text, and what was altered or left out."""
    log.info(
        "%s: lines %s, words %s, characters %s",
        *(counts.name, *(f"{number:,}" for number in (counts.lines, counts.words, counts.characters))),
    )
    if unread:
        log.info("not read: %s", ", ".join(unread))
    if counts.long:
        log.info("%s: lines of more than %d words, cut there: %d", counts.name, LONG_LINE, counts.long)


def _train_words(run: Run[EmbeddingConfig], counts: TextCounts, epochs: int, progress: bool) -> dict[str, Any]:
    """Train the word vectors, write their table, and return its figures."""
    state = run.folder / STATE
    start = time.perf_counter()
    total = epochs * counts.words
    with tqdm(desc="word vectors", total=total, unit="word", unit_scale=True, disable=not progress, leave=False) as bar:
        model = train_words(run.config, state / _TEXT, counts, epochs, state / _MODEL, bar.update)
    figures = write_table(run.folder / TABLE, model.wv.key_to_index, model.wv.vectors, model.wv.vectors_ngrams)
    log.info("word vectors: %s words, %s", f"{figures['words']:,}", duration(time.perf_counter() - start))
    return figures
