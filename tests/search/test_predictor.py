"""Search by a predictor: what it trains next, what it finds, and what it says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from small_search import NO_DROPOUT, patched, run_whole, small, strategy_of, write_text

from flair_nas.errors import FlairNasError, NotFiniteError
from flair_nas.genotype import Genotype, neighbours
from flair_nas.library import cost_model
from flair_nas.library.cost_model import CostModel, encode, load_prior
from flair_nas.search.space import CellSpace
from flair_nas.search.strategies.predictor import POOL, STARTS


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text", train_lines=60, valid_lines=12)


def search_on(text: Path, **settings: Any) -> Any:
    own = {"strategy": "predictor", "child_steps": [2], "nodes": 3}
    return strategy_of(small(text, **{**own, **NO_DROPOUT, **settings}))


def run_on_costs(strategy: Any, cost: Any) -> None:
    """Run a search whose children have costs of a function instead of losses."""

    def score(number: int) -> float:
        strategy.scores[number] = cost(strategy.children[number])
        return strategy.scores[number]

    with patched(strategy, "score", score):
        run_whole(strategy)


def count_tanh(cell: Genotype) -> float:
    """A cost that tanh lowers; node 3 counts most."""
    return 5 - sum(number for number, edges in enumerate(cell.nodes, start=1) for edge in edges if edge.op == "tanh")


def test_it_soon_trains_cells_of_low_cost_without_a_prior(text: Path) -> None:
    strategy = search_on(text, prior="none", epochs=8)
    run_on_costs(strategy, count_tanh)
    costs = [count_tanh(child) for child in strategy.children]
    assert len(costs) > 16 and min(costs) == -1
    assert sum(costs[-8:]) / 8 < sum(costs[:STARTS]) / STARTS - 2
    assert count_tanh(strategy.genotype()) == -1


def test_each_child_is_the_best_of_its_pool_by_a_draw_and_new(text: Path) -> None:
    strategy = search_on(text, epochs=4)
    run_whole(strategy)
    assert len({child.one_line() for child in strategy.children}) == len(strategy.children) > 6
    for number in (0, 5):
        cells, costs = strategy.children[:number], [strategy.scores[other] for other in range(number)]
        model = load_prior().learn(encode(cells), costs) if number else load_prior()
        pool = [CellSpace(strategy.config).draw(place) for place in range(POOL)]
        pool += [near for cell in cells for near in neighbours(cell)]
        seed = (strategy.config.seed, number)
        lowest = min(model.draw(encode([cell for cell in pool if cell not in cells]), seed))
        assert model.draw(encode([strategy.children[number]]), seed)[0] == pytest.approx(lowest)


def test_a_failed_child_is_learnt_from_and_never_found(text: Path) -> None:
    strategy = search_on(text, epochs=4)
    real = strategy.model_optimizer.step

    def failing(*arguments: Any) -> float:
        if len(strategy.children) <= 3:
            raise NotFiniteError("the loss is nan")
        return real(*arguments)

    with patched(strategy.model_optimizer, "step", failing):
        run_whole(strategy)
    assert [strategy.scores[number] for number in range(3)] == [math.inf] * 3
    assert math.isfinite(strategy.scores[strategy.best()])


def test_the_verdict_tells_what_was_learnt(text: Path) -> None:
    strategy = search_on(text, epochs=6)
    run_on_costs(strategy, count_tanh)
    words = strategy.verdict([])
    assert "good signs are 'tanh" in words and ", bad ones '" in words
    assert "what was known before ranks these children with a correlation of " in words
    alone = search_on(text, prior="none", epochs=2)
    run_on_costs(alone, count_tanh)
    assert "with fewer than 16, predictor was not ahead of random cells" in alone.verdict([])
    assert "known before" not in alone.verdict([])


def test_going_on_with_another_prior_is_told(text: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = search_on(text).state_dict()
    search_on(text).load_state_dict(state)
    assert not caplog.messages
    search_on(text, prior="none").load_state_dict(state)
    assert "knows other things of cells before a search" in caplog.messages[0]


def test_the_whole_space_can_be_trained(text: Path) -> None:
    strategy = search_on(text, nodes=1, epochs=3)
    run_whole(strategy)
    assert {child.one_line() for child in strategy.children[:4]} == {"tanh0", "relu0", "sigmoid0", "identity0"}
    assert len(strategy.children) > 5  # then a cell comes again


def test_settings_that_cannot_be(text: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(FlairNasError, match="strategy predictor has no hurdles: child_steps must be one number"):
        search_on(text, child_steps=[1, 2])
    with pytest.raises(FlairNasError, match="prior must be one of bundled, none"):
        search_on(text, prior="mine")
    with pytest.raises(FlairNasError, match="prior belongs to strategy predictor"):
        search_on(text, strategy="local-search", prior="none")
    (tmp_path / "prior.json").write_text("{}")
    monkeypatch.setattr(cost_model, "resource_path", lambda *parts: tmp_path / "prior.json")
    with pytest.raises(FlairNasError, match="this prior cannot be read"):
        search_on(text)
    assert isinstance(search_on(text, prior="none").prior, CostModel)
