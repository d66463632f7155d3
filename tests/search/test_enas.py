"""ENAS: the controller against the authors' code, what it learns, and what the strategy does with it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_search import NO_DROPOUT, patched, run_whole, small, strategy_of, write_text

from flair_nas.errors import FlairNasError, NotFiniteError
from flair_nas.genotype import Genotype
from flair_nas.search.controller import Controller

SCORES = json.loads((Path(__file__).parent / "enas_scores.json").read_text(encoding="utf-8"))
"""From the sampler of enas_lm (google-research), run in TensorFlow 2.21 in float64 with these cells and `weights`."""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text", train_lines=60, valid_lines=12)


def search_on(text: Path, **settings: Any) -> Any:
    config = small(text, **{"strategy": "enas", "controller_steps": 2, "controller_draws": 3, **NO_DROPOUT, **settings})
    return strategy_of(config)


def weights(controller: Controller) -> None:
    """Give a controller the weights that the scores are of: uniform in ±0.5 from NumPy's RandomState(0)."""
    draw = np.random.RandomState(0)
    for parameter in controller.parameters():
        numbers = draw.uniform(-0.5, 0.5, parameter.numel())
        parameter.data = torch.as_tensor(numbers.reshape(parameter.shape))


@pytest.mark.parametrize("expected", SCORES, ids=lambda score: score["genotype"])
def test_scores_and_gradients_are_those_of_the_authors_code(expected: dict[str, Any]) -> None:
    genotype = Genotype.parse(expected["genotype"])
    controller = Controller(nodes=len(genotype.nodes)).double()
    weights(controller)
    log_probability, entropy = controller.score(genotype)
    assert log_probability.item() == pytest.approx(expected["log_probability"], abs=1e-10)
    assert entropy.item() == pytest.approx(expected["entropy"], abs=1e-10)
    log_probability.backward()
    for name, parameter in controller.named_parameters():
        assert parameter.grad is not None
        gradient = parameter.grad.flatten()
        along = torch.arange(len(gradient), dtype=torch.float64).cos()
        norm, product = expected["gradients"][name]
        assert float(gradient.norm()) == pytest.approx(norm, abs=1e-10), name
        assert float(gradient @ along) == pytest.approx(product, abs=1e-10), name


def test_probabilities_sum_to_one() -> None:
    controller = Controller(nodes=2, size=8).double()
    weights(controller)
    cells = [Genotype.parse(f"{a}0-{b}{tail}") for a in OPS for b in OPS for tail in (0, 1)]
    total = sum(controller.score(cell)[0].exp().item() for cell in cells)
    assert total == pytest.approx(1, abs=1e-12)


OPS = ("tanh", "relu", "sigmoid", "identity")


def test_draws_are_as_likely_as_their_scores_say() -> None:
    controller, generator = Controller(nodes=2, size=8).double(), torch.Generator().manual_seed(1)
    weights(controller)
    drawn = [controller.sample(generator) for _ in range(2000)]
    for draw in drawn[:20]:
        log_probability, entropy = controller.score(draw.genotype)
        assert draw.log_probability.item() == pytest.approx(log_probability.item(), abs=1e-12)
        assert draw.entropy.item() == pytest.approx(entropy.item(), abs=1e-12)
    lines = [draw.genotype.one_line() for draw in drawn]
    for line in {*lines}:
        share = controller.score(Genotype.parse(line))[0].exp().item()
        assert abs(lines.count(line) / 2000 - share) < 5 * math.sqrt(share / 2000)
    assert controller.likeliest().one_line() in lines


def test_an_untrained_controller_prefers_chains() -> None:
    """The term of locality is not in the paper; without it all tails are alike."""
    generator = torch.Generator().manual_seed(1)
    shares = {}
    for locality in (6.0, None):
        controller = Controller(locality=locality)
        controller.reset_parameters(generator)
        tails = [controller.sample(generator).genotype.nodes[7][0].tail for _ in range(400)]
        shares[locality] = [tails.count(tail) / 400 for tail in range(8)]
    assert shares[6.0][7] == pytest.approx(0.507, abs=0.1) and shares[6.0][0] == 0
    assert max(shares[None]) < 0.25


