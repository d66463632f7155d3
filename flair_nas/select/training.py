"""What a process of a selection does: one tagger, a rung further."""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flair_nas.search.tagging_config import TaggingSearchConfig
from flair_nas.tagging.config import TaggerConfig


@functools.lru_cache(maxsize=1)
def _corpus(corpus: str, label_type: str | None, columns: str | None, data_root: str | None) -> Any:
    """Kept for the next tagger of this process, with the vectors of its words."""
    from flair_nas.tagging.training import load_corpus_of

    return load_corpus_of(TaggerConfig(corpus=corpus, label_type=label_type, columns=columns, data_root=data_root))


def corpus_of(config: TaggerConfig | TaggingSearchConfig) -> Any:
    """The corpus that the settings name, read once in this process."""
    return _corpus(config.corpus, config.label_type, config.columns, config.data_root)


def train(settings: dict[str, Any], folder: str, parts: Sequence[str]) -> dict[str, Any]:
    """Trains a tagger of one seed, or goes on with it.

    Args:
        settings: of a `TaggerConfig`.
        folder: of its run.
        parts: of the corpus, that it is scored on at the end.

    Returns:
        For the ledger, as JSON data: ``dev`` and ``dev_loss``, F1 and loss after each epoch; ``seconds`` of these, with
        evaluation; ``around_seconds``, of what was done now besides; ``exhausted``, whether its learning rate has come
        to its end; ``scored``, the parts; ``test``; ``parameters`` of the layer; ``peak_memory_mb`` of this job.
    """
    from flair_nas.device import forget_peak_memory
    from flair_nas.tagging.training import train_taggers  # loads Flair, which then may be told to be quiet

    config = TaggerConfig(**settings)
    be_quiet()
    corpus = corpus_of(config)
    forget_peak_memory()
    started = time.perf_counter()
    before = len(_history(Path(folder), config.seeds[0]))
    (result,) = train_taggers(config, folder, corpus=corpus, parts=parts, progress=False)["seeds"]
    history = _history(Path(folder), config.seeds[0])
    seconds = [line["seconds"] + line["evaluation_seconds"] for line in history]
    return {
        "dev": [line["dev_f1"] for line in history],
        "dev_loss": [line["dev_loss"] for line in history],
        "seconds": seconds,
        "around_seconds": max(0.0, time.perf_counter() - started - sum(seconds[before:])),
        "exhausted": result["learning_rate_exhausted"],
        "scored": list(parts),
        "test": result["test_f1"],
        "parameters": result["rnn_parameters"],
        "peak_memory_mb": result["peak_memory_mb"],
    }


def search(settings: dict[str, Any], folder: str) -> dict[str, Any]:
    """Searches a cell on a corpus, or goes on with it.

    Args:
        settings: of a `TaggingSearchConfig`.
        folder: of its run.

    Returns:
        For the ledger, as JSON data: ``genotype``, on one line.
    """
    from flair_nas.search.objectives import tagging  # noqa: F401  # loads Flair, which then may be told to be quiet
    from flair_nas.search.trainer import search_genotype

    be_quiet()
    config = TaggingSearchConfig(**settings)
    corpus = corpus_of(config)
    return {"genotype": search_genotype(config, folder, text=corpus, progress=False).genotype.one_line()}


def be_quiet() -> None:
    """Lets nothing but errors be said by this process; what was worth a remark, the main process has said."""
    logging.getLogger("flair").setLevel("ERROR")
    logging.getLogger("flair_nas").setLevel("ERROR")


def _history(folder: Path, seed: int) -> list[dict[str, Any]]:
    path = folder / f"seed-{seed}" / "history.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]
