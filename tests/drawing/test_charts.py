"""Charts of searches and tunings: they show what the figures say."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from flair_nas.drawing.charts import draw_progress
from flair_nas.drawing.curves import COLOURS, Curve, list_deviations
from flair_nas.drawing.figures import Point, find_front
from flair_nas.runs.metric import PERPLEXITY


def test_the_front_has_the_layers_that_no_other_beats_in_time_and_metric() -> None:
    points = [Point(1.0, 30.0, "fast"), Point(3.0, 31.0, "LSTM"), Point(2.0, 34.0, "best"), Point(2.5, 33.0, "slow")]
    assert [point.text for point in find_front(points, True)] == ["fast", "best"]
    perplexities = [point._replace(figure=-point.figure) for point in points]
    assert [point.text for point in find_front(perplexities, False)] == ["fast", "best"]
    level = [Point(1.0, 2.0, "b"), Point(1.0, 3.0, "a"), Point(2.0, 3.0, "c")]
    assert [point.text for point in find_front(level, True)] == ["a"]


def history(*perplexities: float | None, parts: tuple[str, ...] = ("intra",)) -> list[dict[str, Any]]:
    return [
        {
            "epoch": epoch,
            "steps": 10,
            "dev_perplexity": perplexity,
            "mad": {part: 0.1 * epoch for part in parts},
            "mad_curve": [{"step": step, **{part: 0.1 * epoch for part in parts}} for step in (5, 10)],
        }
        for epoch, perplexity in enumerate(perplexities, start=1)
    ]


def test_the_curves_are_those_of_the_history_in_epochs() -> None:
    expected = Curve("cell", [0.5, 1.0, 1.5, 2.0], [0.1, 0.1, 0.2, 0.2], COLOURS[0])
    assert list_deviations(history(300.0, 200.0)) == [expected]
    assert list_deviations([{"epoch": 1, "dev_perplexity": 3.0, "steps": 4}]) == []


@pytest.mark.slow
def test_the_picture_of_a_search_names_its_parts(tmp_path: Path) -> None:
    draw_progress(history(400.0, None, 250.0, parts=("intra", "inter")), tmp_path / "a.svg", PERPLEXITY)
    words = " ".join("".join(ElementTree.parse(tmp_path / "a.svg").getroot().itertext()).split())
    for shown in ("cell", "gates", "perplexity on dev", "MAD of the mixing weights"):
        assert shown in words
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]
