"""The training loops against a plain second writing of them: 20 steps in float64, with every dropout and penalty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from reference_training import Dropouts, retrain, search
from small_search import objective_of, small, write_text
from torch import Tensor

from flair_nas.genotype import Genotype
from flair_nas.language_model import training
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.language_model.perplexity import StreamScore
from flair_nas.language_model.text.corpus import batchify, load_text
from flair_nas.search.build import make_strategy
from flair_nas.settings.fields import flatten

pytestmark = pytest.mark.slow

STEPS = 20


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text", train_lines=40, valid_lines=8)


@pytest.fixture
def doubles() -> Iterator[None]:
    """New tensors, and so new models, have float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def weights_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """The parameters, copied; of a matrix with two names, as that of a tied softmax, the first alone."""
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


def assert_near(found: dict[str, Tensor], expected: dict[str, Tensor], start: dict[str, Tensor]) -> None:
    """They agree far below what the steps have moved them."""
    assert set(found) == set(expected)
    for name, value in expected.items():
        moved = float((value - start[name]).abs().max())
        assert moved > 1e-4, name  # else nothing was put to the test
        error = float((found[name] - value).abs().max())
        assert error < 1e-8 * max(1.0, float(value.abs().max())), f"{name}: off by {error:.1e}, moved by {moved:.1e}"


@pytest.mark.parametrize(("relaxation", "order"), [("i-darts", 1), ("darts", 1), ("darts", 2), ("i-darts", 2)])
def test_a_search_is_that_of_the_plain_loop(relaxation: str, order: int, text: Path) -> None:
    config = small(
        text, relaxation=relaxation, order=order, hidden_size=4, bptt=4, vary_length=False, learning_rate=1.0, clip=0.3,
        weight_decay=1e-2, slowness=0.1, arch_learning_rate=0.02, arch_weight_decay=0.05, embedding_dropout=0.2,
        epochs=9,
    )  # fmt: skip
    objective = objective_of(config, double=True)
    strategy = make_strategy(objective, config)
    start = weights_of(objective.module)
    places = [(1 + k // objective.steps(1), k % objective.steps(1)) for k in range(STEPS)]
    segments: list[Any] = []
    for epoch, step in places:
        pair = objective.training_batch(epoch, step).parts[0], objective.validation_batch(epoch, step).parts[0]
        segments.append(tuple((batch.tokens, batch.targets, batch.first) for batch in pair))
    dropouts = Dropouts(0.0, config.embedding_dropout, config.input_dropout, config.recurrent_dropout, config.dropout)
    torch.manual_seed(11)
    expected = search(start, relaxation, order, segments, dropouts, SimpleNamespace(**flatten(config)))
    torch.manual_seed(11)
    for epoch, step in places:
        if step == 0:
            objective.restart()
        strategy.step(epoch, step)
    assert_near(weights_of(objective.module), expected, start)


CELLS = {
    "cell": "tanh0-relu1-sigmoid1",
    "gates": "tanh0-relu1+identity0/state=tanh-sigmoid+tanh1/input=sigmoid-relu+tanh1",
}


@pytest.mark.parametrize("cell", CELLS)
def test_retraining_is_that_of_the_plain_loop(
    cell: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doubles: None
) -> None:
    """With the switch to averaged SGD after two of four epochs, both penalties, and a tied softmax."""
    settings: dict[str, Any] = {
        "text": str(text), "rnn": f"{CELLS[cell]},init_range=0.4", "hidden_size": 5, "batch_size": 3, "bptt": 6,
        "epochs": 4, "average_after": 2, "learning_rate": 1.5, "clip": 0.4, "weight_decay": 1e-2, "activation": 0.3,
        "slowness": 0.2, "word_dropout": 0.1, "embedding_dropout": 0.2, "input_dropout": 0.3, "recurrent_dropout": 0.25,
        "dropout": 0.4, "valid_batch_size": 2, "device": "cpu",
    }  # fmt: skip
    config = LanguageModelConfig(**settings)
    corpus = load_text(str(text))
    columns = batchify(corpus.train, config.batch_size)[: 5 * 6 + 2]  # [T + 1, B]: five segments an epoch
    lengths = [[6, 4, 9, 5, 7], [5, 7, 6, 6, 7], [9, 5, 4, 6, 7], [6, 6, 6, 6, 7]]
    of_valid = batchify(corpus.valid, config.valid_batch_size)
    given = iter(lengths)
    monkeypatch.setattr(training, "segment_lengths", lambda *_: next(given))
    monkeypatch.setattr(training, "batchify", lambda *_: columns)
    begun: dict[str, Any] = {}
    train = training._Training._train

    def training_once(self: Any, bar: Any) -> float:
        if not begun:
            begun.update(run=self, start=weights_of(self.model), random=torch.get_rng_state())
        return train(self, bar)

    monkeypatch.setattr(training._Training, "_train", training_once)
    losses = []

    def validate(self: Any) -> Any:
        """On columns that the plain loop can read as well: the stream's last tokens do not fill a row."""
        self.judged.eval()
        with torch.no_grad():
            loss = self.judged.loss(of_valid[:-1], of_valid[1:]).cross_entropy
        losses.append(float(loss))
        return StreamScore(float(loss), 0.0, of_valid[1:].numel())

    monkeypatch.setattr(training._Training, "_validate", validate)
    monkeypatch.setattr(training, "_finish", lambda *_: {})
    training.train_language_model(config, tmp_path / "run", progress=False)
    torch.set_rng_state(begun["random"])
    dropouts = Dropouts(0.1, 0.2, 0.3, 0.25, 0.4)
    genotype = Genotype.parse(CELLS[cell])
    expected = retrain(begun["start"], genotype, columns, of_valid, lengths, dropouts, config)
    run = begun["run"]
    assert_near(weights_of(run.model), expected.weights, begun["start"])
    assert expected.means is not None and int(run.average.n_averaged) == 10
    means = dict(run.average.module.named_parameters())
    assert_near(means, expected.means, begun["start"])
    assert losses == pytest.approx(expected.valid_losses, rel=1e-9)
