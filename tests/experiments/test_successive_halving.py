"""Successive halving: its rungs, and of the synchronous one of a benchmark, what it costs and whom it keeps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.taggers.select_rule import cost_of_rule, count_places, survivors
from flair_nas.experiments.tasks import Rule

RULES = st.builds(Rule, first=st.floats(0.01, 1), keep=st.floats(0.1, 0.9))


@pytest.mark.parametrize(
    ("rule", "epochs", "expected"),
    [
        (Rule(0.1, 0.25), 50, [5, 20, 50]),
        (Rule(0.1, 0.25), 3, [1, 3]),
        (Rule(0.1, 0.25), 1, [1]),
        (Rule(0.1, 0.5), 40, [4, 8, 16, 32, 40]),
        (Rule(1.0, 0.25), 9, [9]),
    ],
)
def test_rungs(rule: Rule, epochs: int, expected: list[int]) -> None:
    assert rule.rungs(epochs) == expected


def test_the_better_part_goes_on_from_each_rung() -> None:
    assert count_places(Rule(0.1, 0.25), 16, [5, 20, 50]) == [16, 4, 1]


def test_the_cost_is_what_all_candidates_train() -> None:
    # 16 train 5 epochs, 4 of them 15 more, and 1 of these 30 more
    assert cost_of_rule(Rule(0.1, 0.25), 16, 50) == 16 * 5 + 4 * 15 + 1 * 30


@given(RULES, st.integers(1, 60), st.integers(1, 40))
def test_any_rule_begins_with_all_and_ends_with_one_at_least(rule: Rule, epochs: int, candidates: int) -> None:
    rungs = rule.rungs(epochs)
    assert rungs == sorted(set(rungs)) and rungs[-1] == epochs and rungs[0] >= min(epochs, rule.first * epochs)
    counts = count_places(rule, candidates, rungs)
    assert counts[0] == candidates and counts == sorted(counts, reverse=True) and counts[-1] >= 1
    assert epochs <= cost_of_rule(rule, candidates, epochs) <= candidates * epochs


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=3), st.floats(), min_size=1), st.integers(1, 9))
def test_survivors_are_the_better_ones_in_their_order(costs: dict[str, float], count: int) -> None:
    kept = survivors(costs, count)
    assert len(kept) == min(count, len(costs)) and kept == [name for name in costs if name in kept]
    worth = {name: math.inf if math.isnan(cost) else cost for name, cost in costs.items()}
    dropped = [worth[name] for name in costs if name not in kept]
    assert max(worth[name] for name in kept) <= min(dropped, default=math.inf)
