"""Searches of the order of a transformer's sublayers, on text and on tags."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_language_model import write_text_folder
from small_search import Stop, assert_same_runs, interrupt, patched, strategy_of
from small_tagging import write_corpus

from flair_nas import FlairNasError, SearchConfig, search_genotype
from flair_nas.cli import main
from flair_nas.drawing import charts
from flair_nas.genotype.order import parse_order
from flair_nas.nn.sublayers import SublayerTransformer
from flair_nas.runs.run import RunStopped
from flair_nas.search.registry import strategy_class
from flair_nas.search.space import OrderSpace
from flair_nas.settings.fields import make_settings
from flair_nas.supernet.orders import OrderSupernet

pytest.importorskip("x_transformers", reason="the extra transformer is not installed")

STRATEGIES: dict[str, dict[str, Any]] = {
    "halving": {"strategy": "random-independent", "samples": 4, "rungs": 2},
    "evolution": {"strategy": "evolution", "child_steps": [2], "population": 2, "tournament": 2},
    "local-search": {"strategy": "local-search", "child_steps": [2], "candidates": ["transformer:fsfs,heads=2"]},
    "predictor": {"strategy": "predictor", "child_steps": [2]},
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_text_folder(tmp_path_factory.mktemp("data") / "text", lines=120)


def config(text: str, /, **changes: Any) -> SearchConfig:
    given: dict[str, Any] = {
        "text": text, "sublayers": "transformer:sandwich-0-2,heads=2", "optimizer": "adamw", "learning_rate": 0.01,
        "warmup_steps": 3, "hidden_size": 8, "batch_size": 4, "bptt": 12, "epochs": 3, "device": "cpu",
    }  # fmt: skip
    return make_settings(SearchConfig, given | changes)


# --- the space and the model ---


def test_orders_are_drawn_and_changed_within_the_space(text: str) -> None:
    space = OrderSpace(config(text, sublayers="transformer:sandwich-1-3,heads=2,dropout=0.1", **STRATEGIES["halving"]))
    drawn = [space.draw(number) for number in range(200)]
    assert {"".join(sorted(order.letters)) for order in drawn} == {"fffsss"} and len({*drawn}) == math.comb(6, 3)
    assert drawn[:5] == [space.draw(number) for number in range(5)]
    for order in drawn[:20]:
        around = space.neighbours(order)
        assert len({*around}) == len(around) == 9  # one of three s, and one of three f
        assert all(sum(a != b for a, b in zip(order.letters, other.letters, strict=True)) == 2 for other in around)
        assert space.read(json.loads(json.dumps(order.to_dict()))) == order
    with pytest.raises(FlairNasError, match="has not the sublayers, heads and dropout of"):
        space.parse("transformer:ssff,heads=2")


def test_features_are_those_of_the_places_of_s(text: str) -> None:
    space = OrderSpace(config(text, **STRATEGIES["halving"]))
    early, mixed, late = (space.parse(f"transformer:{letters},heads=2") for letters in ("ssff", "sfsf", "ffss"))
    found = dict(zip(space.features, space.encode([early, mixed, late]).T, strict=True))
    np.testing.assert_allclose(found["mean place of s"], [1 / 6, 1 / 3, 5 / 6])
    np.testing.assert_allclose(found["s in the first third"], [0.5, 0.5, 0.0])
    np.testing.assert_allclose(found["s in the last third"], [0.0, 0.0, 0.5])
    np.testing.assert_allclose(found["runs of one letter"], [0.5, 1.0, 0.5])


@pytest.mark.parametrize("directions", [True, False])
def test_a_chosen_order_is_the_transformer_of_that_order(directions: bool) -> None:
    torch.manual_seed(1)
    start = parse_order("transformer:sandwich-1-3,heads=2")
    net = OrderSupernet(5, 8, start, directions, True).eval()
    for weight in net.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    data = torch.randn(2, 7, 5)
    for _ in range(4):
        letters = "".join(random.sample(start.letters, 6))
        order = dataclasses.replace(start, letters=letters)
        net.choose(order)
        alone = SublayerTransformer(5, 8, order, directions, True).eval()
        state = net.state_dict()
        for place, letter in enumerate(letters):
            source = letters[:place].count(letter) + 3 * (letter == "f")
            for name, weight in alone.sublayers.layers[place].named_parameters():
                with torch.no_grad():
                    weight.copy_(state[f"sublayers.layers.{source}.{name}"])
        for name in ("project.weight", "project.bias", "sublayers.final_norm.gamma"):
            with torch.no_grad():
                alone.get_parameter(name).copy_(state[name])
        torch.testing.assert_close(net(data)[0], alone(data)[0])


# --- searches ---


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRATEGIES)
def test_a_search_on_text_goes_on_where_it_stopped(kind: str, text: str, tmp_path: Path) -> None:
    given = config(text, **STRATEGIES[kind])
    owner = strategy_class(STRATEGIES[kind]["strategy"])
    with patched(charts, "draw_progress", lambda *_: None):
        whole = search_genotype(given, tmp_path / "whole", progress=False)
        with Stop(2, 1, interrupt, owner), pytest.raises(RunStopped):
            search_genotype(given, tmp_path / "run", progress=False)
        again = search_genotype(given, tmp_path / "run", progress=False)
    assert_same_runs(tmp_path / "whole", tmp_path / "run")
    assert again.genotype == whole.genotype
    assert sorted(whole.genotype.letters) == [*"ffss"]  # type: ignore[attr-defined]
    assert "was not ahead of random cells" not in whole.verdict


def test_each_candidate_begins_with_the_same_weights_and_no_state_of_the_optimizer(text: str) -> None:
    strategy = strategy_of(config(text, **STRATEGIES["evolution"]))
    rates = []
    for step in range(4):
        strategy.step(1, step)
        rates.append(strategy.model_optimizer.optimizer.param_groups[0]["lr"])
    assert rates[0] == rates[2] < rates[1] == rates[3]  # the warm-up begins anew with the second child
    steps = {int(state["step"]) for state in strategy.model_optimizer.optimizer.state.values()}
    assert steps == {2}


def test_a_state_of_before_optimizers_were_kept_goes_on(text: str) -> None:
    cells: dict[str, Any] = {"sublayers": None, "optimizer": "sgd", "warmup_steps": 0, "learning_rate": 2.0, "nodes": 2}
    given = config(text, **STRATEGIES["halving"], **cells)
    whole, again = strategy_of(given), strategy_of(given)
    steps = [(epoch, step) for epoch in (1, 2, 3) for step in range(whole.objective.steps(epoch))]
    middle = len(steps) // 3
    for number, (epoch, step) in enumerate(steps):
        if number == middle:
            state = copy.deepcopy(whole.state_dict())
            assert state.pop("optimizers") and state.pop("optimizer")
            again.load_state_dict(state)
            again.objective.module.load_state_dict(whole.objective.module.state_dict())
            random_before = torch.get_rng_state()
        whole.step(epoch, step)
    torch.set_rng_state(random_before)
    for epoch, step in steps[middle:]:
        again.step(epoch, step)
    whole.finish(False)
    again.finish(False)
    assert again.genotype() == whole.genotype() and again.alive == whole.alive


@pytest.mark.slow
def test_a_search_on_tags_says_how_its_order_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, out = write_corpus(tmp_path / "corpus"), tmp_path / "run"
    few = "--strategy evolution --population 2 --tournament 2 --child-steps 6 --hidden-size 8 --batch-size 4 --epochs 8"
    order = "--sublayers transformer:sandwich-0-2,heads=2 --optimizer adamw --learning-rate 0.01"
    command = f"search -q --objective tagging --corpus {corpus} --embeddings one-hot {few} {order} --out {out}"
    assert main([*command.split(), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    spec = json.loads((out / "genotype.json").read_text())["order"]
    assert said.startswith(spec) and f"--corpus {corpus}" in said
    assert f" --hidden-size 8 --rnn {spec} --optimizer adamw --out runs/tagger" in said
    assert main(["tag", "train", "-q", "--corpus", corpus, "--rnn", str(out), "--out", str(tmp_path / "tag")]) == 2
    assert f"found '{spec}'; expected a cell; that is an order" in capsys.readouterr().err
    assert main(["report", str(out), "--out", str(tmp_path / "report.html")]) == 0
    assert spec in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "gradient"}, "sublayers needs a strategy that trains candidates alone, such as predictor"),
        ({"strategy": "gradient", "sublayers": None}, "optimizer needs a strategy that trains candidates alone"),
        ({"sublayers": "transformer:ssss"}, "has one order only: give it letters of both kinds"),
        ({"sublayers": "sandwich-2-4"}, "sublayers 'sandwich-2-4': expected transformer:ORDER"),
        ({"nodes": 3}, "nodes is of cells: leave it out with sublayers"),
        ({"input_dropout": 0.1}, "input_dropout is of cells"),
        ({"learning_rate": 10.0}, "optimizer adamw takes a learning_rate of about 0.001, got 10"),
        ({"candidates": ["tanh0"]}, "candidates: candidate 'tanh0': expected transformer:ORDER"),
        ({"candidates": ["transformer:sf"]}, "transformer:sf has not the sublayers, heads and dropout of"),
        ({"objective": "classification"}, "sublayers are searched on text or tags"),
        ({"prior": "bundled"}, "prior bundled is of cells: leave it out with sublayers"),
    ],
)
def test_settings_that_contradict_sublayers_are_refused(changes: dict[str, Any], message: str, text: str) -> None:
    own = {} if changes.get("strategy") else STRATEGIES["predictor"]
    with pytest.raises(FlairNasError, match=message):
        config(text, **{**own, **changes})
