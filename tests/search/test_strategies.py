"""Strategies: optimizer steps, phases, convergence, random search, sampling; genotypes that can be used."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_search import (
    JOINT,
    KINDS,
    NO_DROPOUT,
    flat,
    objective_of,
    patched,
    run_whole,
    small,
    strategy_of,
    write_text,
)

from flair_nas.errors import FlairNasError, NotFiniteError
from flair_nas.genotype import Genotype, random_genotype
from flair_nas.nn.searched_rnn import SearchedRNN
from flair_nas.runs.metric import Evaluation, to_perplexity
from flair_nas.search import bilevel, health
from flair_nas.search.bilevel import ModelOptimizer, model_weights
from flair_nas.search.config import SearchConfig
from flair_nas.search.health import Convergence
from flair_nas.search.protocols import Strategy
from flair_nas.search.space import CellSpace
from flair_nas.search.strategies.gradient import GradientStrategy
from flair_nas.search.strategies.random_cells import FINALISTS, SharedRandomSearch
from flair_nas.supernet.relaxation import deviations


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text", train_lines=60, valid_lines=12)


def bits(tensors: Any) -> torch.Tensor:
    return flat(tensors).clone()


# --- optimizer steps of the model weights ---


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_learning_rate(schedule: str, text: Path) -> None:
    optimizer = strategy_of(small(text, schedule=schedule, epochs=4)).model_optimizer
    for epoch in range(1, 5):
        for step in range(optimizer.objective.steps(epoch)):
            batch = optimizer.objective.training_batch(epoch, step)
            rate = 2.0 * len(batch.parts[0].tokens) / 12
            if schedule == "cosine":
                rate *= (1, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125))[epoch - 1]
            assert optimizer.learning_rate(epoch, batch) == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize("clip", [1e-3, 1e6])
def test_a_step_descends_the_clipped_gradient(clip: float, text: Path) -> None:
    config = small(text, **NO_DROPOUT, clip=clip, weight_decay=0.1, epochs=3, schedule="cosine", parts=2)
    objective = objective_of(config, double=True)
    optimizer = ModelOptimizer(objective, config)
    batch = objective.training_batch(2, 1)
    loss = sum(objective.training_loss(part) for part in batch.parts) / 2
    gradients = torch.autograd.grad(loss, optimizer.weights, allow_unused=True)
    assert None not in gradients
    norm = float(flat(gradients).norm())
    before = [weight.detach().clone() for weight in optimizer.weights]
    assert optimizer.step(2, 1, batch) == pytest.approx(float(loss.detach()))
    assert optimizer.gradient_norm == pytest.approx(norm)
    rate = 2.0 * 0.75 * len(batch.parts[0].tokens) / 12
    for weight, old, found in zip(optimizer.weights, before, gradients):
        direction = found * min(1, clip / norm) + 0.1 * old
        torch.testing.assert_close(weight.detach(), old - rate * direction, rtol=1e-9, atol=1e-12)
        assert weight.grad is None


# --- gradient-based search ---


@pytest.mark.parametrize("order", [1, 2])
def test_a_step_is_one_of_architecture_then_weights(order: int, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The architecture's gradient is taken before the weights move; Adam's first step is of its rate."""
    config = small(text, order=order, arch_learning_rate=0.03, arch_weight_decay=0.0, schedule="cosine", epochs=3)
    strategy = strategy_of(config)
    called: list[dict[str, Any]] = []
    name = ("first_order", "second_order")[order - 1]
    gradients: list[torch.Tensor] = []

    def watching(objective: Any, *batches: Any, **options: Any) -> Any:
        parts = dict(zip(("validation", "training"), reversed(batches)))  # the first order needs no training batch
        called.append({"options": options, "weights": bits(weights), **parts})
        loss, found = real(objective, *batches, **options)
        gradients.extend(found)
        return loss, found

    real = getattr(bilevel, name)
    monkeypatch.setattr(bilevel, name, watching)
    weights = model_weights(strategy.objective)
    before, architecture = bits(weights), bits(strategy.groups["intra"])
    figures = strategy.step(2, 1)
    (call,) = called
    assert torch.equal(call["weights"], before) and not torch.equal(bits(weights), before)
    moved = flat(strategy.groups["intra"]) - architecture
    found = flat(gradients)
    torch.testing.assert_close(moved, -0.03 * found / (found.abs() + 1e-8), rtol=1e-4, atol=1e-7)
    assert moved.abs().max() > 0.02
    for part, loss in (("training", figures.training_loss), ("validation", figures.validation_loss)):
        expected = getattr(strategy.objective, f"{part}_batch")(2, 1)
        assert part not in call or torch.equal(call[part].parts[0].tokens, expected.parts[0].tokens)
        assert 2 < loss < 5  # of 30 types, nats
    if order == 2:
        rate = strategy.model_optimizer.learning_rate(2, call["training"])
        assert {name: call["options"][name] for name in ("learning_rate", "weight_decay", "clip")} == {
            "learning_rate": rate,
            "weight_decay": config.weight_decay,
            "clip": config.clip,
        }


