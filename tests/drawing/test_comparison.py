"""The picture of a table: what is drawn is what was measured."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from flair_nas.drawing.comparison import draw_comparison

PANELS = {
    "tags, test F1": {"LSTM": [28.2, 29.9, 30.1], "cell": [32.0, 33.0], "one seed": [31.0], "not run": []},
    "text, valid perplexity": {"LSTM": [58.0]},
}


def words_in(path: Path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    return [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]


def test_layers_are_named_with_how_many_seeds_they_have(tmp_path: Path) -> None:
    draw_comparison(PANELS, tmp_path / "table.svg")
    words = words_in(tmp_path / "table.svg")
    assert [word for word in words if "(" in word] == ["LSTM (3)", "cell (2)", "one seed (1)", "LSTM (1)"]
    assert set(PANELS) <= set(words)


def test_each_seed_and_each_mean_is_a_mark(tmp_path: Path) -> None:
    draw_comparison({"tags": PANELS["tags, test F1"]}, tmp_path / "table.svg")
    text = (tmp_path / "table.svg").read_text()
    marks = re.findall(r'<use [^>]*style="fill: (#\w+)', text)
    assert marks.count("#777777") == 6 and marks.count("#0072b2") >= 3


def test_the_same_figures_give_the_same_file(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        draw_comparison(PANELS, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_table_of_which_nothing_is_run_is_an_empty_picture(tmp_path: Path) -> None:
    draw_comparison({"tags": {"LSTM": []}}, tmp_path / "table.svg")
    assert words_in(tmp_path / "table.svg") == []
