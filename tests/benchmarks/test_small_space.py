"""The small space: its cells, its tables, and strategies that run on them without training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.search.small_space import SmallSpace, TableObjective, all_cells
from flair_nas.genotype import Genotype, neighbours
from flair_nas.search.config import SearchConfig
from flair_nas.search.trainer import search_genotype
from flair_nas.settings.fields import make_settings


def true_cost(cell: Genotype) -> float:
    """A made-up cost with one best cell of each recurrence: the more tanh and the nearer the tails, the better."""
    edges = [edge for (edge,) in cell.nodes]
    return 4 + sum(0.1 * (edge.op != "tanh") + 0.02 * (node - edge.tail) for node, edge in enumerate(edges))


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> SmallSpace:
    """A table of two seeds and three looks; early looks are worse, and seed 2 is above seed 1."""
    lines: list[dict[str, Any]] = [{"table": "made-up", "steps": [20, 40, 60], "seeds": [1, 2]}]
    for recurrence in ("full", "elementwise"):
        for cell in all_cells(recurrence):
            costs = [[true_cost(cell) + 0.01 * seed + 0.3 / look for look in (1, 2, 3)] for seed in (1, 2)]
            lines.append({"table": "made-up", "recurrence": recurrence, "cell": cell.one_line(), "costs": costs})
    path = tmp_path_factory.mktemp("tables") / "made-up.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return SmallSpace("made-up", path)


def test_the_space_has_all_cells_of_three_nodes() -> None:
    for recurrence in ("full", "elementwise"):
        cells = all_cells(recurrence)
        assert len({cell.one_line() for cell in cells}) == len(cells) == 384
        assert all(cell.recurrence == recurrence for cell in cells)
        assert {other for cell in cells for other in neighbours(cell)} == {*cells}


def test_costs_are_looked_up(space: SmallSpace) -> None:
    cell = Genotype.parse("tanh0-relu1-tanh2")
    assert space.cost(cell, step=20, seed=1) == pytest.approx(true_cost(cell) + 0.31)
    assert space.cost(cell, step=60, seed=2) == pytest.approx(true_cost(cell) + 0.12)
    assert space.cost(cell) == pytest.approx(true_cost(cell) + 0.115)
    assert space.rank(Genotype.parse("tanh0-tanh1-tanh2")) == 0
    assert space.rank(Genotype.parse("relu0-identity0-sigmoid0")) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [
        {"strategy": "random-independent", "samples": 20},
        {"strategy": "evolution", "child_steps": [3], "population": 8, "tournament": 3},
        {"strategy": "local-search", "child_steps": [3]},
    ],
    ids=lambda settings: settings["strategy"],
)
def test_strategies_run_on_a_table(strategy: dict[str, Any], space: SmallSpace, tmp_path: Path) -> None:
    settings = {"text": None, "nodes": 3, "recurrence": "elementwise", "epochs": 3, "device": "cpu", **strategy}
    config = make_settings(SearchConfig, settings)
    found = search_genotype(
        config, tmp_path / "run", objective=lambda accelerator: TableObjective(space, 1, 50), progress=False
    )
    assert space.rank(found.genotype) < 0.25
