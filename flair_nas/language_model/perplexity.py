"""Perplexity of a language model on a stream of tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from flair_nas.errors import FlairNasError
from flair_nas.language_model.model import LanguageModel, detach
from flair_nas.runs.metric import to_perplexity

TOKENS_AT_ONCE = 2048
"""Tokens per forward pass by default, over all columns. Fewer make the product of the softmax slow."""


class StreamScore(NamedTuple):
    """The score of a model on a stream."""

    loss: float  # mean nats per predicted token
    perplexity: float  # e to the loss
    tokens: int  # number of predicted tokens


def evaluate_stream(
    model: LanguageModel,
    ids: NDArray[np.integer[Any]] | Tensor,
    *,
    batch_size: int = 1,
    bptt: int | None = None,
    first: int | None = None,
    progress: bool = False,
) -> StreamScore:
    """Compute the perplexity of a model on a stream.

    Args:
        model: evaluated without dropout; it keeps its mode.
        ids: the stream, [tokens].
        batch_size: columns of the stream. 1 is exact. More are faster and approximate: each column begins without
            context, and up to batch_size - 1 tokens at the end are left out.
        bptt: steps per forward pass; it changes only time and memory.
        first: id to read before the stream, such as `END`. The first token is then predicted too.
        progress: draw a progress bar on standard error.

    Raises:
        FlairNasError: there are fewer tokens than columns.
    """
    tokens, targets = _columns(ids, batch_size, first)  # [T, B] each
    steps = bptt or max(1, TOKENS_AT_ONCE // batch_size)
    with _bar(targets.numel(), progress) as bar:
        segments = _losses(model, tokens, targets, steps, bar)
        sums = [float(losses.double().sum()) for losses in segments]
    loss = math.fsum(sums) / targets.numel()
    return StreamScore(loss, to_perplexity(loss), targets.numel())


def compute_stream_losses(
    model: LanguageModel, ids: NDArray[np.integer[Any]] | Tensor, *, first: int | None = None
) -> NDArray[np.float32]:
    """Compute the exact loss of each token of a stream in nats: [tokens], or [tokens - 1] without `first`."""
    tokens, targets = _columns(ids, 1, first)  # [T, 1] each
    with _bar(len(targets), False) as bar:
        losses = torch.cat(list(_losses(model, tokens, targets, TOKENS_AT_ONCE, bar)))
    values: NDArray[np.float32] = losses[:, 0].float().cpu().numpy()
    return values


def compute_losses_by_sentence(
    model: LanguageModel, ids: NDArray[np.integer[Any]], end: int, *, progress: bool = False
) -> NDArray[np.float32]:
    """Compute the loss [tokens] of each token in nats, without the context of earlier sentences.

    Sentences of similar lengths are read side by side. Padding follows a sentence, so it changes no loss. The id `end`
    ends a sentence, and is read before the first token of each.
    """
    stops = np.append(np.flatnonzero(ids[:-1] == end), len(ids) - 1) + 1
    starts = np.concatenate([[0], stops[:-1]])
    lengths = stops - starts
    losses = np.empty(len(ids), dtype=np.float32)
    order = np.argsort(lengths, kind="stable")
    with _bar(len(ids), progress) as bar:
        while len(order):
            sizes = np.arange(1, len(order) + 1) * lengths[order]  # of batches of the 1, 2, ... shortest sentences
            batch, order = np.split(order, [max(1, int(np.sum(sizes <= TOKENS_AT_ONCE)))])
            steps = np.arange(lengths[batch[-1]])[:, None]  # [T, 1]
            real = steps < lengths[batch]  # [T, B]
            rows = starts[batch] + np.minimum(steps, lengths[batch] - 1)  # [T, B]
            targets = torch.from_numpy(ids[rows].astype(np.int64))  # [T, B]
            tokens = torch.cat([torch.full_like(targets[:1], end), targets[:-1]])  # [T, B]
            values = torch.cat(list(_losses(model, tokens, targets, max(1, TOKENS_AT_ONCE // len(batch)), bar)))
            losses[rows[real]] = values.float().cpu().numpy()[real]
    return losses


def sum_sentence_losses(losses: NDArray[Any], ends: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return sum and number [sentences, 2] of losses [tokens]. `ends` [tokens] is True where a sentence ends."""
    starts = np.flatnonzero(np.concatenate([[True], ends[:-1]]))
    lengths = np.diff(np.append(starts, len(losses)))
    return np.stack([np.add.reduceat(losses.astype(np.float64), starts), lengths], axis=1)


def _bar(tokens: int, progress: bool) -> tqdm[Any]:
    return tqdm(total=tokens, desc="evaluating", unit="token", disable=not progress, leave=False)


def _losses(model: LanguageModel, tokens: Tensor, targets: Tensor, steps: int, bar: tqdm[Any]) -> Iterator[Tensor]:
    """Yield the losses [steps, B] of one block of steps after another."""
    device, training, state = next(model.parameters()).device, model.training, None
    model.eval()
    try:
        for start in range(0, len(targets), steps):
            piece = slice(start, start + steps)
            # entered anew for each segment: a generator must not leave its caller in inference mode
            with torch.inference_mode():
                output, _, state = model(tokens[piece].to(device), state)
                state = detach(state)
                losses = model.token_losses(output, targets[piece].to(device))
            bar.update(losses.numel())
            yield losses
    finally:
        model.train(training)


def _columns(ids: NDArray[np.integer[Any]] | Tensor, batch_size: int, first: int | None) -> tuple[Tensor, Tensor]:
    """Return inputs and targets, [T, B] each; column b is a contiguous piece of the stream."""
    stream = np.array(ids, dtype=np.int64) if first is None else np.append(np.int64(first), ids)
    predicted = max(len(stream) - 1, 0)
    length = predicted // batch_size
    if not length:
        columns = f"an evaluation batch of {batch_size} columns"
        raise FlairNasError(f"{predicted} tokens to predict are too few for {columns}; set fewer, or give more text")
    pieces = (torch.from_numpy(piece[: length * batch_size]) for piece in (stream[:-1], stream[1:]))
    inputs, targets = (piece.view(batch_size, length).t() for piece in pieces)  # [T, B] each
    return inputs, targets
