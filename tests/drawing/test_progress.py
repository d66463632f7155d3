"""The picture of how searches went: what it shows is what the histories say."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from flair_nas.drawing.progress import deviation_curves, draw_progress
from flair_nas.language_model.perplexity import PERPLEXITY

pytestmark = pytest.mark.slow


def history(*perplexities: float | None, parts: tuple[str, ...] = ("intra",)) -> list[dict[str, Any]]:
    return [
        {
            "epoch": epoch,
            "steps": 10,
            "valid_perplexity": perplexity,
            "mad": {part: 0.1 * epoch for part in parts},
            "mad_curve": [{"step": step, **{part: 0.1 * epoch for part in parts}} for step in (5, 10)],
        }
        for epoch, perplexity in enumerate(perplexities, start=1)
    ]


def test_the_curves_are_those_of_the_history_in_epochs() -> None:
    assert deviation_curves(history(300.0, 200.0)) == {"intra": ([0.5, 1.0, 1.5, 2.0], [0.1, 0.1, 0.2, 0.2])}
    assert deviation_curves([{"epoch": 1, "valid_perplexity": 3.0, "steps": 4}]) == {}


def test_the_picture_is_whole_names_its_searches_and_is_the_same_each_time(tmp_path: Path) -> None:
    searches = {"one": history(300.0, None, 200.0), "two": history(400.0, 250.0, parts=("intra", "inter")), "three": []}
    for name in ("a.svg", "b.svg"):
        draw_progress(searches, tmp_path / name, PERPLEXITY)
    picture = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert picture == (tmp_path / "b.svg").read_text(encoding="utf-8")
    words = " ".join("".join(ElementTree.fromstring(picture).itertext()).split())
    for shown in ("one", "two, inter", "valid perplexity of the supernet", "MAD of the mixing weights"):
        assert shown in words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svg", "b.svg"]


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_other_formats(tmp_path: Path, suffix: str) -> None:
    draw_progress({"one": history(300.0, 200.0)}, tmp_path / f"a.{suffix}", PERPLEXITY)
    begins = {"png": b"\x89PNG", "pdf": b"%PDF"}[suffix]
    assert (tmp_path / f"a.{suffix}").read_bytes().startswith(begins)
