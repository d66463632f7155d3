"""What the predictor of costs knows: features of cells, ridge regression against an independent one, and its prior."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype, random_genotype
from flair_nas.genotype.features import FEATURES, features
from flair_nas.library.cost_model import CostModel, encode, load_prior
from flair_nas.storage.resources import resource_path

CELLS = encode([random_genotype(seed, nodes=2 + seed % 4) for seed in range(60)])


def named(text: str, **options: Any) -> dict[str, float]:
    return dict(zip(FEATURES, features(replace(Genotype.parse(text), **options)), strict=True))


# --- features ---


def test_features_are_shares_of_edges_and_nodes() -> None:
    found = named("tanh0-relu1+tanh0-sigmoid2:3")
    assert found["tanh"] == 2 / 4 and found["relu"] == 1 / 4 and found["identity"] == 0
    assert found["tanh after s0"] == 2 / 4 and found["relu after tanh"] == 1 / 4
    assert found["sigmoid after relu"] == found["sigmoid after tanh"] == 1 / 8  # node 2 has two edges
    assert found["tanh first"] == 1 and found["deepest node"] == 3 / 3 and found["mean depth"] == (1 + 2 + 3) / 9
    assert found["log of nodes"] == math.log(3) and found["edges a node"] == 4 / 3
    assert found["nodes that no other reads"] == 1 / 3 and found["output nodes"] == 1 / 3
    assert found["elementwise"] == found["tanh, elementwise"] == found["no highway"] == 0 and found["constant"] == 1


def test_features_tell_options_and_gates() -> None:
    assert named("tanh0-relu0", recurrence="elementwise")["tanh, elementwise"] == 0.5
    assert named("tanh0", highway=False)["no highway"] == 1
    gates = named("tanh0/state=tanh/input=relu", gate="product")
    assert gates["state gate, product"] == gates["input gate, product"] == 1 and gates["state gate, residual"] == 0
    assert [name for name, value in named("s0").items() if value] == ["output nodes", "constant"]


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 3), st.integers(0, 3))
def test_features_of_any_cell_are_bounded_and_told_by_structure(
    seed: int, nodes: int, edges: int, history: int
) -> None:
    cell = random_genotype(seed, nodes, edges, history)
    found = dict(zip(FEATURES, features(cell), strict=True))
    assert all(0 <= value <= max(1, edges, math.log(nodes)) for value in found.values())
    ops = ("tanh", "relu", "sigmoid", "identity")
    assert sum(found[op] for op in ops) == pytest.approx(1)
    for op in ops:
        assert sum(found[f"{op} after {before}"] for before in ("s0", *ops)) == pytest.approx(found[op])
    assert features(Genotype.parse(cell.one_line())) == features(cell)


# --- the model ---


def test_weights_are_those_of_ridge_regression() -> None:
    costs = np.random.default_rng(1).normal(size=len(CELLS))
    empty = CostModel.empty()
    model, targets, inputs = empty.learn(CELLS, costs), empty.scale(CELLS, costs), CELLS
    widths = np.sqrt(1 / np.diag(empty.precision))
    rows = np.concatenate([inputs / 0.5, np.diag(1 / widths)])  # least squares with a row for each prior weight
    expected = np.linalg.lstsq(rows, np.append(targets / 0.5, np.zeros(len(widths))), rcond=None)[0]
    assert model.mean == pytest.approx(expected, abs=1e-10)
    assert np.linalg.inv(model.precision) == pytest.approx(np.linalg.inv(rows.T @ rows), abs=1e-10)


def test_what_is_learnt_in_two_parts_is_what_is_learnt_at_once() -> None:
    costs = np.random.default_rng(2).normal(size=len(CELLS))
    empty = CostModel.empty()
    whole, first = empty.learn(CELLS, costs), empty.learn(CELLS[:30], costs[:30])
    assert (first.precision + CELLS[30:].T @ CELLS[30:] / 0.25) == pytest.approx(whole.precision)


@given(st.floats(1e-3, 1e3), st.floats(-100, 100))
def test_the_scale_of_costs_does_not_matter(factor: float, offset: float) -> None:
    costs = np.random.default_rng(3).normal(size=20)
    model, other = (CostModel.empty().learn(CELLS[:20], values) for values in (costs, factor * costs + offset))
    assert other.mean == pytest.approx(model.mean, abs=1e-6)


def test_draws_are_of_the_distribution_of_the_weights() -> None:
    model = CostModel.empty().learn(CELLS, CELLS[:, 0])
    drawn = np.array([model.draw(np.eye(len(FEATURES)), (5, number)) for number in range(4000)])
    deviations = np.sqrt(np.diag(np.linalg.inv(model.precision)))
    assert np.abs((drawn.mean(0) - model.mean) / deviations).max() < 5 / math.sqrt(4000)
    assert drawn.std(0) / deviations == pytest.approx(np.ones(len(FEATURES)), abs=0.06)
    assert (model.draw(CELLS, (5, 1)) == CELLS @ drawn[1]).all()


def test_it_ranks_cells_that_it_has_not_seen() -> None:
    truth = np.random.default_rng(4).normal(size=len(FEATURES))
    cells = encode([random_genotype(seed, nodes=3) for seed in range(1000, 1200)])
    model = CostModel.empty().learn(cells[:100], cells[:100] @ truth)
    ranks = [np.argsort(np.argsort(values)) for values in (model.predict(cells[100:]), cells[100:] @ truth)]
    assert np.corrcoef(ranks)[0, 1] > 0.9


@pytest.mark.parametrize("costs", [[1.0] * 5, [0.1] * 5, [math.inf] * 5])
def test_costs_that_do_not_differ_teach_no_weight(costs: list[float]) -> None:
    model = CostModel.empty().learn(CELLS[:5], costs)
    assert model.mean == pytest.approx(np.zeros(len(FEATURES)), abs=1e-12)


@pytest.mark.parametrize("costs", [[3.21, math.inf, math.inf, math.inf], [math.inf, 2.0, 2.0, 2.0]])
def test_failed_cells_are_learnt_from_even_if_all_others_are_equal(costs: list[float]) -> None:
    predicted = CostModel.empty().learn(CELLS[:4], costs).predict(CELLS[:4])
    assert np.isfinite(predicted).all()
    assert predicted[np.isinf(costs)].min() > predicted[np.isfinite(costs)].max()


def test_how_bad_a_bad_cell_is_does_not_matter() -> None:
    costs = [4.0, 4.1, 4.2, 4.3, 4.4]
    bad, failed = (CostModel.empty().learn(CELLS[:6], [*costs, cost]) for cost in (1e6, math.inf))
    assert bad.mean == pytest.approx(failed.mean) and failed.predict(CELLS[:6]).argmax() == 5


# --- the prior ---


def test_the_bundled_prior_knows_good_cells_from_bad_ones() -> None:
    prior = load_prior()
    good, bad = prior.predict(encode([*map(Genotype.parse, ("identity0-tanh1-tanh1", "sigmoid0-sigmoid1-sigmoid2"))]))
    assert good < bad - 1


def test_a_prior_for_another_task_is_less_sure_and_has_any_level() -> None:
    model = CostModel.empty().learn(CELLS, np.arange(len(CELLS)))
    prior = model.without_level(0.1)
    widths = [np.diag(np.linalg.inv(one.precision))[:-1] for one in (prior, model)]
    assert (widths[0] >= widths[1]).all() and widths[0].sum() > 1.2 * widths[1].sum() and prior.mean[-1] == 0
    assert prior.mean[:-1] == pytest.approx(model.mean[:-1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 9}, "version 9, is not flair-nas/cost-prior, version 1"),
        ({"format": "other"}, "other, version 1, is not"),
        ({"features": [*FEATURES[:-1], "luck"]}, "this version has no features luck"),
        ({"mean": []}, "shape mismatch"),
        ({"mean": [math.nan] * len(FEATURES)}, "its weights are no distribution"),
        ({"precision": []}, "shape mismatch"),
        ({"precision": [[0.0] * (place + 1) for place in range(len(FEATURES))]}, "its weights are no distribution"),
    ],
)
def test_a_prior_that_cannot_be_used_is_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    data = json.loads(resource_path("cost_prior.json").read_text(encoding="utf-8"))
    (tmp_path / "prior.json").write_text(json.dumps(data | change))
    with pytest.raises(FlairNasError, match=f"prior.json: this prior cannot be read .*{words}.*reinstall flair-nas"):
        load_prior(tmp_path / "prior.json")


def test_features_that_a_prior_lacks_are_free(tmp_path: Path) -> None:
    data, bundled = json.loads(resource_path("cost_prior.json").read_text(encoding="utf-8")), load_prior()
    fewer = {"features": data["features"][1:], "mean": data["mean"][1:]}
    rows = [row[1:] for row in data["precision"][1:]]
    (tmp_path / "prior.json").write_text(json.dumps(data | fewer | {"precision": rows}))
    prior = load_prior(tmp_path / "prior.json")
    assert (prior.mean[1:] == bundled.mean[1:]).all() and prior.mean[0] == 0
    assert prior.precision[1:, 1:] == pytest.approx(bundled.precision[1:, 1:])
    assert prior.precision[0, 0] == CostModel.empty().precision[0, 0] and not prior.precision[0, 1:].any()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_prior_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "prior.json").write_bytes(content)
    with pytest.raises(FlairNasError, match="this prior cannot be read"):
        load_prior(tmp_path / "prior.json")
