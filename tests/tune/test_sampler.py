"""How settings are drawn: within their values, never twice, and by what was found before."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from flair_nas.library.cost_model import encode, load_prior
from flair_nas.tune.parts import EMBEDDED, Point, Range, count_points, draw_cells, is_whole, to_changes
from flair_nas.tune.sampler import Known, draw

SPACE = {
    "rnn": ["lstm", "gru", "small-tanh"],
    "learning_rate": Range(0.02, 0.5, log=True),
    "word_dropout": Range(0.0, 0.1),
    f"{EMBEDDED}english": (True, False),
    f"{EMBEDDED}char": (True, False),
}


def draw_some(count: int, seed: int, sampler: str, space: dict = SPACE) -> list[Point]:  # type: ignore[type-arg]
    known: list[Known] = []
    for number in range(count):
        point = draw(space, known, seed, sampler, True, lambda point: point not in [one.point for one in known])
        if point is None:
            break
        figure = worth(point)
        known.append(
            Known(point, {0: figure - 10} | ({1: figure} if number % 2 else {}), bool(number % 2), number == 3)
        )
    return [one.point for one in known]


def worth(point: Point) -> float:
    rate = point.get("learning_rate", 0.2)
    return 50.0 - 10 * abs(math.log(rate / 0.2)) + 5 * (point.get("rnn") == "gru") + 5 * point.get(f"{EMBEDDED}char", 0)


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_points_are_different_and_within_their_values(sampler: str) -> None:
    points = draw_some(30, 1, sampler)
    assert len({str(point) for point in points}) == 30
    for point in points:
        assert point.keys() == SPACE.keys() and is_whole(point) and to_changes(point)["embeddings"]
        assert point["rnn"] in SPACE["rnn"] and 0.02 <= point["learning_rate"] <= 0.5
        assert 0.0 <= point["word_dropout"] <= 0.1


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_draw_depends_on_what_is_known_and_the_seed_alone(sampler: str) -> None:
    assert draw_some(12, 1, sampler) == draw_some(12, 1, sampler) != draw_some(12, 2, sampler)


def test_the_estimator_finds_better_points_than_chance() -> None:
    means = {
        sampler: sum(sum(map(worth, draw_some(40, seed, sampler)[20:])) / 20 for seed in range(5)) / 5
        for sampler in ("random", "tpe")
    }
    assert means["tpe"] > means["random"] + 1


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_all_points_of_a_small_space_are_drawn_once(sampler: str) -> None:
    space = {"crf": (True, False), "batch_size": (4, 8, 16), "rnn": ["lstm", "gru"]}
    points = draw_some(50, 1, sampler, space)
    assert len(points) == len({str(point) for point in points}) == count_points(space) == 12


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_all_subsets_of_embeddings_are_drawn_but_the_empty_one(sampler: str) -> None:
    space = {f"{EMBEDDED}{name}": (True, False) for name in ("english", "char", "one-hot")} | {"hidden_size": (64, 128)}
    outside = Known({**dict.fromkeys(space, True), "hidden_size": 100}, {0: 50.0}, True)  # as a baseline may be
    known = [outside]
    while (
        point := draw(space, known, 1, sampler, True, lambda point: point not in [k.point for k in known])
    ) is not None:
        known.append(Known(point, {0: 50.0}, True))
    assert len(known) == 1 + count_points(space) == 1 + 7 * 2


def test_on_text_two_of_three_cells_are_of_low_predicted_cost() -> None:
    prior, sizes = load_prior(), [8, 4]
    drawn, by_cost = ([*itertools.islice(draw_cells(sizes, by_cost=known), 60)] for known in (False, True))
    assert [len(cell.nodes) for cell in by_cost] == [len(cell.nodes) for cell in drawn] == [8, 4] * 30
    assert (
        all(by_cost[place::6] == drawn[place::6] for place in (4, 5))
        and len({cell.one_line() for cell in by_cost}) == 60
    )
    chosen, other = (
        prior.predict(encode([cells[place] for place in range(60) if place % 6 < 4])) for cells in (by_cost, drawn)
    )
    assert chosen.mean() < other.mean() - other.std() and (chosen < sorted(other)[20]).mean() > 0.8


@hypothesis_settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_any_seed_draws_within_the_values(seed: int, count: int) -> None:
    for point in draw_some(count, seed, "random"):
        assert is_whole(point) and 0.02 <= point["learning_rate"] <= 0.5
