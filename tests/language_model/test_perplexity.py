"""Perplexity: exact at batch 1 whatever the segments, approximate and complete in columns."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.language_model import perplexity
from flair_nas.language_model.model import LanguageModel
from flair_nas.language_model.perplexity import (
    compute_losses_by_sentence,
    compute_stream_losses,
    evaluate_stream,
    to_perplexity,
)
from flair_nas.nn.searched_rnn import SearchedRNN

VOCABULARY, SIZE, LENGTH = 13, 5, 101
STREAM = np.random.default_rng(0).integers(0, VOCABULARY, LENGTH).astype(np.int32)
GATED = Genotype.parse("tanh0-relu1/state=tanh-relu+tanh1/input=tanh-sigmoid")


def build(layer: str = "gates") -> LanguageModel:
    torch.manual_seed(3)
    module = nn.LSTM(SIZE, SIZE) if layer == "lstm" else SearchedRNN(SIZE, SIZE, GATED, init_range=0.6)
    return LanguageModel(VOCABULARY, SIZE, SIZE, module, dropout=0.5, word_dropout=0.2, init_range=0.9).double()


def plain_losses(model: LanguageModel, stream: np.ndarray) -> list[float]:
    """Each token from the one before it, a call of the layer per token."""
    model.eval()
    state, losses = None, []
    for before, after in zip(stream[:-1], stream[1:]):
        output, state = model.layer(model.embedding.weight[int(before)].view(1, 1, -1), state)
        scores = model.decoder(output)[0, 0]
        losses.append((scores.logsumexp(0) - scores[int(after)]).item())
    model.train()
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["gates", "lstm"])
@pytest.mark.parametrize("bptt", [1, 7, None])
def test_batch_1_is_exact_whatever_the_segments(layer: str, bptt: int | None) -> None:
    model = build(layer)
    losses = plain_losses(model, STREAM)
    score = evaluate_stream(model, STREAM, bptt=bptt)
    assert score.tokens == LENGTH - 1
    assert score.loss == pytest.approx(sum(losses) / len(losses), rel=1e-12)
    assert score.perplexity == pytest.approx(math.exp(score.loss))
    np.testing.assert_allclose(compute_stream_losses(model, STREAM), losses, rtol=1e-6)


def test_a_first_token_has_every_token_predicted() -> None:
    model = build()
    losses = plain_losses(model, np.concatenate([[4], STREAM]))
    assert evaluate_stream(model, STREAM, first=4).tokens == LENGTH
    assert evaluate_stream(model, STREAM, first=4).loss == pytest.approx(sum(losses) / LENGTH, rel=1e-12)
    np.testing.assert_allclose(compute_stream_losses(model, STREAM, first=4), losses, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("bptt", [3, None])
def test_columns_begin_without_context_and_leave_out_the_rest(bptt: int | None) -> None:
    model, batch = build(), 7
    length = (LENGTH - 1) // batch
    columns = [STREAM[b * length : (b + 1) * length + 1] for b in range(batch)]
    losses = [loss for column in columns for loss in plain_losses(model, column)]
    score = evaluate_stream(model, STREAM, batch_size=batch, bptt=bptt)
    assert score.tokens == len(losses) == batch * length
    assert score.loss == pytest.approx(sum(losses) / len(losses), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("layer", ["gates", "lstm"])
@pytest.mark.parametrize("at_once", [1, 30, 2048])
def test_each_sentence_has_the_losses_that_it_has_alone(
    layer: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perplexity, "TOKENS_AT_ONCE", at_once)
    model, end = build(layer), 4
    ids = np.concatenate([STREAM, [end, end, 1, 2, end]]).astype(np.int32)  # an empty one among them
    sentences = np.split(ids, np.flatnonzero(ids == end)[:-1] + 1)
    alone = [plain_losses(model, np.concatenate([[end], sentence])) for sentence in sentences]
    losses = compute_losses_by_sentence(model, ids, end)
    np.testing.assert_allclose(losses, np.concatenate(alone), rtol=1e-6)
    expected = [(sum(of_one), len(of_one)) for of_one in alone]
    np.testing.assert_allclose(perplexity.sum_sentence_losses(losses, ids == end), expected, rtol=1e-6)


def test_a_tensor_or_a_memory_map_is_a_stream_too(tmp_path) -> None:
    model = build()
    np.save(tmp_path / "ids.npy", STREAM)
    mapped = np.load(tmp_path / "ids.npy", mmap_mode="r")
    expected = evaluate_stream(model, STREAM)
    assert evaluate_stream(model, mapped) == expected
    assert evaluate_stream(model, torch.tensor(STREAM)) == expected


def test_evaluation_leaves_mode_gradients_and_random_numbers_alone() -> None:
    model = build()
    model.train()
    before = torch.get_rng_state()
    first, second = evaluate_stream(model, STREAM), evaluate_stream(model, STREAM)
    assert first == second  # no dropout
    assert model.training and model.layer.training
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    model.eval()
    evaluate_stream(model, STREAM)
    assert not model.training


def test_too_short_a_stream_is_refused_with_what_to_do() -> None:
    with pytest.raises(FlairNasError, match="9 tokens to predict are too few for an evaluation batch of 10 columns"):
        evaluate_stream(build(), STREAM[:10], batch_size=10)
    with pytest.raises(FlairNasError, match="0 tokens to predict"):
        evaluate_stream(build(), STREAM[:1])
    assert evaluate_stream(build(), STREAM[:1], first=0).tokens == 1


def test_a_perplexity_too_large_for_a_float_is_infinite() -> None:
    assert to_perplexity(1e4) == math.inf and to_perplexity(0.0) == 1.0 and math.isnan(to_perplexity(math.nan))
