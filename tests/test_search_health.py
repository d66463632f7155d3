"""The health of a search: what its figures say, and the plain sentence at its end."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from small_search import KINDS, small, write_text

from flair_nas.genotype import Genotype
from flair_nas.search.health import (
    Changes,
    Health,
    entropy,
    identity_share,
    verdict,
    verdict_of_decisions,
    verdict_of_scores,
)
from flair_nas.search.trainer import search_genotype
from flair_nas.supernet import derive
from flair_nas.supernet.derive import margins


def test_steps_are_measured_in_learning_rates() -> None:
    weights = [torch.zeros(2, 5), torch.zeros(3)]
    health = Health(weights, rate=0.01)
    assert health.figures() == {"update": None, "drift": None}
    for _ in range(4):
        weights[0] += 0.005
        health.add()
    found = health.figures()
    assert found["update"] == pytest.approx(0.5 * 10 / 13) and found["drift"] == pytest.approx(1)
    health.restart()
    assert health.figures()["update"] is None


def test_entropy_is_one_for_uniform_shares_and_none_for_a_decision() -> None:
    assert entropy([torch.full((5,), 0.2), torch.full((10,), 0.1)]) == pytest.approx(1)
    assert entropy([torch.tensor([0.0, 1.0, 0.0])]) == 0
    assert entropy([torch.tensor([0.5, 0.5, 0.0, 0.0])]) == pytest.approx(0.5)


def test_identity_edges_and_changed_nodes_are_counted() -> None:
    first, second, third = (
        Genotype.parse(text)
        for text in ("identity0-tanh0/state=tanh", "identity0-tanh1/state=tanh", "identity0-relu1+identity0/state=relu")
    )
    assert (identity_share(first), identity_share(third)) == (0.5, pytest.approx(2 / 3))
    changes = Changes(["intra", "inter"])
    assert [changes.count(genotype) for genotype in (first, second, third, third, third)] == [None, 1, 2, 2, 2]
    again = Changes(["intra", "inter"])
    again.restore(changes.state())
    assert (again.count(first), changes.count(first)) == (2, 2)
    of_gates = Changes(["inter"])  # around a cell that stays
    assert [of_gates.count(genotype) for genotype in (first, second, third)] == [None, 0, 1]
    assert len(of_gates.nodes(first)) == 1


@pytest.mark.parametrize("relaxation", ["darts", "i-darts"])
def test_margins_are_those_between_the_kept_edge_and_the_next(relaxation: str) -> None:
    arch = torch.full((3, 5), -20.0)
    arch[0, 1], arch[0, 2] = 0.0, math.log(0.8)
    arch[1, 3], arch[2, 4], arch[2, 1] = math.log(0.5), 0.0, -20.0  # node 2 reads node 1, then node 0
    if relaxation == "darts":  # each pair has a softmax of its own: drop makes them comparable
        arch[1, 0] = math.log(0.5)
    first, second = margins(arch, relaxation)
    assert first == pytest.approx(0.2, abs=1e-6) and second == pytest.approx(0.5, abs=1e-6)
    assert margins(torch.zeros(3, 5), relaxation) == [0, 0]


def test_identity_can_be_limited() -> None:
    arch = torch.zeros(6, 5)
    arch[0, 4], arch[0, 2] = 3.0, 2.9  # node 1: identity, closely before relu
    arch[2, 4] = 5.0  # node 2: identity of node 1, clearly
    arch[3, 4], arch[4, 1] = 4.0, 2.0  # node 3: identity of s_0, before tanh of node 1
    for most, expected in (
        (None, "identity0-identity1-identity0"),
        (3, "identity0-identity1-identity0"),
        (2, "relu0-identity1-identity0"),
        (1, "relu0-identity1-tanh1"),
        (0, "relu0-tanh0-tanh1"),
    ):
        assert Genotype(derive(arch, "i-darts", most_identity=most)).one_line() == expected
    two = derive(arch, "i-darts", 2, most_identity=0)
    assert all(edge.op != "identity" for edges in two for edge in edges)


def sentence(losses: Sequence[float | None] = (5.0, 4.0), **changes: Any) -> str:
    part = {"update": 0.1, "drift": 0.0, "drifts": False, "entropy": 0.5}
    figures: dict[str, Any] = {
        "parts": {"intra": part}, "identity_share": 0.1, "margin": 0.5, "clear": 1.0, "changed": 0, "over": 3,
        "nodes": 8,
    }  # fmt: skip
    return verdict({**figures, **changes}, losses)  # type: ignore[typeddict-item]


def test_the_verdict_is_one_plain_sentence() -> None:
    assert sentence().startswith("settled")
    assert "in 75% of its choices the kept edge is less than 10% ahead" in sentence(clear=0.25)
    assert "close to arbitrary: 3 of its 8 nodes changed in the last 2 epochs" in sentence(changed=3, over=2)
    assert sentence(changed=2).startswith("settled")
    assert "one epoch does not tell" in sentence(changed=None)
    moving = {"update": 0.1, "drift": 0.9, "drifts": True, "entropy": 0.5}
    assert "still move" in sentence(parts={"inter": moving})
    assert "its supernet got worse: a valid loss of 7.86 at the end, of 5.90 at its best" in sentence((5.96, 5.9, 7.86))
    assert "a valid loss of inf at the end" in sentence((5.96, None))
    for said in (sentence(), sentence(clear=0.25)):
        assert said.endswith("flair-nas select compares it with random cells and the LSTM")
    assert "3 decisions, the valid loss rises by 0.2000 more" in verdict_of_decisions([0.3, 0.1, 0.2])
    said = verdict_of_scores([5, 4, 4.5, math.inf], "loss")
    assert "of the 3 candidates" in said and "the next is behind it by 0.5000 in loss, the last by 1.0000" in said
    assert verdict_of_scores([4.0], "loss") == verdict_of_scores([math.inf], "loss") == ""


@pytest.mark.parametrize("kind", ["first", "joint", "inter", "decided"])
def test_every_epoch_has_its_health_and_the_result_its_verdict(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))
    text = write_text(tmp_path / "text", train_lines=60, valid_lines=12)
    result = search_genotype(small(text, **KINDS[kind]), tmp_path / "run", progress=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    parts = {"joint": {"intra", "inter"}, "inter": {"inter"}}.get(kind, {"intra"})
    for line, changed in zip(lines, (True, False), strict=True):
        health = line["health"]
        assert set(health["parts"]) == parts and (health["changed"] is None) == changed
        assert 0 <= health["clear"] <= 1 and 0 <= health["identity_share"] <= 1 and health["nodes"] >= 2
        for part in health["parts"].values():
            assert 0 < part["entropy"] <= 1 and 0 < part["update"] < 2 and -1 <= part["drift"] <= 1
    own = verdict(lines[-1]["health"], [line["valid_loss"] for line in lines])
    assert result.verdict.startswith("decided by perturbation") if kind == "decided" else result.verdict == own
    written = Genotype.load(tmp_path / "run" / "genotype.json")
    assert written.origin["verdict"] == result.verdict and written == result.genotype
    again = search_genotype(small(text, **KINDS[kind]), tmp_path / "run", progress=False)
    assert (again.genotype, again.verdict) == (result.genotype, result.verdict)
