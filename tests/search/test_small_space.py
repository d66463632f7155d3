"""The small space: its cells, its tables, and strategies that run on them without training."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype, neighbours
from flair_nas.search.config import SearchConfig
from flair_nas.search.small_space import SmallSpace, TableObjective, all_cells
from flair_nas.search.strategies.random_cells import RandomSharedSettings
from flair_nas.search.trainer import search_genotype
from flair_nas.settings.fields import make_settings


def true_cost(cell: Genotype) -> float:
    """A made-up cost with one best cell of each recurrence: the more tanh and the nearer the tails, the better."""
    edges = [edge for (edge,) in cell.nodes]
    return 4 + sum(0.1 * (edge.op != "tanh") + 0.02 * (node - edge.tail) for node, edge in enumerate(edges))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of two seeds and three looks; early looks are worse, and seed 2 is above seed 1."""
    costs = {
        recurrence: {
            cell.one_line(): [[true_cost(cell) + 0.01 * seed + 0.3 / look for look in (1, 2, 3)] for seed in (1, 2)]
            for cell in all_cells(recurrence)
        }
        for recurrence in ("full", "elementwise")
    }
    path = tmp_path_factory.mktemp("tables") / "made-up.json"
    path.write_text(json.dumps({"version": 1, "about": {}, "steps": [20, 40, 60], "seeds": [1, 2], "costs": costs}))
    return path


def test_the_space_has_all_cells_of_three_nodes() -> None:
    for recurrence in ("full", "elementwise"):
        cells = all_cells(recurrence)
        assert len({cell.one_line() for cell in cells}) == len(cells) == 384
        assert all(cell.recurrence == recurrence for cell in cells)
        assert {other for cell in cells for other in neighbours(cell)} == {*cells}


def test_costs_are_looked_up(table: Path) -> None:
    space = SmallSpace(table)
    cell = Genotype.parse("tanh0-relu1-tanh2")
    assert space.cost(cell, step=20, seed=1) == pytest.approx(true_cost(cell) + 0.31)
    assert space.cost(cell, step=60, seed=2) == pytest.approx(true_cost(cell) + 0.12)
    assert space.cost(cell) == pytest.approx(true_cost(cell) + 0.115)
    assert space.rank(Genotype.parse("tanh0-tanh1-tanh2")) == 0
    assert space.rank(Genotype.parse("relu0-identity0-sigmoid0")) > 0.9


@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        ("tanh0-tanh1", {}, "tanh0-tanh1 is not in the small space: cells of 3 nodes, one edge each"),
        ("tanh0-tanh1+relu0-tanh1", {}, "not in the small space"),
        ("tanh0-tanh1-tanh1/state=tanh/input=tanh", {}, "not in the small space"),
        ("tanh0-tanh1-tanh1", {"step": 30}, "the table has no step 30; it has 20, 40, 60"),
        ("tanh0-tanh1-tanh1", {"seed": 3}, "the table has no seed 3; it has 1, 2"),
    ],
)
def test_what_the_table_has_not_is_named(spec: str, options: dict[str, Any], words: str, table: Path) -> None:
    with pytest.raises(FlairNasError) as error:
        SmallSpace(table).cost(Genotype.parse(spec), **options)
    assert words in str(error.value)


def test_tables_that_cannot_be_used(table: Path, tmp_path: Path) -> None:
    data = json.loads(table.read_text())
    some = {**data["costs"], "full": dict(list(data["costs"]["full"].items())[1:])}
    short = {**data["costs"], "full": {name: rows[:1] for name, rows in data["costs"]["full"].items()}}
    for content, words in (
        (table.read_text()[:1000], "is damaged"),
        (json.dumps({**data, "version": 0}), "is no table of version 1"),
        (json.dumps({**data, "costs": some}), "has not all full cells"),
        (json.dumps({**data, "costs": short}), "lacks costs of some cells, seeds or steps"),
    ):
        path = tmp_path / "table.json"
        path.write_text(content)
        with pytest.raises(FlairNasError, match=words):
            SmallSpace(path)
    with pytest.raises(FlairNasError, match="lacks seeds"):
        path.write_text(json.dumps({name: value for name, value in data.items() if name != "seeds"}))
        SmallSpace(path)
    with pytest.raises(FlairNasError, match="cannot read the table .*nowhere.json: No such file"):
        SmallSpace(tmp_path / "nowhere.json")
    with pytest.raises(FlairNasError, match="unknown table 'pbt'; did you mean .*ptb"):
        SmallSpace("pbt")


def test_a_table_is_for_candidates_that_are_trained_alone(table: Path, tmp_path: Path) -> None:
    config = SearchConfig(text=None, nodes=3, epochs=1, device="cpu", strategy=RandomSharedSettings(samples=3))
    with pytest.raises(FlairNasError, match="a table works with the strategies random-independent, evolution, local"):
        search_genotype(config, tmp_path, objective=lambda _: TableObjective(SmallSpace(table), 1), progress=False)


STRATEGIES: dict[str, dict[str, Any]] = {
    "random": {"strategy": "random-independent", "samples": 20},
    "halving": {"strategy": "random-independent", "samples": 32, "rungs": 3},
    "evolution": {"strategy": "evolution", "child_steps": [3], "population": 8, "tournament": 3},
    "hurdles": {
        "strategy": "evolution", "child_steps": [1, 1, 1], "population": 8, "tournament": 3, "removal": "worst",
        "hurdle_every": 8,
    },
    "local-search": {"strategy": "local-search", "child_steps": [3]},
}  # fmt: skip


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("recurrence", ["full", "elementwise"])
def test_strategies_run_on_a_table(name: str, recurrence: str, table: Path, tmp_path: Path) -> None:
    space = SmallSpace(table)
    settings = {"text": None, "nodes": 3, "recurrence": recurrence, "epochs": 3, "device": "cpu", **STRATEGIES[name]}
    config = make_settings(SearchConfig, settings)
    found = search_genotype(
        config, tmp_path / "run", objective=lambda accelerator: TableObjective(space, 1, 50), progress=False
    )
    assert space.rank(found.genotype) < 0.25
    lines = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    best = min(space.cost(cell, seed=1) for cell in all_cells(recurrence))
    assert found.genotype.recurrence == recurrence and len(lines) == 3
    if name == "local-search":
        assert space.rank(found.genotype) == 0 and math.isclose(best, space.cost(found.genotype, seed=1))


def test_a_bundled_table_has_its_signal() -> None:
    space = SmallSpace("ptb")
    assert space.steps == [20, 40, 60, 80, 100, 120, 140, 160] and space.seeds == [1, 2, 3]
    for recurrence in ("full", "elementwise"):
        costs = sorted(space.cost(cell) for cell in all_cells(recurrence))
        assert 3.5 < costs[0] < costs[-1] < 5
