"""One record of an epoch: the names of its figures, and what is null."""

from __future__ import annotations

import json
import math

import pytest

from flair_nas.runs.epoch_record import EpochClock, describe_epoch, sum_seconds
from flair_nas.runs.metric import METRICS, PERPLEXITY

NAMES = ["epoch", "train_loss", "dev_loss", "dev_perplexity", "seconds", "cpu_seconds", "evaluation_seconds",
         "peak_memory_mb"]  # fmt: skip


def test_a_line_has_the_same_names_in_every_training() -> None:
    line = describe_epoch(3, 2.0, 1.0, PERPLEXITY, math.e, EpochClock(4.0, 8.0, 0.5))
    assert list(line) == NAMES and line["peak_memory_mb"] > 10
    assert list(line.values())[:-1] == [3, 2.0, 1.0, math.e, 4.0, 8.0, 0.5]


def test_figures_that_are_not_finite_are_null() -> None:
    further = {"learning_rate": 0.1, "genotype": "tanh0", "mad": {"intra": 0.1}}
    line = describe_epoch(1, None, math.nan, PERPLEXITY, math.inf, EpochClock(), **further)
    line = json.loads(json.dumps(line, allow_nan=False))
    assert line["train_loss"] is line["dev_loss"] is line["dev_perplexity"] is None
    assert (line["learning_rate"], line["genotype"], line["mad"]) == (0.1, "tanh0", {"intra": 0.1})


def test_a_clock_counts_training_and_evaluation_apart() -> None:
    clock = EpochClock()
    clock.add_training()
    trained = clock.seconds
    clock.add_evaluation()
    clock.add_training()
    assert 0 < trained <= clock.seconds and clock.evaluation_seconds > 0
    lines = [{"seconds": 1.0, "evaluation_seconds": 0.5}, {"seconds": 2.0, "evaluation_seconds": 0.0}]
    assert sum_seconds(lines) == pytest.approx(3.5)


def test_each_metric_has_a_key_of_its_own() -> None:
    assert sorted(METRICS) == ["dev_accuracy", "dev_bits", "dev_cost", "dev_f1", "dev_perplexity"]