def test_the_controller_learns_what_is_rewarded(text: Path) -> None:
    """With a loss that falls with each tanh of the cell, cells of tanh are drawn more and more often."""
    strategy = search_on(text, nodes=3, controller_learning_rate=0.02, controller_draws=8, controller_size=16)

    def loss(genotype: Genotype, *place: int) -> float:
        return 3 - sum(edge.op == "tanh" for (edge,) in genotype.nodes)

    def share() -> float:
        cells = [strategy.draw() for _ in range(100)]
        return sum(edge.op == "tanh" for cell in cells for (edge,) in cell.nodes) / 300

    before = share()
    with patched(strategy, "_loss", loss):
        for number in range(60):
            strategy.learn(1, number)
    assert before < 0.4 and share() > 0.6


@pytest.mark.parametrize("rate", [0.0, 0.01])
def test_the_controller_learns_once_an_epoch(rate: float, text: Path) -> None:
    strategy = search_on(text, controller_learning_rate=rate)
    before = [weight.clone() for weight in strategy.controller.controller.parameters()]
    steps = strategy.objective.steps(1)
    for step in range(steps):
        assert all(map(torch.equal, before, strategy.controller.controller.parameters()))
        weight = strategy.supernet.weight_input
        old = weight.detach().clone()
        strategy.step(1, step)
        assert not torch.equal(old, weight)
    moved = not all(map(torch.equal, before, strategy.controller.controller.parameters()))
    assert moved == (rate > 0)
    figures = strategy.end_epoch()
    assert figures["reward"] == pytest.approx(1, abs=0.2) and 0 < figures["spread"] <= 1
    assert 1 <= figures["different_cells"] <= 6
    run_whole(strategy)
    assert strategy.controller.mean_reward != 1
    for moved, spread, words in (
        (0.0, 0.9, "untrained, which prefers chains"),
        (1.0, 0.9, ""),
        (1.0, 0.01, "the same"),
    ):
        strategy.last |= {"moved": moved, "spread": spread}
        verdict = strategy.verdict([])
        assert ("controller" in verdict) == bool(words) and words in verdict


def test_candidates_are_different_and_the_best_wins(text: Path) -> None:
    strategy = search_on(text, samples=5)
    run_whole(strategy)
    assert len({*strategy.drawn}) == len(strategy.drawn) <= 5
    best = min(strategy.scores, key=lambda number: strategy.scores[number])
    assert strategy.genotype() == strategy.drawn[best]


def test_a_controller_that_draws_one_cell_has_one_candidate(text: Path) -> None:
    strategy = search_on(text, samples=5)
    cell = strategy.controller.controller.likeliest()
    with patched(strategy, "draw", lambda: cell):
        run_whole(strategy)
    assert strategy.drawn == [cell] and strategy.genotype() == cell


def test_one_exploding_loss_does_not_set_the_scale(text: Path) -> None:
    strategy, losses = search_on(text), [5.0, 8000.0, 5.2]
    with patched(strategy, "_loss", lambda genotype, epoch, place: losses[place]):
        _, rewards = strategy.learn(1, 0)
    assert sum(rewards) == pytest.approx(3, abs=1e-3) and rewards[1] == pytest.approx(0, abs=1e-3)


def test_cells_without_a_finite_loss_have_no_reward(text: Path, caplog: pytest.LogCaptureFixture) -> None:
    strategy, losses = search_on(text), [1.0, math.nan, 2.0]
    with patched(strategy, "_loss", lambda genotype, epoch, place: losses[place]):
        _, rewards = strategy.learn(1, 0)
        assert rewards[1] == pytest.approx(0, abs=1e-4)
        assert 0.1 < rewards[2] < rewards[0]
        assert "1 of 3 cells without a finite loss have no reward" in caplog.text
        losses[:] = [math.inf] * 3
        with pytest.raises(NotFiniteError, match="none of the 3 cells"):
            strategy.learn(2, 0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"strategy": "gradient", "controller_steps": 3}, "controller_steps belongs to strategy enas, not gradient"),
        ({"strategy": "enas", "learn": "joint", "history": 2}, "learn must be intra"),
        ({"strategy": "enas", "edges_per_node": 2}, "edges_per_node must be 1"),
        ({"strategy": "enas", "samples": 0}, "samples must be a whole number from 1"),
        ({"strategy": "enas", "fixed": "relu0-tanh1/state=tanh/input=tanh"}, "fixed must be left out"),
        ({"strategy": "enas", "order": 2}, "order belongs to strategy gradient"),
        ({"strategy": "enas", "controller_draws": 0}, "controller_draws must be"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], words: str, text: Path) -> None:
    with pytest.raises(FlairNasError, match=words):
        small(text, **settings)
