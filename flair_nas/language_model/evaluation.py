"""Perplexity of trained language models on a text."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from flair_nas.errors import FlairNasError
from flair_nas.language_model.perplexity import (
    StreamScore,
    compute_losses_by_sentence,
    evaluate_stream,
    sum_sentence_losses,
)
from flair_nas.language_model.saved import SavedLanguageModel, encode_text, load_language_model
from flair_nas.language_model.text.corpus import END, unknown_share
from flair_nas.language_model.text.sources import TextSource
from flair_nas.runs.metric import to_perplexity


class TextScore(NamedTuple):
    """The score of a language model on a text."""

    loss: float  # mean nats per predicted token
    perplexity: float  # e to the loss
    tokens: int  # number of predicted tokens; each line ends in one
    unknown_share: float  # share of the words that the model does not know
    sentences: tuple[StreamScore, ...] = ()  # the score of each line, with `by_sentence`


def evaluate_language_model(
    model: SavedLanguageModel | str | Path,
    text: TextSource,
    *,
    part: str = "test",
    batch_size: int = 1,
    by_sentence: bool = False,
    progress: bool = False,
    device: torch.device | str = "cpu",
) -> TextScore:
    """Compute the perplexity of a trained model on a text. The vocabulary is the model's.

    Args:
        model: a loaded model, or a path that `load_language_model` takes.
        text: a text that `load_text` takes (a folder, files by part, a Flair corpus), or one file, which is read whole.
        part: train, valid or test.
        batch_size: columns of the text. 1 is exact: each token is predicted from the whole text before it. More are
            faster and approximate: each column begins without context.
        by_sentence: predict the tokens of each line, with its `END`, without the context of other lines. The loss of
            the text is the mean over all tokens.
        progress: draw a progress bar on standard error.
        device: device of a model that is given as a path.

    Raises:
        FlairNasError: the model or text cannot be used, or `by_sentence` has a `batch_size`.

    Example:
        The folder is that of the example of `train_language_model`.

        >>> from flair_nas import evaluate_language_model
        >>> evaluate_language_model("runs/words", "demo", batch_size=16).perplexity > 1
        True
    """
    if by_sentence and batch_size != 1:
        raise FlairNasError(f"by_sentence reads each line by itself; leave out batch_size, which is {batch_size}")
    saved = model if isinstance(model, SavedLanguageModel) else load_language_model(model, device)
    ids = encode_text(text, saved.vocabulary, saved.config, part=part)
    end, share = saved.vocabulary.index(END), unknown_share(ids, saved.vocabulary)
    if not by_sentence:
        score = evaluate_stream(saved.model, ids, batch_size=batch_size, first=end, progress=progress)
        return TextScore(*score, share)
    sums = sum_sentence_losses(compute_losses_by_sentence(saved.model, ids, end, progress=progress), ids == end)
    means = [(total / count, int(count)) for total, count in [*sums.tolist(), sums.sum(0).tolist()]]
    *sentences, whole = (StreamScore(loss, to_perplexity(loss), tokens) for loss, tokens in means)
    return TextScore(*whole, share, tuple(sentences))