def run_steps(strategy: Any, steps: int, first: int = 0) -> list[str]:
    """Whose turn it was at each step; the other part's weights must not move, the model's must."""
    turns = []
    groups = {name: group for name, group in strategy.objective.supernet.architecture().items() if group}
    for step in range(first, first + steps):
        epoch, place = divmod(step, 5)
        before = {name: bits(group) for name, group in groups.items()}
        weights = [weight.detach().clone() for weight in model_weights(strategy.objective)]
        strategy.step(epoch + 1, place)
        turn = strategy.phases[strategy.phase]
        turns.append(turn)
        for name, group in groups.items():
            assert torch.equal(bits(group), before[name]) == (name != turn)
        for weight, old in zip(model_weights(strategy.objective), weights):
            assert not torch.equal(weight, old)
    return turns


def test_phases_alternate_by_budget(text: Path) -> None:
    strategy = strategy_of(small(text, **JOINT, phase_steps=3))
    expected = (["intra"] * 3 + ["inter"] * 3) * 3
    assert run_steps(strategy, 8) == expected[:8]
    # what is saved between two epochs says whose turn it is, and for how long
    again = strategy_of(small(text, **JOINT, phase_steps=3))
    again.objective.module.load_state_dict(copy.deepcopy(strategy.objective.module.state_dict()))
    again.load_state_dict(copy.deepcopy(strategy.state_dict()))
    random = torch.get_rng_state()
    assert run_steps(strategy, 8, first=10) == expected[8:16]
    torch.set_rng_state(random)
    assert run_steps(again, 8, first=10) == expected[8:16]
    assert torch.equal(bits(strategy.objective.module.parameters()), bits(again.objective.module.parameters()))


