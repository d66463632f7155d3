"""Evolution and local search: neighbours, the loop against the authors' notebooks, children, stages and budgets."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_search import JOINT, KINDS, NO_DROPOUT, patched, run_whole, small, strategy_of, write_text

from flair_nas.errors import FlairNasError, NotFiniteError
from flair_nas.genotype import Genotype, neighbours, random_genotype
from flair_nas.search.strategies.evolution import EvolutionSettings, Member, Population

SEQUENCES = json.loads((Path(__file__).parent / "evolution_sequences.json").read_text(encoding="utf-8"))
"""What the notebooks in google-research/evolution do with seed 0, and tables of accuracies in place of training."""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text", train_lines=60, valid_lines=12)


def search_on(text: Path, **settings: Any) -> Any:
    config = small(text, **{"child_steps": [2], **NO_DROPOUT, **settings})
    return strategy_of(config)


# --- neighbours ---


def places(genotype: Genotype) -> list[object]:
    """The parts of a genotype of which one changes: nodes of the cell, entries and links of the gates."""
    found: list[object] = [frozenset(edges) for edges in genotype.nodes]
    for gate in (genotype.state_gate, genotype.input_gate):
        for node in gate.nodes if gate else ():
            found += [node.entry, frozenset(node.edges)]
    return found


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 3), st.integers(0, 4), st.booleans())
def test_neighbours_differ_in_one_place(seed: int, nodes: int, edges: int, history: int, links: bool) -> None:
    genotype = random_genotype(seed, nodes, edges, history, links)
    around = neighbours(genotype, links)
    for other in around:
        assert sum(a != b for a, b in zip(places(genotype), places(other), strict=True)) == 1
        assert other.options == genotype.options and len(other.nodes) == nodes
        for own, changed in zip(genotype.nodes, other.nodes):
            assert own == changed or len({*own} ^ {*changed}) == 2  # one edge of it
        assert Genotype.parse(other.one_line()).nodes == other.nodes  # it is a genotype of the space
    assert len({other.one_line() for other in around}) == len(around)
    back = neighbours(around[seed % len(around)], links)
    assert genotype.one_line() in {other.one_line() for other in back}


@pytest.mark.parametrize(("nodes", "count"), [(1, 3), (3, 12), (8, 52)])
def test_a_cell_with_one_edge_a_node_has_so_many_neighbours(nodes: int, count: int) -> None:
    assert len(neighbours(random_genotype(1, nodes))) == count


# --- the loop ---


def population_of(size: int, tournament: int, stages: int, hurdle_every: int) -> Population:
    """A population that removes the worst, with hurdles."""
    settings = EvolutionSettings(
        population=size, tournament=tournament, removal="worst", child_steps=[1] * stages, hurdle_every=hurdle_every
    )
    return Population(settings)


def test_regularized_evolution_goes_the_way_of_the_authors_notebook() -> None:
    draw, population = random.Random(0), Population(EvolutionSettings(population=20, tournament=5))
    found = []
    for number in range(20 + len(SEQUENCES["regularized"])):
        parent = population.choose_parent(draw) if population.full else None
        removed = population.add(Member(number, -SEQUENCES["final"][number]), draw)
        if parent and removed:
            found.append([parent.number, removed.number])
    assert found == SEQUENCES["regularized"]


def test_hurdles_go_the_way_of_the_authors_notebook() -> None:
    """Its hurdle comes after 22 children; the mean is the only number that is computed."""
    draw, population = random.Random(0), population_of(20, 5, stages=2, hurdle_every=22)
    found = []
    for number in range(20 + len(SEQUENCES["hurdles"])):
        parent = population.choose_parent(draw) if population.full else None
        cost, stage = -SEQUENCES["early"][number], 1
        if population.clears(cost, stage):
            cost, stage = -SEQUENCES["final"][number], 2
        removed = population.add(Member(number, cost, stage), draw)
        if parent and removed:
            found.append([parent.number, removed.number, stage])
    assert found == SEQUENCES["hurdles"]
    assert population.hurdles == pytest.approx([-SEQUENCES["hurdle"]], abs=1e-15)


def test_later_hurdles_are_of_those_that_were_trained_most() -> None:
    population, draw = population_of(4, 2, stages=3, hurdle_every=4), random.Random(1)
    for number, cost in enumerate((5.0, 4.0, math.inf, 3.0)):
        population.add(Member(number, cost), draw)
    assert population.hurdles == [4.0]  # the failed one does not count
    assert population.clears(3.9, 1) and not population.clears(4.0, 1) and not population.clears(3.0, 2)
    for number, cost, stage in ((4, 2.0, 2), (5, 3.5, 1), (6, 1.0, 2), (7, 3.9, 1)):
        population.add(Member(number, cost, stage), draw)
    alive = [member.cost for member in population.members if member.stage == 2]
    assert population.hurdles == [4.0, sum(alive) / len(alive)]


# --- the strategies ---


def test_children_are_neighbours_and_begin_alike(text: Path) -> None:
    strategy = search_on(text, strategy="evolution", population=3, tournament=3, nodes=3)
    run_whole(strategy)
    first = [child.one_line() for child in strategy.children[:3]]
    assert len(strategy.scores) > 4 and len(set(first)) == 3
    alive = {0: first[0], 1: first[1], 2: first[2]}
    scores = {0: 0.0}
    for number in range(3, len(strategy.scores)):
        parent = {other.one_line() for other in neighbours(strategy.children[number])} & {*alive.values()}
        assert parent, number
        alive.pop(min(alive))
        alive[number] = strategy.children[number].one_line()
    for number, child in enumerate(strategy.children[:4]):  # alone, each has the same score
        alone = search_on(text, strategy="evolution", population=3, tournament=3, nodes=3)
        alone.begin(child)
        for step in range(2):
            alone.train(0, step)
        scores[number] = alone.score(0)
        assert scores[number] == strategy.scores[number], number
    best = min(strategy.scores, key=lambda number: strategy.scores[number])
    assert strategy.genotype() == strategy.children[best]


def test_a_child_trains_on_while_it_clears_the_hurdles(text: Path) -> None:
    strategy = search_on(text, **{**KINDS["hurdles with gates"], "epochs": 4})
    trained: dict[int, int] = {}
    train = strategy.train

    def training(number: int, before: int) -> Any:
        assert before == trained.get(number, 0)
        trained[number] = before + 1
        return train(number, before)

    with patched(strategy, "train", training):
        run_whole(strategy)
    hurdle = strategy.population.hurdles[0]
    assert {trained[number] for number in list(trained)[:-1]} == {1, 3}
    for member in strategy.population.members:
        assert trained[member.number] == (1, 3)[member.stage - 1]
        assert member.stage == 2 or member.cost >= hurdle or member.number < 2
    assert strategy.end_epoch()["hurdles"] == [hurdle]


def test_local_search_tries_the_neighbours_of_the_best(text: Path) -> None:
    strategy = search_on(
        text, **{**KINDS["local-search"], "candidates": ["relu0-tanh1-tanh2"], "nodes": 3, "epochs": 8}
    )
    run_whole(strategy)
    lines = [child.one_line() for child in strategy.children]
    assert lines[0] == "relu0-tanh1-tanh2" and len(set(lines)) == len(lines)
    center = 0
    around = {child.one_line() for child in neighbours(strategy.children[0])}
    tried: set[str] = set()
    for number in range(1, len(strategy.scores)):
        if around - tried - {*lines[:number]}:
            assert lines[number] in around
        tried.add(lines[number])
        if strategy.scores[number] < strategy.scores[center] or lines[number] not in around:
            center, tried = number, set()
            around = {child.one_line() for child in neighbours(strategy.children[center])}


@pytest.mark.parametrize("kind", ["local-search", "hurdles with gates", "halving", "random-independent"])
def test_the_rate_falls_within_each_training(kind: str, text: Path) -> None:
    settings = {**KINDS[kind], **NO_DROPOUT, "schedule": "cosine", "vary_length": False, "epochs": 4}
    strategy = strategy_of(small(text, **settings))
    rates: dict[int, list[float]] = {}
    train = strategy.train

    def training(number: int, before: int) -> Any:
        figures = train(number, before)
        rates.setdefault(number, []).append(strategy.model_optimizer.optimizer.param_groups[0]["lr"])
        return figures

    with patched(strategy, "train", training):
        run_whole(strategy)
    planned = strategy.planned_steps
    longest = max(rates.values(), key=len)
    assert planned - 1 <= len(longest) <= planned + 1
    for found in rates.values():
        expected = [2.0 * (1 + math.cos(math.pi * min(step / planned, 1))) / 2 for step in range(len(found))]
        assert found == pytest.approx(expected)


def test_named_cells_come_first(text: Path) -> None:
    names = ["tanh0-tanh1", "relu0-relu0"]
    strategy = search_on(text, strategy="evolution", population=3, tournament=2, candidates=names)
    run_whole(strategy)
    assert [child.one_line() for child in strategy.children[:2]] == names


def test_a_child_that_fails_makes_room_for_the_next(text: Path) -> None:
    strategy = search_on(text, strategy="evolution", population=2, tournament=2)
    real = strategy.model_optimizer.step

    def failing(*arguments: Any) -> float:
        if len(strategy.children) == 2:
            raise NotFiniteError("the loss is nan")
        return real(*arguments)

    with patched(strategy.model_optimizer, "step", failing):
        run_whole(strategy)
    assert strategy.scores[1] == math.inf and len(strategy.scores) > 3
    assert strategy.genotype() != strategy.children[1]


def test_a_search_of_which_all_children_fail_says_so(text: Path) -> None:
    strategy = search_on(text, strategy="local-search")

    def failing(*arguments: Any) -> float:
        raise NotFiniteError("the loss is nan")

    with (
        patched(strategy.model_optimizer, "step", failing),
        pytest.raises(NotFiniteError, match="none of .* smaller learning_rate"),
    ):
        run_whole(strategy)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"child_steps": [], "strategy": "evolution"}, "child_steps, the training steps of a child, must be set"),
        ({"child_steps": [0], "strategy": "evolution"}, "child_steps"),
        ({"child_steps": [2], "strategy": "gradient"}, "child_steps belongs to strategy evolution or local-search"),
        ({"strategy": "evolution", "population": 4, "tournament": 5}, "tournament 5 is larger than population 4"),
        ({"strategy": "evolution", "removal": "worst", "tournament": 1}, "removal worst needs a tournament"),
        ({"strategy": "evolution", "child_steps": [1, 2]}, "several child_steps need hurdle_every"),
        ({"strategy": "evolution", "hurdle_every": 3}, "hurdle_every needs at least two child_steps"),
        (
            {"strategy": "evolution", "samples": 4},
            "samples belongs to strategy random-shared or random-independent or enas",
        ),
        ({"strategy": "evolution", "candidates": ["relu0"]}, "not of this space"),
        ({"strategy": "local-search", "population": 4}, "population belongs to strategy evolution"),
        ({"strategy": "local-search", "child_steps": [1, 2]}, "child_steps must be one number"),
        ({"strategy": "local-search", "learn": "inter", **JOINT}, "learn must be intra or joint"),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, Any], words: str, text: Path) -> None:
    settings = {"child_steps": [2], **settings}
    if "learn" in settings:
        settings |= {"learn": "inter", "fixed": "relu0-tanh1"}
    with pytest.raises(FlairNasError, match=words):
        small(text, **settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"strategy": "evolution"}, "allow .* children of 2 steps, and population 100 takes all of them"),
        ({"strategy": "local-search", "child_steps": [5000]}, "steps, and a child takes 5000"),
    ],
)
def test_budgets_that_are_too_small(settings: dict[str, Any], words: str, text: Path) -> None:
    with pytest.raises(FlairNasError, match=words):
        search_on(text, **settings)
