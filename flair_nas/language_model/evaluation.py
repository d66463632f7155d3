"""Perplexity of a trained language model on a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from flair_nas.language_model.corpus import END
from flair_nas.language_model.perplexity import StreamScore, evaluate_stream
from flair_nas.language_model.saved import SavedLanguageModel, encode_text, load_language_model


def evaluate_language_model(
    model: SavedLanguageModel | str | Path,
    text: Any,
    *,
    part: str = "test",
    batch_size: int = 1,
    progress: bool = False,
    device: torch.device | str = "cpu",
) -> StreamScore:
    """Measures the perplexity of a trained model on a text, in the words of the model's own vocabulary.

    Args:
        model: what `load_language_model` gives or takes.
        text: a folder, files by part or a Flair corpus, as for `load_text`; or one file, whatever the part.
        part: train, valid or test.
        batch_size: 1 is exact: every token is predicted once from all that come before it. More is faster and
            approximate: the text is cut into that many columns, each without context at its start.
        progress: draw a progress bar on standard error.
        device: where to load a model that is given by its path; one that is loaded stays where it is.

    Raises:
        FlairNasError: a model or text that cannot be used.
    """
    saved = model if isinstance(model, SavedLanguageModel) else load_language_model(model, device)
    ids = encode_text(text, saved.vocabulary, part=part, lowercase=saved.config.lowercase)
    first = saved.vocabulary.index(END)
    return evaluate_stream(saved.model, ids, batch_size=batch_size, first=first, progress=progress)
