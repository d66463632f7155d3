"""What a process does for a table: one run, or one search."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from flair_nas.select.bootstrap import counts_in, packed, unseen_in
from flair_nas.select.training import be_quiet, corpus_of, train
from flair_nas.tagging.config import TaggerConfig


def train_on_tags(settings: dict[str, Any], folder: str) -> dict[str, Any]:
    """Trains a tagger and scores it.

    Args:
        settings: of a `TaggerConfig` of one seed.
        folder: of its run.

    Returns:
        What `train` gives, and ``counts``, right, predicted and gold ones of each sentence of the part that is scored,
        test if there is one; ``unseen``, right and all entities there that training did not have.
    """
    from flair_nas.tagging.corpora import is_token_level, sentences_of

    found = train(settings, folder, ("dev", "test"))
    config = TaggerConfig(**settings)
    corpus = corpus_of(config)
    sentences, label_type = sentences_of(corpus.corpus.train), corpus.label_type
    spans = not is_token_level(sentences, label_type)
    scored = Path(folder) / f"seed-{config.seeds[0]}" / ("dev.txt" if found["test"] is None else "test.txt")
    found["counts"] = packed(counts_in(scored, spans))
    if spans:
        seen = {label.data_point.text.lower() for sentence in sentences for label in sentence.get_labels(label_type)}
        found["unseen"] = unseen_in(scored, seen)
    return {name: value for name, value in found.items() if name != "scored"}


def train_on_text(settings: dict[str, Any], folder: str) -> dict[str, Any]:
    """Trains a language model.

    Args:
        settings: of a `LanguageModelConfig`.
        folder: of its run.

    Returns:
        For the ledger, as JSON data: ``dev``, the valid perplexity after each epoch; ``valid`` and ``test``, that of
        the model; ``seconds`` of each epoch, ``around_seconds``, ``parameters`` of it all, ``peak_memory_mb``.
    """
    from flair_nas.device import forget_peak_memory
    from flair_nas.language_model.config import LanguageModelConfig
    from flair_nas.language_model.training import train_language_model

    be_quiet()
    forget_peak_memory()
    started = time.perf_counter()
    metrics = train_language_model(LanguageModelConfig(**settings), folder, progress=False)
    lines = (Path(folder) / "history.jsonl").read_text(encoding="utf-8").splitlines()
    history = [json.loads(line) for line in lines]
    seconds = [line["seconds"] + line["evaluation_seconds"] for line in history]
    return {
        "dev": [line["valid_perplexity"] for line in history],
        "valid": metrics["valid_perplexity"],
        "test": metrics["test_perplexity"],
        "seconds": seconds,
        "around_seconds": max(0.0, time.perf_counter() - started - sum(seconds)),
        "parameters": metrics["parameters"],
        "peak_memory_mb": metrics["peak_memory_mb"],
    }


def search_on_text(settings: dict[str, Any], folder: str) -> dict[str, Any]:
    """Searches a cell on a text; arguments and returns as `flair_nas.select.training.search`."""
    from flair_nas.search.config import SearchConfig
    from flair_nas.search.trainer import search_genotype

    be_quiet()
    return {"genotype": search_genotype(SearchConfig(**settings), folder, progress=False).genotype.one_line()}
