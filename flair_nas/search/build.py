"""From settings and text to the model that is searched, and its objective."""

from __future__ import annotations

from typing import Any

import torch
from accelerate import Accelerator

from flair_nas.errors import FlairNasError
from flair_nas.language_model.corpus import TextCorpus, load_text
from flair_nas.language_model.model import LanguageModel
from flair_nas.search.config import SearchConfig
from flair_nas.search.objective import TextObjective
from flair_nas.supernet import CellSupernet, InterCellSupernet


def read_text(config: SearchConfig, text: Any = None, progress: bool = False) -> TextCorpus:
    """The text that the settings name, or the one given, as token ids.

    Raises:
        FlairNasError: there is none, or it cannot be used.
    """
    source = config.text if text is None else text
    if source is None:
        raise FlairNasError("no text: give a folder with train and valid text with --text DIR (or --text demo)")
    return load_text(
        source,
        vocabulary_size=config.vocabulary_size,
        min_count=config.min_count,
        lowercase=config.lowercase,
        valid_share=config.valid_share,
        progress=progress,
    )


def build_objective(config: SearchConfig, corpus: TextCorpus, accelerator: Accelerator) -> TextObjective:
    """The language model with the supernet that the settings describe, on its device; seeds the generators."""
    columns = config.batch_size // (config.parts * accelerator.num_processes)
    if config.strategy == "gradient" and config.learn != "inter" and columns < 2:
        raise FlairNasError(
            f"batch_size {config.batch_size} leaves less than 2 sequences in a part of a process, with "
            f"{accelerator.num_processes} processes and {config.parts} parts each: batch normalisation needs 2"
        )
    torch.manual_seed(config.seed)
    dropouts: dict[str, Any] = {
        "input_dropout": config.input_dropout,
        "recurrent_dropout": config.recurrent_dropout,
    }
    size, fixed = config.hidden_size, config.fixed_genotype()
    supernet: CellSupernet | InterCellSupernet
    if config.learn == "inter":
        assert fixed is not None
        supernet = InterCellSupernet(size, size, fixed, config.history, config.relaxation, gate=config.gate, **dropouts)
    else:
        supernet = CellSupernet(
            size,
            size,
            config.nodes,
            config.relaxation,
            history=config.history,
            gate=config.gate,
            fixed_gates=fixed,
            **dropouts,
        )
    if config.adaptive_cutoffs and config.adaptive_cutoffs[-1] >= len(corpus.vocabulary) - 1:
        raise FlairNasError(
            f"adaptive_cutoffs must be below {len(corpus.vocabulary) - 1:,}, the vocabulary having "
            f"{len(corpus.vocabulary):,} types; got {config.adaptive_cutoffs}"
        )
    try:
        model = LanguageModel(
            len(corpus.vocabulary),
            size,
            size,
            supernet,
            dropout=config.dropout,
            embedding_dropout=config.embedding_dropout,
            adaptive_cutoffs=config.adaptive_cutoffs,
        ).to(accelerator.device)
    except ValueError as error:
        raise FlairNasError(f"cannot build a model of {len(corpus.vocabulary):,} types: {error}") from None
    if accelerator.num_processes > 1:  # the same first weights, then other dropout masks
        torch.manual_seed(config.seed + 1 + accelerator.process_index)
    return TextObjective(
        model,
        corpus,
        batch_size=config.batch_size,
        bptt=config.bptt,
        vary_length=config.vary_length,
        slowness=config.slowness,
        parts=config.parts,
        seed=config.seed,
        rank=accelerator.process_index,
        processes=accelerator.num_processes,
        autocast=accelerator.autocast,
    )
