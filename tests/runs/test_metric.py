"""Metrics: which of two evaluations is better, and how figures and losses are shown."""

from __future__ import annotations

import math

import pytest

from flair_nas.runs.metric import PERPLEXITY, Evaluation, Metric

F1 = Metric("f1", "F1", higher_is_better=True, form=".2f")
ERROR = Metric("error_rate", "error rate")


def test_the_loss_decides_where_the_metric_is_formed_of_it_else_the_figure() -> None:
    low, high = Evaluation(1.0, 30.0), Evaluation(2.0, 60.0)
    assert (PERPLEXITY.cost(low), PERPLEXITY.cost(high)) == (1.0, 2.0)
    assert (ERROR.cost(low), ERROR.cost(high)) == (30.0, 60.0)
    assert F1.cost(high) < F1.cost(low)


def test_the_best_is_named_as_what_decides() -> None:
    assert PERPLEXITY.best(1.5) == {"best_loss": 1.5}
    assert F1.best(F1.cost(Evaluation(1.0, 60.0))) == {"best_f1": 60.0}
    assert ERROR.best(7.0) == {"best_error_rate": 7.0}
    for metric in (PERPLEXITY, F1, ERROR):
        assert list(metric.best(math.inf).values()) == [None]


@pytest.mark.parametrize(
    ("metric", "key", "loss", "value", "none"),
    [
        (PERPLEXITY, "dev_perplexity", "perplexity 12.2", "perplexity 60.0", "perplexity inf"),
        (F1, "dev_f1", "loss 2.500", "F1 60.00", "F1 nan"),
        (ERROR, "dev_error_rate", "loss 2.500", "error rate 60.0", "error rate nan"),
    ],
)
def test_what_is_shown(metric: Metric, key: str, loss: str, value: str, none: str) -> None:
    assert metric.key == key
    assert (metric.format_loss(2.5), metric.shown(60.0), metric.shown(None)) == (loss, value, none)
