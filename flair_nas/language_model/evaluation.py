"""Trained language models on a text: perplexity, and the words for which two differ most (Li et al., ACL 2020)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from flair_nas.errors import FlairNasError
from flair_nas.language_model.perplexity import (
    StreamScore,
    compute_losses_by_sentence,
    compute_stream_losses,
    evaluate_stream,
    sum_sentence_losses,
)
from flair_nas.language_model.saved import SavedLanguageModel, encode_text, load_language_model
from flair_nas.language_model.text.corpus import END, UNKNOWN, unknown_share
from flair_nas.language_model.text.sources import TextSource
from flair_nas.runs.metric import to_perplexity


class TextScore(NamedTuple):
    """The score of a language model on a text."""

    loss: float  # mean nats per predicted token
    perplexity: float  # e to the loss
    tokens: int  # number of predicted tokens; each line ends in one
    unknown_share: float  # share of the words that the model does not know
    sentences: tuple[StreamScore, ...] = ()  # the score of each line if each was read by itself; else empty


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
    """Compute the perplexity of a trained model on a text, with the model's own vocabulary.

    Args:
        model: a loaded model, or a path that `load_language_model` takes.
        text: a folder, files by part or a Flair corpus, as `load_text` takes it; or one file, whatever the part.
        part: train, valid or test.
        batch_size: 1 is exact: each token is predicted from the whole text before it. More is faster and approximate:
            the text is cut into that many columns, each without context at its start.
        by_sentence: predict the tokens of each line, with its `END`, without the context of other lines. The loss of
            the text is the mean over all tokens.
        progress: draw a progress bar on standard error.
        device: device of a model that is given as a path.

    Raises:
        FlairNasError: a model or text that cannot be used, or `by_sentence` with a `batch_size`.
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


@dataclass(frozen=True)
class WordChange:
    """The losses of two models on a word."""

    word: str  # the word
    train_count: int  # number of occurrences in the text that the models were trained on
    occurrences: int  # number of occurrences in the text that they are compared on
    loss_a: float  # mean loss of the first model over these occurrences, in nats
    loss_b: float  # mean loss of the second model

    @property
    def difference(self) -> float:
        """loss_b - loss_a, negative if the second model is better."""
        return self.loss_b - self.loss_a


@dataclass(frozen=True)
class Comparison:
    """Two language models on the same text."""

    tokens: int  # number of tokens that each predicted
    loss_a: float  # mean loss of the first model, in nats
    loss_b: float  # mean loss of the second model
    words: tuple[WordChange, ...]  # every word of the text, by rising difference, then in the order of the vocabulary

    @property
    def difference(self) -> float:
        """loss_b - loss_a per token."""
        return self.loss_b - self.loss_a

    @property
    def unknown_share(self) -> float:
        """The share of words that are `UNKNOWN`; `END` does not count as a word."""
        counts = {word.word: word.occurrences for word in self.words}
        return counts.get(UNKNOWN, 0) / max(self.tokens - counts.get(END, 0), 1)

    def improved(self, top: int, min_occurrences: int = 1) -> list[WordChange]:
        """Return the `top` words whose loss falls most from the first model to the second, in order."""
        return [w for w in self.words if w.difference < 0 and w.occurrences >= min_occurrences][:top]

    def worsened(self, top: int, min_occurrences: int = 1) -> list[WordChange]:
        """Return the `top` words whose loss rises most from the first model to the second, in order."""
        return [w for w in reversed(self.words) if w.difference > 0 and w.occurrences >= min_occurrences][:top]

    def frequent(self, top: int) -> list[WordChange]:
        """Return the `top` most frequent words of the text."""
        return sorted(self.words, key=lambda word: -word.occurrences)[:top]

    def to_dict(self, top: int, min_occurrences: int = 1) -> dict[str, Any]:
        """Return the comparison as JSON data, with `top` words of each kind."""
        lists = {
            "improved": self.improved(top, min_occurrences),
            "worsened": self.worsened(top, min_occurrences),
            "frequent": self.frequent(top),
        }
        return {
            "tokens": self.tokens,
            "unknown_share": self.unknown_share,
            "loss_a": self.loss_a,
            "loss_b": self.loss_b,
            "difference": self.difference,
            "perplexity_a": to_perplexity(self.loss_a),
            "perplexity_b": to_perplexity(self.loss_b),
            **{name: [dataclasses.asdict(w) | {"difference": w.difference} for w in ws] for name, ws in lists.items()},
        }


def compare_language_models(
    a: SavedLanguageModel | str | Path,
    b: SavedLanguageModel | str | Path,
    text: TextSource,
    *,
    part: str = "test",
    progress: bool = False,
    device: torch.device | str = "cpu",
) -> Comparison:
    """Compare two trained language models word by word, exactly (batch size 1); see table 3 of Li et al. (ACL 2020).

    Args:
        a: the first model, loaded or as a path that `load_language_model` takes.
        b: the second model, loaded or as a path.
        text: a folder, files by part or a Flair corpus, as `load_text` takes it; or one file, whatever the part.
        part: train, valid or test.
        progress: draw progress bars on standard error.
        device: device of models that are given as paths.

    Raises:
        FlairNasError: models or text that cannot be used, or models of different vocabularies.
    """
    models = [m if isinstance(m, SavedLanguageModel) else load_language_model(m, device) for m in (a, b)]
    vocabulary = models[0].vocabulary
    _check_same_words(vocabulary.words, models[1].vocabulary.words)
    ids = encode_text(text, vocabulary, models[0].config, part=part)
    first = vocabulary.index(END)
    losses = [
        compute_stream_losses(saved.model, ids, first=first, progress=progress).astype(np.float64) for saved in models
    ]
    occurrences = np.bincount(ids, minlength=len(vocabulary))
    sums = [np.bincount(ids, weights=weights, minlength=len(vocabulary)) for weights in losses]
    present = np.flatnonzero(occurrences)
    means = [total[present] / occurrences[present] for total in sums]
    order = np.argsort(means[1] - means[0], kind="stable")
    words = tuple(
        WordChange(vocabulary.words[i], vocabulary.counts[i], int(occurrences[i]), float(loss_a), float(loss_b))
        for i, loss_a, loss_b in zip(present[order], *(mean[order] for mean in means))
    )
    return Comparison(len(ids), float(losses[0].mean()), float(losses[1].mean()), words)


def _check_same_words(a: tuple[str, ...], b: tuple[str, ...]) -> None:
    if a == b:
        return
    number = next((place for place, pair in enumerate(zip(a, b)) if pair[0] != pair[1]), min(len(a), len(b)))
    shown = [repr(words[number]) if number < len(words) else "nothing" for words in (a, b)]
    raise FlairNasError(
        f"the models have different vocabularies, so their losses cannot be compared: {len(a):,} types and "
        f"{len(b):,}; the first difference is id {number}, {shown[0]} and {shown[1]}. Train both on the same text "
        "with the same vocabulary settings"
    )