def test_phases_begin_elsewhere_in_each_epoch(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = strategy_of(small(text, **JOINT))
    phase = strategy._phase_steps(1)
    turns = run_steps(strategy, phase + 1)
    assert turns[:phase] == ["intra"] * phase and turns[phase] == "inter"
    for steps in range(1, 1500):
        monkeypatch.setattr(strategy.objective, "steps", lambda _, steps=steps: steps)
        phase = strategy._phase_steps(1)
        turn = np.arange(4 * steps) // phase % 2  # whose turn it is in each step of four epochs
        for part in (0, 1):
            assert (turn.reshape(4, steps) == part).any(0).mean() > 0.85, steps


def test_convergence_ends_a_phase(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "is_drifting", lambda *_: False)
    strategy = strategy_of(small(text, **JOINT, phase_steps=50, convergence=1.0, convergence_steps=2))
    # with so great a tolerance each phase has settled as soon as there are two changes to look at
    assert run_steps(strategy, 10) == ["intra"] * 3 + ["inter"] * 3 + ["intra"] * 3 + ["inter"]


def test_convergence_looks_at_a_window() -> None:
    window = Convergence(0.1, 2)
    found, still = [], [torch.zeros(4)]
    for deviation in (1.0, 2.0, 2.1, 2.15, 2.2, 3.0, 3.1, 3.05, 3.0):
        window.add(deviation, still)
        found.append(window.converged)
    assert found == [False, False, False, True, True, False, False, True, True]
    window.restart()
    assert not window.converged and window.settled  # the last phase ended so
    other = Convergence(0.1, 2)
    other.restore(window.state())
    for deviation in (3.0, 4.0, 5.0):
        window.add(deviation, still)
        other.add(deviation, still)
        assert (window.converged, window.settled) == (other.converged, other.settled)
    assert not window.settled
    never = Convergence(0.0, 2)
    for _ in range(5):
        never.add(1.0, still)
    assert not never.converged


def walk(seed: int, towards: float = 0.0, steps: int = 104, size: int = 180) -> list[torch.Tensor]:
    """The way of weights that Adam moves by gradients that are noise, around a mean."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.zeros(size, requires_grad=True)
    adam = torch.optim.Adam([weights], lr=0.003)
    mean = towards * torch.randn(size, generator=generator)
    places = [weights.detach().clone()]
    for _ in range(steps):
        weights.grad = mean + torch.randn(size, generator=generator)
        adam.step()
        places.append(weights.detach().clone())
    return places


@pytest.mark.slow
def test_drift_tells_a_way_from_noise() -> None:
    """A MAD that stands still is no convergence while the weights move on; and Adam's momentum is no drift."""
    found = {}
    for name, towards in (("way", 0.3), ("noise", 0.0)):
        ways = [walk(seed, towards) for seed in range(100)]
        found[name] = sum(health.is_drifting(health.drift(way), 180) for way in ways) / 100
        windows = [Convergence(0.5, 104) for _ in ways[:20]]
        for window, way in zip(windows, ways):
            for place in way:
                window.add(1.0, [place[:80], place[80:].view(20, 5)])
            assert window.converged != health.is_drifting(health.drift([p.double() for p in way]), 180)
    assert found["way"] > 0.9 and found["noise"] < 0.1
    assert health.drift([torch.zeros(3)] * 5) == 0
    assert health.drift([torch.ones(3) * k for k in range(9)]) == pytest.approx(1)
    assert health.drift([torch.zeros(3), torch.ones(3)]) == pytest.approx(1)


def test_mad_is_that_of_the_parts_that_are_learned(text: Path) -> None:
    for kind, parts in (("first", ["intra"]), ("joint", ["intra", "inter"]), ("inter", ["inter"])):
        strategy = strategy_of(small(text, **KINDS[kind]))
        found = strategy.step(1, 0).mad
        assert list(found) == parts
        if "intra" in parts:
            arch = strategy.objective.supernet.arch
            assert found["intra"] == float(deviations(arch, strategy.own.relaxation).mean()) > 0


@pytest.mark.parametrize("kind", ["first", "second", "joint", "random-shared"])
def test_a_loss_that_is_not_finite_moves_nothing(kind: str, text: Path) -> None:
    strategy = strategy_of(small(text, **KINDS[kind]))
    strategy.step(1, 0)
    with torch.no_grad():
        strategy.objective.model.decoder.bias[3] = math.nan
    before = bits(strategy.objective.module.parameters())
    part = "training" if kind == "random-shared" else "validation"
    message = rf"epoch 2, step 4: {part} loss nan; the largest gradient is that of \S+, its"
    with pytest.raises(NotFiniteError, match=message):
        strategy.step(2, 3)
    assert torch.equal(bits(strategy.objective.module.parameters()).nan_to_num(7.0), before.nan_to_num(7.0))


def test_the_largest_gradient_is_named(text: Path) -> None:
    objective = objective_of(small(text))
    optimizer = ModelOptimizer(objective, small(text))
    loss = objective.training_loss

    def spoiled(batch: Any, keep_state: bool = False) -> torch.Tensor:
        return loss(batch, keep_state) + 1e30 * objective.supernet.weight_hidden.square().sum()  # 1e60 in the norm

    with (
        patched(objective, "training_loss", spoiled),
        pytest.raises(NotFiniteError, match=r"layer\.weight_hidden, its norm is inf"),
    ):
        optimizer.step(1, 0, objective.training_batch(1, 0))


# --- random search ---


def scores_of(strategy: SharedRandomSearch, numbers: Any) -> dict[int, float]:
    """The loss of candidates on the whole validation part, computed apart."""
    found = {}
    for number in numbers:
        strategy.supernet.choose(CellSpace(strategy.config).draw(number))
        found[number] = strategy.objective.evaluate().loss
    return found


def test_shared_random_search_picks_the_best_of_the_finalists(text: Path) -> None:
    strategy = run_whole(strategy_of(small(text, strategy="random-shared", samples=30, epochs=1)))
    assert strategy.objective.module.training
    # the first look, by hand: as many segments, in order, with the states carried
    module, first = strategy.objective.module.eval(), {}
    for number in range(30):
        strategy.supernet.choose(CellSpace(strategy.config).draw(number))
        state, losses = None, []
        for segment in range(2):
            (batch,) = strategy.objective.validation_batch(1, segment).parts
            result = module.loss(batch.tokens, batch.targets, state)
            losses.append(float(result.total.detach()))
            state = result.state
        first[number] = sum(losses)
    finalists = sorted(first, key=lambda number: first[number])[:FINALISTS]
    expected = scores_of(strategy, finalists)
    assert strategy.scores == pytest.approx(expected)
    best = min(expected, key=lambda number: expected[number])
    assert strategy.genotype() == CellSpace(strategy.config).draw(best)
    assert strategy.end_epoch() == {"candidates": FINALISTS, "best_loss": pytest.approx(expected[best])}
    assert best != 0  # which would be the answer without a look


def test_shared_random_search_trains_another_architecture_at_each_step(text: Path) -> None:
    strategy = strategy_of(small(text, strategy="random-shared", samples=4, nodes=5))
    chosen: list[Genotype] = []
    choose = strategy.supernet.choose

    def choosing(genotype: Genotype) -> None:
        chosen.append(genotype)
        choose(genotype)

    with patched(strategy.supernet, "choose", choosing):
        for step in range(5):
            strategy.step(1, step)
    trained = [cell for cell in chosen if cell != strategy.architecture(0)]  # which an epoch is evaluated with
    assert trained == [CellSpace(strategy.config).draw(4 + step) for step in range(5)]  # none of the candidates
    assert len(set(trained)) == 5


class FakeScores:
    """Puts losses in place of those of an objective, by the order of the calls."""

    def __init__(self, losses: list[float]) -> None:
        self.losses = iter(losses)

    def __call__(self) -> Evaluation:
        loss = next(self.losses)
        return Evaluation(loss, to_perplexity(loss))


def test_a_loss_that_is_no_number_never_wins(text: Path) -> None:
    shared = strategy_of(small(text, strategy="random-shared", samples=3))
    with patched(shared.objective, "evaluate", FakeScores([math.nan, 2.0, math.nan])):
        shared.finish(False)
    best = min(shared.scores, key=lambda number: shared.scores[number])
    assert shared.scores[best] == 2.0 and shared.genotype() == CellSpace(shared.config).draw(best)
    independent = strategy_of(small(text, strategy="random-independent", samples=3, epochs=1))
    with patched(independent.objective, "evaluate", FakeScores([math.nan, math.inf, 3.0])):
        run_whole(independent)
    assert independent.genotype() == CellSpace(independent.config).draw(2)
    assert independent.end_epoch()["best_loss"] == 3.0


@pytest.mark.slow
@pytest.mark.parametrize(("samples", "named", "rungs"), [(5, 0, 3), (3, 2, 2), (7, 0, 1)])
def test_halving_keeps_the_better_half_and_trains_it_on(samples: int, named: int, rungs: int, text: Path) -> None:
    """Each rung has its share of the steps, and each candidate of it; it goes on with its own weights and text."""
    epochs, count = 4, samples + named
    names = ["relu0-tanh1", "tanh0-tanh0", "sigmoid0-identity1"][:named]
    options = {"strategy": "random-independent", "samples": samples, "candidates": names, "rungs": rungs}
    strategy = strategy_of(small(text, epochs=epochs, **options, **NO_DROPOUT))
    steps: dict[tuple[int, int], list[int]] = {}  # by rung and candidate: which of its steps
    begun: set[tuple[int, int]] = set()  # the candidate and its step, where there is no state to go on with
    losses: dict[int, list[float]] = {}
    train, score = strategy.train, strategy.score

    def training(number: int, at: int) -> Any:
        assert number == strategy.candidate
        steps.setdefault((strategy.rung, number), []).append(at)
        if not strategy.objective.states:  # its turn begins, or an epoch of the search
            begun.add((number, at))
        return train(number, at)

    def scoring(number: int) -> float:
        found = score(number)
        losses.setdefault(number, []).append(found)
        return found

    with patched(strategy, "train", training), patched(strategy, "score", scoring):
        run_whole(strategy)
    alive = list(range(count))
    for rung in range(rungs):
        shares = [len(steps[rung, number]) for number in alive]
        assert max(shares) - min(shares) <= 1, (rung, shares)
        assert {number for at, number in steps if at == rung} == set(alive)
        if rung + 1 < rungs:
            alive = sorted(sorted(alive, key=lambda number: losses[number][rung])[: -(-len(alive) // 2)])
    total = sum(strategy.objective.steps(epoch) for epoch in range(1, epochs + 1))
    assert sum(map(len, steps.values())) == total
    for number in range(count):  # nobody's steps are repeated or left out
        mine = [at for (_, whose), found in steps.items() if whose == number for at in found]
        assert mine == list(range(len(mine)))
    best = min(alive, key=lambda number: losses[number][-1])
    assert strategy.genotype() == strategy.architecture(best)
    assert [strategy.architecture(samples + k).one_line() for k in range(named)] == names
    alone = strategy_of(small(text, epochs=epochs, **options, **NO_DROPOUT))
    last = alive[-1]  # it has been interrupted by others
    alone.supernet.choose(alone.architecture(last))
    for rung in range(rungs):
        for step in steps[rung, last]:
            epoch, place = 1, step
            while place >= alone.objective.steps(epoch):
                place, epoch = place - alone.objective.steps(epoch), epoch + 1
            if place == 0 or (last, step) in begun:
                alone.objective.restart()
            alone.model_optimizer.step(epoch, place, alone.objective.training_batch(epoch, place))
    assert alone.score(last) == losses[last][-1]


def test_more_candidates_than_steps(text: Path) -> None:
    with pytest.raises(FlairNasError, match=r"20 candidates cannot share \d steps in 1 rung: each"):
        strategy_of(small(text, strategy="random-independent", samples=20, epochs=1))


def test_seeds_and_numbers_give_different_draws() -> None:
    drawn = {CellSpace(SearchConfig(seed=seed)).draw(number) for seed in range(20) for number in range(20)}
    assert len(drawn) == 400
    assert all(genotype == random_genotype(genotype.origin["seed"]) for genotype in drawn)


def test_a_candidate_that_fails_counts_as_the_worst(text: Path, caplog: pytest.LogCaptureFixture) -> None:
    strategy = strategy_of(small(text, strategy="random-independent", samples=2, epochs=2))
    steps = strategy.objective.steps(1)
    with torch.no_grad():  # of the first candidate only: the second begins with the first weights
        model_weights(strategy.objective)[0].fill_(math.nan)
    assert strategy.step(1, 0).training_loss is None
    assert "candidate 0 counts as the worst: not finite in epoch 1, step 1" in caplog.text
    losses = [strategy.step(epoch, step).training_loss for epoch in (1, 2) for step in range(epoch == 1, steps)]
    assert losses[: steps - 1] == [None] * (steps - 1) and all(math.isfinite(loss) for loss in losses[steps - 1 :])
    strategy.finish(False)
    assert strategy.scores[0] == math.inf and math.isfinite(strategy.scores[1])
    assert strategy.genotype() == CellSpace(strategy.config).draw(1)


# --- settings of the signal ---


def test_architecture_weights_wait_for_the_warm_up(text: Path) -> None:
    strategy = strategy_of(small(text, epochs=3, warmup_epochs=1))
    before = bits(strategy.groups["intra"])
    for step in range(strategy.objective.steps(1)):
        assert strategy.step(1, step).validation_loss is None
    assert torch.equal(bits(strategy.groups["intra"]), before)
    assert strategy.step(2, 0).validation_loss is not None
    assert not torch.equal(bits(strategy.groups["intra"]), before)


def test_the_gradient_of_architecture_weights_is_clipped(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[torch.Tensor] = []
    for clip in (None, 1e-4):
        strategy = strategy_of(small(text, arch_clip=clip, **NO_DROPOUT))
        adam = strategy.optimizers["intra"].adam
        step = adam.step

        def keeping(*_: Any, strategy: Any = strategy, step: Any = step) -> None:
            given.append(flat(p.grad for p in strategy.groups["intra"]))
            step()

        monkeypatch.setattr(adam, "step", keeping)
        strategy.step(1, 0)
    assert given[0].norm() > 1e-3
    torch.testing.assert_close(given[1], given[0] * 1e-4 / given[0].norm())


@pytest.mark.parametrize("fresh", [True, False])
def test_moments_begin_anew_with_a_phase(fresh: bool, text: Path) -> None:
    strategy = strategy_of(small(text, **JOINT, phase_steps=2, fresh_moments=fresh, arch_beta2=0.9))
    assert strategy.optimizers["inter"].adam.param_groups[0]["betas"] == (0.9, 0.9)
    run_steps(strategy, 5)  # intra has begun again
    (arch,) = strategy.groups["intra"]
    assert strategy.optimizers["intra"].adam.state[arch]["step"] == (1 if fresh else 3)


def test_the_temperature_falls_to_its_end(text: Path) -> None:
    settings = {"sampling": "straight-through", "temperature": 4.0, "temperature_end": 1.0, "epochs": 2}
    strategy = strategy_of(small(text, **settings))
    sampler, found = strategy.objective.supernet.sampler, []
    for epoch in (1, 2):
        for step in range(strategy.objective.steps(epoch)):
            strategy.step(epoch, step)
            found.append(sampler.temperature)
    assert sampler.straight_through and found[0] == 4
    assert found[strategy.objective.steps(1)] == pytest.approx(2.5) and found[-1] == pytest.approx(1)
    assert all(one >= other for one, other in zip(found, found[1:]))


# --- all of them ---


def test_random_cells_have_the_form_of_gate_that_was_asked_for(text: Path) -> None:
    config = small(text, strategy="random-shared", learn="joint", history=2, gate="product")
    assert strategy_of(config).genotype().gate == "product"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"strategy": "random-shared", "avoid_first": True}, "avoid_first"),
        ({"strategy": "random-shared", "history": 2}, "history must be 0"),
        (
            {"strategy": "random-shared", "sampling": "gumbel", "arch_clip": 0.1},
            "sampling belongs .*arch_clip belongs",
        ),
        ({"strategy": "random-shared", "most_identity": 0, "temperature": 1.0}, "most_identity belongs .*temperature"),
        ({"gate_links": False}, "gate_links belongs to gates"),
        ({"gate": "product", "inter_learning_rate": 0.1}, "gate product is of gates .*inter_learning_rate is of gates"),
        ({"strategy": "random-shared", "samples": 0}, "samples must be a whole number from 1"),
        ({"strategy": "random-independent", "samples": 0}, "samples must be at least 1"),
        ({"strategy": "random-independent", "samples": 7, "rungs": 4}, "halve 7 candidates .* at least 8"),
        ({"strategy": "random-independent", "candidates": ["nowhere"]}, "candidates: .*nowhere"),
        ({"strategy": "random-independent", "candidates": ["i-darts-ptb"]}, "candidates: i-darts-ptb is not of this"),
        ({"fixed": "relu0-tanh1/state=tanh,init_range=0.1"}, "fixed: .*init_range has no meaning here"),
        ({"selection_steps": 5}, "selection_steps belongs to selection perturbation, not argmax"),
        ({**KINDS["inter"], "most_identity": 1}, "avoid_first and most_identity are of a cell that is searched"),
        ({"rungs": 2, "candidates": ["tanh0-tanh0"]}, "rungs belongs .*candidates belongs"),
        ({"warmup_epochs": 2}, "warmup_epochs 2 must be less than epochs 2"),
        ({"temperature": 5.0}, "temperature and temperature_end belong to sampling"),
        ({"sampling": "gumbel", "temperature": 0.05}, "temperature 0.05 must not be below temperature_end, 0.1"),
        ({"selection": "perturbation", "most_identity": 1}, "most_identity belongs to selection argmax"),
        ({"fresh_moments": True}, "fresh_moments belongs to learn joint"),
        ({"recurrence": "elementwise", **KINDS["inter"]}, "recurrence elementwise is of cells without gates"),
        ({**KINDS["inter"], "fixed": "relu0,recurrence=elementwise"}, "fixed relu0,.* which goes with no gates"),
        (
            {**KINDS["halving"], "recurrence": "elementwise"},
            "relu0-tanh1 is not of this space, highway cells of 2 nodes with recurrence=elementwise",
        ),
        ({"hidden_size": 0, "learn": "joint"}, "hidden_size .*history must be at least 1"),
    ],
)
def test_what_a_strategy_would_ignore_is_refused(settings: dict[str, Any], words: str, text: Path) -> None:
    with pytest.raises(FlairNasError, match=words):
        small(text, **settings)


def test_a_method_that_a_strategy_lacks_is_named() -> None:
    class Forgetful(GradientStrategy):
        end_epoch = Strategy.end_epoch

    with pytest.raises(TypeError, match="Forgetful.*end_epoch"):
        Forgetful(None, None, None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("edges_per_node", [1, 2])
def test_every_genotype_is_a_layer(kind: str, edges_per_node: int, text: Path) -> None:
    if kind == "enas" and edges_per_node > 1:
        pytest.skip("its controller draws one edge a node")
    strategy = strategy_of(small(text, edges_per_node=edges_per_node, **KINDS[kind]))
    if strategy.objective.steps(1):
        strategy.step(1, 0)
    genotype = strategy.genotype()
    gated = "gates" in kind or "joint" in kind or kind == "inter"
    assert (genotype.state_gate is not None and genotype.input_gate is not None) == gated
    assert Genotype.parse(genotype.one_line()) == genotype
    output, _ = SearchedRNN(5, 4, genotype, bidirectional=True)(torch.randn(3, 2, 5))
    assert output.shape == (3, 2, 8)


@pytest.mark.parametrize("carry", ["gated", "ungated"])
def test_the_options_of_fixed_gates_are_kept(carry: str, text: Path) -> None:
    strategy = strategy_of(small(text, fixed=f"relu0-tanh1/state=tanh,gate=product,carry={carry}"))
    assert (strategy.genotype().carry, strategy.genotype().gate) == (carry, "product")


def test_gates_are_searched_around_the_fixed_cell(text: Path) -> None:
    strategy = strategy_of(small(text, **KINDS["inter"]))
    assert strategy.genotype().nodes == Genotype.parse("relu0-tanh1").nodes
    strategy = strategy_of(small(text, **KINDS["fixed gates"]))
    fixed = Genotype.parse(KINDS["fixed gates"]["fixed"])
    assert (strategy.genotype().state_gate, strategy.genotype().input_gate) == (fixed.state_gate, fixed.input_gate)
