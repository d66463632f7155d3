"""Durations in words: time spent and its limit can be compared."""

from __future__ import annotations

import pytest

from flair_nas.runs.duration import duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"), (119.4, "119 s"), (119.6, "2 min"), (180, "3 min"), (187, "3 min 7 s"), (599.6, "10 min"),
        (725, "12 min"), (7199, "2 h"), (7260, "2 h 1 min"), (36000, "10 h"),
    ],
)  # fmt: skip
def test_a_duration_is_in_its_largest_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words
