"""The language model: its loss against plain sums, its dropouts, its states."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flair_nas.genotype import Genotype
from flair_nas.language_model.model import LanguageModel
from flair_nas.nn.searched_rnn import SearchedRNN

VOCABULARY, SIZE, STEPS, BATCH = 11, 6, 7, 3
GENOTYPE = Genotype.parse("tanh0-relu1+identity0/state=tanh-relu+tanh1/input=tanh-sigmoid")


def tokens(steps: int = STEPS, batch: int = BATCH, seed: int = 0) -> Tensor:
    return torch.randint(VOCABULARY, (steps, batch), generator=torch.Generator().manual_seed(seed))


def build(layer: nn.Module | None = None, **changes: Any) -> LanguageModel:
    torch.manual_seed(1)
    layer = SearchedRNN(SIZE, SIZE, GENOTYPE, init_range=0.5) if layer is None else layer
    options: dict[str, Any] = {"dropout": 0.0, "embedding_dropout": 0.0, "init_range": 0.8}
    return LanguageModel(VOCABULARY, SIZE, SIZE, layer, **(options | changes)).double()


class Recorder(nn.Module):
    """A layer that hands its input on, and remembers it."""

    def forward(self, input: Tensor, state: Any) -> tuple[Tensor, Any]:
        self.input = input
        return input, state


def plain_losses(model: LanguageModel, output: Tensor, targets: Tensor) -> list[float]:
    """Minus log of softmax, a token at a time."""
    losses = []
    weights, biases = model.decoder.weight.detach(), model.decoder.bias.detach()
    for row, wanted in zip(output.detach().flatten(0, 1), targets.flatten()):
        scores = [float((row * w).sum() + b) for w, b in zip(weights, biases)]
        total = sum(2.718281828459045**score for score in scores)
        losses.append(-float(torch.log(torch.tensor(2.718281828459045 ** scores[wanted] / total, dtype=torch.float64))))
    return losses


@pytest.mark.parametrize("tied", [True, False])
def test_the_loss_is_the_mean_of_plain_cross_entropies_and_the_penalties(tied: bool) -> None:
    model = build(tied=tied)
    assert (model.decoder.weight is model.embedding.weight) == tied
    inputs, targets = tokens(), tokens(seed=1)
    with torch.no_grad():
        raw, _ = model.layer(torch.stack([torch.stack([model.embedding.weight[i] for i in row]) for row in inputs]))
    expected = sum(plain_losses(model, raw, targets)) / (STEPS * BATCH)
    found = model.loss(inputs, targets, activation=2.0, slowness=3.0)
    squares = sum(float(value) ** 2 for value in raw.flatten()) / raw.numel()
    steps = [float(value) ** 2 for value in (raw[1:] - raw[:-1]).flatten()]
    assert found.cross_entropy.item() == pytest.approx(expected, rel=1e-12)
    penalties = 2 * squares + 3 * sum(steps) / len(steps)
    assert found.total.item() == pytest.approx(expected + penalties, rel=1e-12)
    assert model.loss(inputs, targets).total.item() == pytest.approx(expected, rel=1e-12)


def test_the_plain_equations_give_the_same_and_can_be_differentiated_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, targets = tokens(), tokens(seed=1)
    model = build(Recorder())
    losses, gradients = [], []
    for setting in ("auto", "plain"):
        monkeypatch.setenv("FLAIR_NAS_KERNELS", setting)
        losses.append(model.loss(inputs, targets).total)
        gradients += torch.autograd.grad(losses[-1], model.embedding.weight, create_graph=setting == "plain")
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-12)
    torch.testing.assert_close(gradients[0], gradients[1].detach(), rtol=1e-10, atol=1e-14)
    (second,) = torch.autograd.grad(gradients[1].square().sum(), model.embedding.weight)
    assert second.abs().sum() > 0


@pytest.mark.parametrize("cutoffs", [(), (5,)])
def test_the_losses_of_tokens_are_the_same_with_and_without_gradients(cutoffs: tuple[int, ...]) -> None:
    model = build(adaptive_cutoffs=cutoffs)
    output, targets = model(tokens())[0], tokens(seed=1)
    losses = model.token_losses(output, targets)
    assert losses.shape == targets.shape and losses.requires_grad
    with torch.no_grad():
        torch.testing.assert_close(model.token_losses(output, targets), losses.detach(), rtol=1e-12, atol=0)
    assert model.loss(tokens(), targets).cross_entropy.item() == pytest.approx(losses.mean().item(), rel=1e-12)


def test_an_adaptive_softmax_equals_pytorchs() -> None:
    model = LanguageModel(40, 16, 16, Recorder(), dropout=0, adaptive_cutoffs=[4, 9]).double()
    output = torch.randn(5, 3, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[0, 3, 4], [8, 9, 39], [1, 2, 3], [10, 20, 30], [5, 6, 7]])
    theirs = -model.adaptive(output.flatten(0, 1), targets.flatten()).output.view(5, 3)
    torch.testing.assert_close(model.token_losses(output, targets), theirs, rtol=1e-12, atol=0)
    first = targets[:1, :2]  # no word of a cluster
    torch.testing.assert_close(model.token_losses(output[:1, :2], first), theirs[:1, :2], rtol=1e-12, atol=0)


def test_an_adaptive_softmax_gives_probabilities_and_is_not_tied() -> None:
    model = build(adaptive_cutoffs=[5])
    assert not model.tied
    output = model(tokens(1, 1))[0]  # [1, 1, H]
    every = torch.arange(VOCABULARY)[:, None]  # [V, 1]
    losses = model.token_losses(output.expand(VOCABULARY, 1, SIZE), every)
    assert torch.exp(-losses).sum().item() == pytest.approx(1)
    assert losses.std() > 0.01
    model.loss(tokens(), tokens(seed=1)).total.backward()
    trained = [model.embedding.weight, model.layer.cells[0].weight_input, *model.adaptive.parameters()]
    assert all(parameter.grad.abs().sum() > 0 for parameter in trained)


def test_the_activation_penalty_sees_dropped_outputs_and_the_slowness_penalty_does_not() -> None:
    model = build(Recorder(), dropout=0.5)
    inputs = tokens()
    torch.manual_seed(5)
    dropped, raw, _ = model(inputs)
    torch.manual_seed(5)
    loss = model.loss(inputs, inputs, activation=1.0, slowness=1.0)
    penalties = dropped.square().mean() + (raw[1:] - raw[:-1]).square().mean()
    assert (loss.total - loss.cross_entropy).item() == pytest.approx(penalties.item())
    assert not torch.equal(dropped, raw)


def test_a_segment_of_one_step_has_no_slowness() -> None:
    loss = build().loss(tokens(1), tokens(1, seed=1), slowness=5.0)
    assert torch.isfinite(loss.total) and loss.total.item() == loss.cross_entropy.item()


@pytest.mark.parametrize("where", ["output", "embedding"])
def test_variational_dropout_has_one_mask_per_sequence_and_keeps_the_mean(where: str) -> None:
    rate, size = 0.75, 400
    recorder = Recorder()
    torch.manual_seed(2)
    rates = {"dropout": rate if where == "output" else 0.0, "embedding_dropout": rate if where == "embedding" else 0.0}
    model = LanguageModel(VOCABULARY, size, size, recorder, **rates)
    nn.init.ones_(model.embedding.weight)
    output = model(tokens(5, 8))[0]
    assert torch.equal(output, output[:1].expand_as(output))  # the same at each step
    masks = output[0]  # [B, E]
    assert not any(torch.equal(masks[0], mask) for mask in masks[1:])  # another for each sequence
    assert sorted(set(masks.flatten().tolist())) == [0.0, 4.0]
    assert (masks == 0).float().mean().item() == pytest.approx(rate, abs=0.04)
    model.eval()
    assert torch.equal(model(tokens(5, 8))[0], torch.ones(5, 8, size))


def test_word_dropout_drops_types_whole_and_everywhere() -> None:
    recorder = Recorder()
    model = LanguageModel(2000, 4, 4, recorder, dropout=0, embedding_dropout=0, word_dropout=0.25)
    nn.init.ones_(model.embedding.weight)
    ids = torch.arange(2000).repeat(2).view(2, 2000)  # each type twice
    seen = model(ids)[0]
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen, seen[..., :1].expand_as(seen))
    kept = seen[0, :, 0]
    torch.testing.assert_close(kept.unique(), torch.tensor([0, 4 / 3]))
    assert (kept == 0).float().mean().item() == pytest.approx(0.25, abs=0.05)
    model.eval()
    assert torch.equal(model(ids)[0], torch.ones(2, 2000, 4))


@pytest.mark.parametrize("layer", ["gates", "lstm"])
def test_a_state_carries_over_segments_and_is_cut_from_the_graph(layer: str) -> None:
    model = build(nn.LSTM(SIZE, SIZE) if layer == "lstm" else None)
    inputs, targets = tokens(9), tokens(9, seed=1)
    whole = model.loss(inputs, targets)
    first = model.loss(inputs[:4], targets[:4])
    second = model.loss(inputs[4:], targets[4:], first.state)
    joined = (4 * first.cross_entropy + 5 * second.cross_entropy) / 9
    assert joined.item() == pytest.approx(whole.cross_entropy.item(), rel=1e-12)
    torch.testing.assert_close(second.state, whole.state)
    alone = model.loss(inputs[4:], targets[4:])
    assert abs(alone.cross_entropy.item() - second.cross_entropy.item()) > 1e-6

    def tensors(state: Any) -> list[Tensor]:
        return [state] if isinstance(state, Tensor) else [tensor for part in state for tensor in tensors(part)]

    assert tensors(first.state) and not any(tensor.requires_grad for tensor in tensors(first.state))
    second.total.backward()  # does not reach into the first segment, whose graph is still there
    first.total.backward()


@pytest.mark.parametrize("options", [{}, {"adaptive_cutoffs": [5]}, {"tied": False}])
def test_under_bfloat16_the_losses_are_float32_and_close(options: dict[str, Any]) -> None:
    model = build(**options).float()
    exact = model.loss(tokens(), tokens(seed=1))
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model.loss(tokens(), tokens(seed=1), activation=1e-3, slowness=1e-3)
    assert rounded.cross_entropy.dtype == rounded.total.dtype == torch.float32
    assert rounded.cross_entropy.item() == pytest.approx(exact.cross_entropy.item(), rel=0.02)
    rounded.total.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary_size": 0}, "vocabulary_size must be at least 1"),
        ({"embedding_size": 4}, "tied embeddings need embedding_size = hidden_size, got 4 and 6"),
        ({"word_dropout": 1.0}, "word_dropout must be a probability, at least 0 and below 1, got 1.0"),
        ({"adaptive_cutoffs": [3, 6]}, "2 adaptive_cutoffs need a hidden_size of at least 16, got 6"),
        ({"adaptive_cutoffs": [VOCABULARY]}, "cutoffs"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    sizes = {"vocabulary_size": VOCABULARY, "embedding_size": SIZE, "hidden_size": SIZE}
    with pytest.raises(ValueError, match=message):
        LanguageModel(layer=Recorder(), **(sizes | options))
