"""The objective of a search on text: segments, carried states, parts of a batch, shares of processes, losses."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from small_search import JOINT, KINDS, NO_DROPOUT, flat, objective_of, small, write_text
from torch import Tensor

from flair_nas.errors import FlairNasError
from flair_nas.language_model.perplexity import evaluate_stream
from flair_nas.language_model.text.corpus import load_text
from flair_nas.search.bilevel import architecture_weights, mean_gradients, model_weights
from flair_nas.search.objectives.text import TextObjective
from flair_nas.search.supernets import build_supernet


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text", train_lines=90, valid_lines=20)


def process(rank: int = 0, count: int = 1) -> Any:
    """Return what an objective needs of the accelerator of a process."""
    return SimpleNamespace(process_index=rank, num_processes=count, autocast=nullcontext)


def like(objective: TextObjective, text: Path, rank: int = 0, processes: int = 1, **changes: Any) -> TextObjective:
    """Return another objective with the same model."""
    settings: dict[str, Any] = {"vary_length": False, "seed": 0, "parts": 1, **changes}
    config = replace(objective.config, **settings)
    return TextObjective(objective.model, load_text(str(text)), config, process(rank, processes))


# --- segments ---


def test_lengths_depend_on_seed_and_epoch_alone(text: Path) -> None:
    objective = objective_of(small(text, seed=3))

    def lengths(other: TextObjective, epoch: int) -> list[int]:
        return [len(other.training_batch(epoch, step).parts[0].tokens) for step in range(other.steps(epoch))]

    expected = {epoch: lengths(objective, epoch) for epoch in (1, 2, 3)}
    torch.manual_seed(99)
    np.random.seed(99)
    backwards = like(objective, text, seed=3, vary_length=True)
    assert {epoch: lengths(backwards, epoch) for epoch in (3, 1, 2)} == expected
    assert backwards.steps(1) == len(expected[1])
    assert len({tuple(found) for found in expected.values()}) == 3
    assert lengths(like(objective, text, seed=4, vary_length=True), 1) != expected[1]
    for found in expected.values():
        assert sum(found) == 540 // 4 - 1  # every row but the first is a target
        assert all(5 <= length <= 12 + 20 for length in found[:-1])
    assert lengths(like(objective, text, seed=3), 1) == [12] * 11 + [2]


def test_an_epoch_reads_the_whole_text_once(text: Path) -> None:
    objective = objective_of(small(text))
    ids = torch.from_numpy(np.array(load_text(str(text)).train, dtype=np.int64)).view(4, 135).t()
    batches = [objective.training_batch(1, step).parts for step in range(objective.steps(1))]
    assert torch.equal(torch.cat([part.tokens for (part,) in batches]), ids[:-1])
    assert torch.equal(torch.cat([part.targets for (part,) in batches]), ids[1:])
    assert [part.first for (part,) in batches] == [True] + [False] * (len(batches) - 1)


def test_a_short_segment_has_a_small_learning_rate(text: Path) -> None:
    objective = objective_of(small(text))
    for step in range(objective.steps(1)):
        batch = objective.training_batch(1, step)
        assert batch.scale == len(batch.parts[0].tokens) / 12
    fixed = like(objective, text)
    assert {fixed.training_batch(1, step).scale for step in range(fixed.steps(1))} == {1.0}


def test_validation_goes_round_in_a_cycle(text: Path) -> None:
    objective = objective_of(small(text))
    ids = torch.from_numpy(np.array(load_text(str(text)).valid, dtype=np.int64)).view(4, 30).t()
    batches = [objective.validation_batch(1, step).parts[0] for step in range(7)]
    assert [len(batch.tokens) for batch in batches] == [12, 12, 5, 12, 12, 5, 12]
    assert [batch.first for batch in batches] == [True, False, False] * 2 + [True]
    assert torch.equal(torch.cat([batch.tokens for batch in batches[:3]]), ids[:-1])
    assert torch.equal(torch.cat([batch.targets for batch in batches[:3]]), ids[1:])
    assert all(torch.equal(one.tokens, other.tokens) for one, other in zip(batches, batches[3:]))


# --- carried states ---


@pytest.mark.parametrize("kind", ["first", "joint", "inter"])
@pytest.mark.parametrize("stream", ["training", "validation"])
def test_states_are_carried_over_segments(kind: str, stream: str, text: Path) -> None:
    objective = objective_of(small(text, slowness=0.0, **KINDS[kind]), double=True)
    objective.module.eval()
    loss = objective.training_loss if stream == "training" else objective.validation_loss
    batch_of = objective.training_batch if stream == "training" else objective.validation_batch
    steps = 6 if stream == "training" else 3
    batches = [batch_of(1, step).parts[0] for step in range(steps)]
    with torch.no_grad():
        losses = [float(loss(batch, keep_state=True)) for batch in batches]
        tokens, targets = (torch.cat([batch[number] for batch in batches]) for number in (0, 1))
        whole = float(objective.model.loss(tokens, targets).total)
        mean = np.average(losses, weights=[len(batch.tokens) for batch in batches])
        assert mean == pytest.approx(whole, rel=1e-12)
        # a look that keeps no state changes nothing
        again = [float(loss(batches[0], keep_state=True)), float(loss(batches[2])), float(loss(batches[1]))]
        assert [again[0], again[2]] == losses[:2] and again[1] != losses[2]
        # a new stream begins without what the one before has left
        objective.restart()
        assert float(loss(batches[1])) != losses[1]
        assert float(loss(batches[0])) == losses[0]


def test_streams_have_states_of_their_own(text: Path) -> None:
    objective = objective_of(small(text, parts=2))
    objective.module.eval()
    first, second = objective.training_batch(1, 0).parts
    with torch.no_grad():
        objective.training_loss(first, keep_state=True)
        objective.training_loss(second, keep_state=True)
        objective.validation_loss(objective.validation_batch(1, 0).parts[0], keep_state=True)
    states = objective.states
    assert set(states) == {("train", 0), ("train", 1), ("valid", 0)}
    assert not torch.equal(states["train", 0], states["train", 1])
    assert not any(state.requires_grad for state in states.values())


# --- parts, processes ---


@pytest.mark.parametrize("parts", [2, 4])
def test_parts_give_the_gradient_of_the_whole(parts: int, text: Path) -> None:
    config = small(text, batch_size=8, **NO_DROPOUT, **JOINT)
    one = objective_of(config, double=True, batch_norm=False)
    more = like(one, text, parts=parts, vary_length=True, seed=config.seed)
    wanted = [*model_weights(one), *architecture_weights(one)]
    for step in (0, 1):  # the second with carried states
        for name in ("training", "validation"):
            found = [
                mean_gradients(
                    objective,
                    partial(getattr(objective, f"{name}_loss"), keep_state=True),
                    getattr(objective, f"{name}_batch")(1, step).parts,
                    wanted,
                )
                for objective in (one, more)
            ]
            assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
            torch.testing.assert_close(flat(found[0][1]), flat(found[1][1]), rtol=1e-9, atol=1e-14)
    assert len(more.training_batch(1, 0).parts) == parts


def test_processes_share_the_columns(text: Path) -> None:
    objective = objective_of(small(text, batch_size=8))
    shares = [like(objective, text, parts=2, rank=rank, processes=2, vary_length=True, seed=1) for rank in (0, 1)]
    for name in ("training_batch", "validation_batch"):
        (whole,) = getattr(objective, name)(1, 1).parts
        columns = [part.tokens for share in shares for part in getattr(share, name)(1, 1).parts]
        assert torch.equal(torch.cat(columns, dim=1), whole.tokens)


# --- losses and parameters ---


def test_slowness_belongs_to_training_alone(text: Path) -> None:
    objective = objective_of(small(text, slowness=0.5), double=True)
    objective.module.eval()
    (batch,) = objective.training_batch(1, 0).parts
    _, raw, _ = objective.model(batch.tokens)
    penalty = 0.5 * float((raw[1:] - raw[:-1]).detach().square().mean())
    assert penalty > 0
    expected = float(objective.validation_loss(batch).detach()) + penalty
    assert float(objective.training_loss(batch).detach()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", ["first", "joint", "inter", "fixed gates"])
def test_each_parameter_is_a_model_or_an_architecture_weight(kind: str, text: Path) -> None:
    objective = objective_of(small(text, **KINDS[kind]))
    architecture, weights = architecture_weights(objective), model_weights(objective)
    assert sorted(map(id, [*architecture, *weights])) == sorted(map(id, objective.module.parameters()))
    names = {id(parameter): name for name, parameter in objective.module.named_parameters()}
    assert {"arch" in names[id(parameter)].rpartition(".")[2] for parameter in architecture} == {True}
    assert {"arch" in names[id(parameter)].rpartition(".")[2] for parameter in weights} == {False}


def test_evaluation_is_of_the_whole_valid_part(text: Path) -> None:
    objective = objective_of(small(text))
    before = [buffer.clone() for buffer in objective.module.buffers()]
    random = torch.get_rng_state()
    found = objective.evaluate()
    assert objective.module.training
    assert torch.equal(torch.get_rng_state(), random)
    assert all(map(torch.equal, objective.module.buffers(), before))
    assert found == objective.evaluate()
    loss, perplexity = found.loss, found.value
    assert perplexity == pytest.approx(math.exp(loss))
    valid = load_text(str(text)).valid
    with objective.supernet.batch_statistics():
        assert loss == evaluate_stream(objective.model, valid, batch_size=4, bptt=12).loss
        assert loss == pytest.approx(evaluate_stream(objective.model, valid, batch_size=4).loss, rel=1e-5)


@pytest.mark.usefixtures("bfloat16")
def test_evaluation_in_bfloat16_comes_close(text: Path) -> None:
    loss = objective_of(small(text)).evaluate().loss
    coarse = objective_of(small(text, precision="bfloat16")).evaluate().loss
    assert coarse == pytest.approx(loss, rel=0.01) and coarse != loss


@pytest.mark.usefixtures("bfloat16")
def test_autocast_takes_losses_only(text: Path) -> None:
    objective = objective_of(small(text, precision="bfloat16"))
    loss = objective.training_loss(objective.training_batch(1, 0).parts[0], keep_state=True)
    assert loss.dtype == torch.float32
    gradients: list[Tensor] = list(torch.autograd.grad(loss, model_weights(objective), allow_unused=True))
    assert {gradient.dtype for gradient in gradients if gradient is not None} == {torch.float32}


# --- what cannot be used ---


@pytest.mark.parametrize(("train_lines", "valid_lines", "part"), [(2, 20, "train"), (90, 2, "valid")])
def test_too_little_text(train_lines: int, valid_lines: int, part: str, tmp_path: Path) -> None:
    text = write_text(tmp_path / "short", train_lines=train_lines, valid_lines=valid_lines)
    with pytest.raises(FlairNasError, match=f"{part}.*: 12 tokens are too few for 8 columns.*batch_size 6 at most"):
        objective_of(small(text, batch_size=8))
    objective_of(small(text, batch_size=6))


def test_columns_that_processes_and_parts_cannot_share(text: Path) -> None:
    with pytest.raises(FlairNasError, match="batch_size 8 cannot be divided into 2 parts for each of 3 processes"):
        build_supernet(small(text, batch_size=8, parts=2), process(count=3))
