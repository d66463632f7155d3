"""Segments: one rule for language models and searches, each with random numbers of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flair_nas.language_model.text.segments import Draw, segment_lengths
from flair_nas.language_model.training import _DRAW as BY_TORCH


def by_numpy(*seed: int) -> Draw:
    generator = np.random.default_rng(seed)
    return generator.random, generator.normal


@pytest.mark.parametrize("generator", ["torch", "numpy"])
def test_segments_cover_the_stream_and_vary_as_in_awd_lstm(generator: str) -> None:
    torch.manual_seed(0)
    draw = BY_TORCH if generator == "torch" else by_numpy(0)
    lengths = segment_lengths(200_000, 35, draw)
    assert sum(lengths) == 200_000
    assert min(lengths[:-1]) >= 5 and max(lengths) <= 55
    halved = np.mean([length < 24 for length in lengths])  # more than two deviations below 35
    assert halved == pytest.approx(0.05 * 0.9 + 0.02, abs=0.02)
    whole = [length for length in lengths if length > 25]
    assert np.mean(whole) == pytest.approx(34.9, abs=0.5) and np.std(whole) == pytest.approx(4.6, abs=0.5)
    assert segment_lengths(100, 35) == [35, 35, 30]
    short = segment_lengths(400, 2, draw)[:-1]
    assert set(short) <= set(range(2, 23)) and 2 in short  # shorter than 5 where bptt is


def test_what_is_drawn_is_what_was_drawn_before_the_rule_was_shared() -> None:
    torch.manual_seed(3)
    assert segment_lengths(300, 35, BY_TORCH) == [36, 32, 37, 34, 36, 42, 42, 34, 7]
    assert segment_lengths(300, 35, by_numpy(3, 1)) == [32, 38, 33, 33, 34, 33, 32, 32, 28, 5]
    assert segment_lengths(60, 12, by_numpy(1, 2)) == [16, 11, 8, 16, 5, 4]
