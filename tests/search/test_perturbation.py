"""Perturbation-based selection: what is missed the most stays, and nothing else is left changed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from small_search import JOINT, KINDS, NO_DROPOUT, flat, objective_of, small, write_text

from flair_nas.genotype import OPERATIONS, Genotype
from flair_nas.search.bilevel import ModelOptimizer, architecture_weights
from flair_nas.search.config import SearchConfig
from flair_nas.search.objectives.text import TextObjective
from flair_nas.search.perturbation import decide, select_by_perturbation
from flair_nas.supernet import derive
from flair_nas.supernet.relaxation import Sampler, relax, softmax_groups

IDENTITY = OPERATIONS.index("identity")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text", train_lines=60, valid_lines=12)


@pytest.mark.parametrize("relaxation", ["darts", "i-darts"])
@pytest.mark.parametrize("keep", [1, 2])
def test_the_most_useful_edges_and_operations_stay(keep: int, relaxation: str) -> None:
    """Each share lowers the loss by its own worth: what is worth the most must stay, and not the largest weight."""
    generator = torch.Generator().manual_seed(1)
    arch = torch.randn(6, 5, generator=generator) * 0.3
    arch[3, 1], arch[4, 1], arch[5, 1] = 1.0, 0.9, 0.9
    worth = torch.rand(6, 5, generator=generator)
    worth[:, 0] = 0
    worth[3:, 1:] += torch.tensor([0.0, 4.0, 2.0])[:, None]  # of node 3's tails the second, then the third
    worth[4, 2] += 6
    worth[5, 3] += 6

    def score() -> float:
        return -float((relax(arch, relaxation) * worth).sum())

    others = relax(arch, relaxation)[:3].clone()
    margins = decide(arch, relaxation, [3, 4, 5], keep, range(1, 5), score)
    assert len(margins) == 1 + keep and min(margins) > 0
    shares = relax(arch, relaxation)
    torch.testing.assert_close(shares[:3], others)
    assert shares[4, 2] == pytest.approx(1 if relaxation == "darts" else 1 / keep)
    assert (shares[5, 3] > 0) == (keep == 2) and shares[3, 1:].sum() == 0
    kept = derive(arch, relaxation, keep)[2]
    assert [(edge.op, edge.tail) for edge in kept] == [("relu", 1), ("sigmoid", 2)][:keep]


def test_a_loss_that_is_no_number_means_that_it_was_needed() -> None:
    arch = torch.zeros(1, 5)

    def score() -> float:
        return math.nan if relax(arch, "darts")[0, IDENTITY] == 0 else 1.0

    assert decide(arch, "darts", [0], 1, range(1, 5), score) == [math.inf]
    assert relax(arch, "darts")[0, IDENTITY] == 1


def select(objective: TextObjective, config: SearchConfig) -> tuple[Genotype, list[float]]:
    return select_by_perturbation(ModelOptimizer(objective, config), config.strategy, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["first", "second", "joint", "inter", "fixed gates"])
def test_a_search_is_decided_and_the_model_stays_as_it_was(kind: str, text: Path) -> None:
    config = small(text, selection="perturbation", selection_steps=2, **KINDS[kind])
    found = []
    for _ in range(2):
        objective = objective_of(config)
        before = {name: value.clone() for name, value in objective.module.state_dict().items()}
        found.append(select(objective, config)[0])
        for name, value in objective.module.state_dict().items():
            assert torch.equal(value, before[name]), name
        assert objective.module.training
    assert found[0] == found[1]
    assert (found[0].state_gate is None) == (kind in ("first", "second"))
    objective.supernet.genotype()  # of the same kind
    assert len(found[0].nodes) == len(objective.supernet.genotype().nodes)


@pytest.mark.parametrize("relaxation", ["darts", "i-darts"])
@pytest.mark.parametrize("edges_per_node", [1, 2, 3])
def test_nothing_is_kept_that_was_not_decided(edges_per_node: int, relaxation: str, text: Path) -> None:
    """Nor is s_0 read by a node that may not."""
    settings = {"nodes": 4, "relaxation": relaxation, "edges_per_node": edges_per_node, "avoid_first": True}
    config = small(text, selection="perturbation", selection_steps=0, **settings)
    objective = objective_of(config)
    found, _ = select(objective, config)
    for number, edges in enumerate(found.nodes, start=1):
        tails = [edge.tail for edge in edges]
        assert len(set(tails)) == len(tails) == min(edges_per_node, max(1, number - 1))
        assert 0 not in tails or number == 1


# --- sampled shares ---


def sampler(temperature: float, straight_through: bool) -> Sampler:
    made = Sampler()
    made.temperature, made.straight_through = temperature, straight_through
    return made


@pytest.mark.slow
@pytest.mark.parametrize("relaxation", ["darts", "i-darts"])
def test_the_strongest_of_each_softmax_is_drawn_as_often_as_its_share(relaxation: str) -> None:
    """Gumbel-max: with straight-through shares an operation is run with the probability of the plain softmax."""
    torch.manual_seed(0)
    arch = torch.randn(3, 5)
    total, made = torch.zeros(3, 5), sampler(0.7, True)
    for _ in range(4000):
        made.begin(True)
        shares = made.sample(arch, relaxation)
        assert torch.equal(made.sample(arch, relaxation), shares)  # one draw a pass
        assert all(group.max() == group.sum() == 1 for group in softmax_groups(shares, relaxation))
        total += shares
    torch.testing.assert_close(total / 4000, relax(arch, relaxation), atol=0.03, rtol=0)


@pytest.mark.parametrize("straight_through", [True, False])
def test_the_gradient_is_that_of_the_soft_shares(straight_through: bool) -> None:
    arch = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, 5, dtype=torch.float64)
    found = []
    for hard in (straight_through, False):
        torch.manual_seed(3)
        made = sampler(0.5, hard)
        made.begin(True)
        found.append(torch.autograd.grad((made.sample(arch, "i-darts") * weights).sum(), arch)[0])
    torch.testing.assert_close(*found)
    torch.manual_seed(3)
    noise = -torch.empty_like(arch).exponential_().log()
    soft = relax((arch + noise) / 0.5, "i-darts")
    torch.testing.assert_close(found[1], torch.autograd.grad((soft * weights).sum(), arch)[0])


def test_shares_are_the_plain_softmax_in_evaluation_and_without_a_temperature() -> None:
    arch = torch.randn(3, 5)
    for made, training in ((sampler(1.0, True), False), (Sampler(), True)):
        made.begin(training)
        assert torch.equal(made.sample(arch, "darts"), relax(arch, "darts"))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, JOINT, KINDS["inter"]], ids=["cell", "joint", "gates"])
def test_a_straight_through_pass_runs_one_discrete_cell(settings: dict[str, Any], text: Path, kernels: str) -> None:
    """In training, without batch normalisation, it is the layer of what was drawn, and another one each time."""
    config = small(text, sampling="straight-through", relaxation="darts", **settings, **NO_DROPOUT)
    objective = objective_of(config, double=True, batch_norm=False)
    supernet, batch = objective.supernet, objective.training_batch(1, 0).parts[0]
    supernet.sampler.temperature, supernet.sampler.straight_through = 1.0, True
    losses = [float(objective.training_loss(batch)) for _ in range(5)]
    assert len(set(losses)) > 1
    torch.manual_seed(5)
    loss = objective.training_loss(batch)
    drawn = {
        name: 1e6 * supernet.sampler.sample(p, "darts") for name, p in supernet.named_parameters() if "arch" in name
    }
    gradients = torch.autograd.grad(loss, architecture_weights(objective))
    assert flat(gradients).abs().sum() > 0
    with torch.no_grad():
        for name, parameter in supernet.named_parameters():
            if name in drawn:
                parameter.copy_(drawn[name])
    supernet.sampler.temperature = None
    assert float(objective.training_loss(batch)) == pytest.approx(float(loss), rel=1e-9)
