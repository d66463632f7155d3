"""Probabilities and intervals: exact values, and how often they come where no layer is better."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from flair_nas.experiments.counts import Counts, f1, perplexity
from flair_nas.experiments.statistics import combine_errors, compare, mean_errors

SURE = 0.95


def alike(figures: list[float]) -> list[Counts]:
    """Return seeds with these figures, whose sentences are all equal."""
    return [np.array([[figure, 100, 100]] * 20) for figure in figures]


@pytest.mark.parametrize("others", [[42.0, 38.5, 41.0], [39.0, 39.5, 39.1], [30.0, 45.5, 38.0]])
def test_over_seeds_alone_it_is_the_test_of_welch(others: list[float]) -> None:
    seeds = [43.0, 44.5, 41.0]
    found, welch = compare(alike(seeds), alike(others), f1), stats.ttest_ind(seeds, others, equal_var=False)
    assert found.value == pytest.approx(np.mean(seeds) - np.mean(others)) and found.freedom == pytest.approx(welch.df)
    assert found.probability == pytest.approx(stats.t.cdf(welch.statistic, welch.df))
    assert found.interval() == pytest.approx(tuple(welch.confidence_interval()))
    worse = compare(alike(seeds), alike(others), f1, better=-1)
    assert worse.probability == pytest.approx(1 - found.probability)


@pytest.mark.parametrize("others", [[39.0, 39.5], [40.0, 40.2], [30.0, 42.0, 45.5, 44.0, 38.0]])
def test_at_unlike_numbers_of_seeds_it_is_never_surer_than_either_test(others: list[float]) -> None:
    seeds = [43.0, 44.5, 41.0]
    found = compare(alike(seeds), alike(others), f1)
    for equal in (True, False):
        student = stats.ttest_ind(seeds, others, equal_var=equal)
        assert student.pvalue / 2 < 1 - found.probability < 0.5, equal


@pytest.mark.parametrize("spread", [1.0, 2.0])
def test_unlike_numbers_of_seeds_make_equal_layers_sure_in_one_of_twenty(spread: float) -> None:
    """Draw normal seeds of two layers that do not differ; those of the fewer vary as much, or twice as much."""
    draw, trials, shares = np.random.default_rng(0), 2000, dict[tuple[int, int], float]()
    for few, many in ((2, 3), (2, 5), (2, 10), (3, 6), (3, 10), (5, 10)):
        one, other = draw.normal(50, spread, (trials, few)), draw.normal(50, 1, (trials, many))
        values, spreads = one.mean(1) - other.mean(1), zip(one.var(1, ddof=1), other.var(1, ddof=1))
        errors = (mean_errors([(float(a), few), (float(b), many)]) for a, b in spreads)
        found = np.array([combine_errors(value, parts).probability for value, parts in zip(values, errors)])
        shares[few, many] = float(np.mean([found >= SURE, found <= 1 - SURE]))
    assert max(shares.values()) <= 0.055 and np.mean(list(shares.values())) < 0.045, shares


def test_over_sentences_alone_it_is_the_paired_test_of_student() -> None:
    draw = np.random.default_rng(0)
    one, other = (np.stack([draw.random(50) < 0.7, np.ones(50), np.ones(50)], 1).astype(float) for _ in "ab")
    found, student = compare([one], [other], f1), stats.ttest_rel(100 * one[:, 0], 100 * other[:, 0])
    assert found.freedom == pytest.approx(49)
    assert found.interval() == pytest.approx(tuple(student.confidence_interval()))
    assert found.probability == pytest.approx(stats.t.cdf(student.statistic, 49))
    mean = compare([one], [], f1)
    assert mean.error == pytest.approx(stats.sem(100 * one[:, 0]))


def test_the_error_of_a_perplexity_is_that_of_a_ratio() -> None:
    draw = np.random.default_rng(0)
    tokens = draw.integers(1, 40, 3000)
    counts = np.stack([draw.gamma(tokens, 4.0), tokens], 1).astype(np.float32)
    rate = counts[:, 0].sum() / tokens.sum()
    of_ratio = np.exp(rate) * np.sqrt(((counts[:, 0] - rate * tokens) ** 2).sum()) / tokens.sum()
    assert compare([counts], [], perplexity).error == pytest.approx(of_ratio, rel=0.01)


def test_errors_of_seeds_on_sentences_count_once() -> None:
    """Compare seeds that differ by nothing but the sentences on which they err."""
    draw = np.random.default_rng(0)
    errors, once = [], []
    for _ in range(300):
        seeds, others = ([np.stack([of, np.ones(200), np.ones(200)], 1) for of in draw.random((4, 200))] for _ in "ab")
        found = compare(seeds, others, f1)
        errors.append(found.error**2)
        once.append(2 / 4 * 100**2 / 12 / 200)  # of a uniform draw on each of 200 sentences, by four seeds each
    assert 0.95 * np.mean(once) < np.mean(errors) < 1.25 * np.mean(once)  # twice would be 2


def test_what_is_level_and_what_is_sure() -> None:
    assert compare(alike([40, 40, 40]), alike([40, 40, 40]), f1).probability == 0.5
    assert compare(alike([41, 41]), alike([40, 40]), f1).probability == 1
    assert compare(alike([40, 40]), alike([41, 41]), f1).probability == 0
    assert compare(alike([40]), [], f1).interval() == pytest.approx((40, 40))
    nothing = [np.array([[0, 0, 7]] * 5)] * 3
    assert compare(nothing, nothing, f1)[:2] == (0, 0) and compare(nothing, nothing, f1).probability == 0.5
    line = [np.array([[8.0, 4]]), np.array([[9.0, 4]])]  # a text that is one sentence tells nothing of sentences
    found = compare(line, [], perplexity)
    assert found.freedom == 1 and found.error == pytest.approx((math.exp(9 / 4) - math.exp(2)) / 2)


def test_parts_of_an_error_add_up() -> None:
    found = combine_errors(3.0, [(1.0, 2), (3.0, 4), (0.0, 0)])
    assert found.error == 2 and found.freedom == pytest.approx(16 / (1 / 2 + 9 / 4))


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("deviation", [0.01, 0.1], ids=["sentences differ more", "seeds differ more"])
def test_of_layers_that_are_level_one_in_twenty_seems_better(count: int, deviation: float) -> None:
    """Simulate sentences of shared difficulty, layers that are better on some, and seeds that differ in skill."""
    draw, trials, sentences, probabilities = np.random.default_rng(0), 400, 60, list[float]()
    for _ in range(trials):
        difficulty = draw.normal(0, 0.5, sentences)
        both = []
        for _ in "ab":
            layer = 0.5 + difficulty + draw.normal(0, 0.3, sentences) + draw.normal(0, deviation, (count, 1))
            skill = layer + draw.normal(0, 0.3, (count, sentences))
            both.append([np.stack([of, np.ones(sentences), np.ones(sentences)], 1) for of in skill])
        probability = compare(*both, f1).probability
        probabilities += [probability, 1 - probability]
    sure, certain = (float(np.mean(np.array(probabilities) >= limit)) for limit in (SURE, 0.995))
    assert 0.025 < sure < 0.075, sure
    assert certain < 0.02, certain
