"""Bits per character of Flair's character models."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import flair
import torch
from flair.models import LanguageModel
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from flair_nas.embedding.character_model.text import characters_of, encode_characters
from flair_nas.errors import FlairNasError
from flair_nas.language_model.saved import encode_text
from flair_nas.language_model.text.config import TextSettings
from flair_nas.language_model.text.corpus import END, UNKNOWN, Ids, Vocabulary, batchify, unknown_share
from flair_nas.language_model.text.sources import TextSource
from flair_nas.runs.metric import to_bits
from flair_nas.tagging.data.character_models import load_character_model


class CharacterScore(NamedTuple):
    """The score of a character model on a text."""

    loss: float  # mean nats per predicted character
    bits: float  # the same in bits
    characters: int  # number of predicted characters
    unknown_share: float  # share of the characters, without ends of lines, that the model does not know
    flair_loss: float  # loss of Flair's trainer, which divides by one row too many


@torch.no_grad()
def evaluate_columns(model: LanguageModel, columns: Tensor, bptt: int, progress: bool = False) -> float:
    """Return the mean loss in nats of all characters but the first of each column of ids [T, B], without dropout.

    `bptt`, the steps of a forward pass, changes only time and memory.
    """
    training = model.training
    model.eval()
    hidden, total, targets = model.init_hidden(columns.shape[1]), 0.0, columns[1:]  # [T - 1, B]
    try:
        with tqdm(total=targets.numel(), desc="evaluating", unit="char", disable=not progress, leave=False) as bar:
            for start in range(0, len(targets), bptt):
                expected = targets[start : start + bptt].to(flair.device, torch.long)
                tokens = columns[start : start + len(expected)].to(flair.device, torch.long)
                scores, _, hidden = model.forward(tokens, hidden)  # [T, B, V]
                total += float(functional.cross_entropy(scores.flatten(0, 1), expected.flatten(), reduction="sum"))
                bar.update(expected.numel())
    finally:
        model.train(training)
    return total / targets.numel()


def score_ids(
    model: LanguageModel, ids: Ids, vocabulary: Vocabulary, batch_size: int, progress: bool = False
) -> CharacterScore:
    """Score ids of a vocabulary of characters, in columns that begin without context."""
    encoded = encode_characters(ids, vocabulary.words, model.dictionary)
    columns = batchify(encoded[:: 1 if model.is_forward_lm else -1], batch_size)
    loss = evaluate_columns(model, columns, 512, progress)
    if not math.isfinite(loss):
        raise FlairNasError(f"not finite: the loss is {loss:g}; train in a new folder with a lower learning_rate")
    rows, unknown = len(columns), unknown_share(ids, vocabulary)
    return CharacterScore(loss, to_bits(loss), columns[1:].numel(), unknown, loss * (rows - 1) / rows)


def evaluate_character_model(
    model: LanguageModel | str | Path,
    text: TextSource,
    *,
    part: str = "test",
    batch_size: int = 10,
    progress: bool = False,
) -> CharacterScore:
    """Compute the bits per character of a character model on a text.

    Args:
        model: a model of Flair's, or a path that `load_character_model` takes.
        text: a text that `load_text` takes (a folder, files by part, a Flair corpus), or one file, which is read whole.
            Empty lines are skipped.
        part: train, valid or test.
        batch_size: columns of the text, each without context at its beginning. 1 is exact and slow.
        progress: draw a progress bar on standard error.

    Raises:
        FlairNasError: the model or text cannot be used.

    Example:
        The folder is that of the example of `train_character_models`.

        >>> from flair_nas import evaluate_character_model
        >>> model = "runs/characters/forward/model.safetensors"
        >>> evaluate_character_model(model, "demo", batch_size=50).bits > 0
        True
    """
    model = model if isinstance(model, LanguageModel) else load_character_model(model)
    if batch_size < 1:
        raise FlairNasError(f"batch_size must be at least 1, got {batch_size}")
    if model.decoder is None:
        raise FlairNasError("the model has no decoder, so it predicts nothing; it was saved for embeddings alone")
    known = characters_of(model.dictionary)
    vocabulary = Vocabulary((UNKNOWN, END, *known), (0,) * (len(known) + 2))
    ids = encode_text(text, vocabulary, TextSettings(unit="char"), part=part)
    return score_ids(model, ids, vocabulary, batch_size, progress=progress)
