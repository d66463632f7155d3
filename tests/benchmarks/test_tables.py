"""Tables of layers: they are run, nothing is run twice, and they are shown with their uncertainty."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from killing import write_text
from pool_jobs import run_jobs_here
from small_tagging import write_corpus

from benchmarks.json_lines import append, lines_in
from benchmarks.tables import kept as keeping
from benchmarks.tables import running
from benchmarks.tables.running import count_unseen, run_table
from benchmarks.tables.showing import draw_comparison, make_grid, to_markdown
from benchmarks.tables.spec import load_table, search_settings, table_names
from flair_nas import random_genotype
from flair_nas.errors import FlairNasError
from flair_nas.experiments.counts import pack_counts, unpack_counts
from flair_nas.experiments.ledger import Ledger

TABLE = """title: A trial
seeds: [1, 2]
columns:
  tags & more:
    tagging: {corpus: CORPUS, embeddings: [one-hot], hidden_size: 8, batch_size: 8, epochs: 1, learning_rate: 1.0}
  text:
    text: {hidden_size: 8, epochs: 1, batch_size: 4, bptt: 8, dropout: 0.1, input_dropout: 0.1}
rows:
  LSTM: {rnn: lstm, published: {tags & more: 50}}
  as large: {rnn: lstm, size_of: cell}
  cell: {rnn: "tanh0-tanh1-tanh2-tanh3"}
  drawn: {rnn: "random:3", settings: {learning_rate: 0.5}}
  found: {search: {nodes: 2, hidden_size: 6, batch_size: 4, epochs: 1}}
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return run_jobs_here(monkeypatch, tmp_path)


def write_table(folder: Path, text: str = TABLE) -> str:
    if not (folder / "corpus").exists():
        write_corpus(folder / "corpus")
    (folder / "table.yaml").write_text(text.replace("CORPUS", str(folder / "corpus")))
    return str(folder / "table.yaml")


def rows_of(table: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]


@pytest.mark.slow
def test_a_table_is_run_and_shown_and_nothing_is_run_twice(tmp_path: Path, jobs: list[str]) -> None:
    text, out = str(write_text(tmp_path / "text", train_lines=26, valid_lines=8)), tmp_path / "out"
    table = load_table(write_table(tmp_path))
    ledger = run_table(table, out, text=text, device="cpu")
    assert len(jobs) == len(set(jobs)) == 2 + 2 + 2 * 5 * 2
    assert [job.split("-")[0] for job in jobs[:4]] == ["search", "search", "size", "size"]
    assert [job[-5:] for job in jobs[4:]] == ["seed1"] * 10 + ["seed2"] * 10  # all with one seed come first
    shown = (out / "table.md").read_text()
    assert "by Student's t over seeds and sentences. If none of 8 were better, 0.4 would have 0.95 or more" in shown
    head, _, *rows = rows_of(shown)
    assert head[:5] == ["layer", "tags & more, test F1", "seeds", "P(better)", "published"]
    assert "text, valid perplexity" in head and [row[0] for row in rows] == [row.name for row in table.rows]
    runs = [ledger.runs[name] for name in ledger.plan["cells"]["cell / tags & more"]]
    scores = [run["test"] for run in runs]
    assert rows[2][1] == f"{np.mean(scores):.2f} ± {np.std(scores, ddof=1):.2f}" and rows[0][4] == "50.00"
    assert rows[0][3] == "-" and all(0 <= float(row[3]) <= 1 for row in rows[1:])
    weights = {row[0]: int(row[head.index("weights")].replace(",", "")) for row in rows}
    assert weights["as large"] == pytest.approx(weights["cell"], rel=0.1) and weights["LSTM"] > 1.3 * weights["cell"]

    jobs.clear()
    changed = load_table(write_table(tmp_path, TABLE.replace("learning_rate: 0.5", "learning_rate: 0.25")))
    run_table(changed, out, text=text, device="cpu", rows=["drawn"])
    assert len(jobs) == 4 and all("drawn" in job for job in jobs)
    jobs.clear()
    run_table(changed, out, text=text, device="cpu", seeds=[1])
    assert jobs == [] and Ledger(out / "ledger.json").runs.keys() >= ledger.runs.keys()


@pytest.mark.slow
def test_what_fails_is_shown_and_the_rest_goes_on(
    tmp_path: Path, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise FlairNasError("not finite in\nepoch 1")

    monkeypatch.setattr(running, "search_genotype", fail)
    one = TABLE[: TABLE.index("  text:")] + TABLE[TABLE.index("rows:") :]
    one += (
        "  gates: {rnn: tanh0/input=sigmoid-tanh, size_of: narrow}\n  narrow: {rnn: lstm, settings: {hidden_size: 2}}"
    )
    run_table(load_table(write_table(tmp_path, one)), tmp_path / "out", seeds=[1], device="cpu")
    shown = (tmp_path / "out" / "table.md").read_text()
    assert "found on tags & more failed: not finite in epoch 1" in shown and "One seed each: " in shown
    assert re.search(r"gates on tags & more failed: tanh0/\S+ has more weights than lstm with any hidden size", shown)
    assert re.search(r"\| LSTM \| \d+\.\d\d \| 1 \|", shown) and re.search(r"\| found \| - \| - \|", shown)


@pytest.mark.parametrize("name", table_names())
def test_a_table_can_be_used(name: str) -> None:
    table = load_table(name)
    assert table.rows and len(table.seeds) >= 2
    for row in table.rows:
        if row.search is not None:
            assert all(search_settings(row, column) for column in table.columns)


def test_a_drawn_row_is_that_random_cell(tmp_path: Path) -> None:
    assert load_table(write_table(tmp_path)).rows[3].rnn == random_genotype(3).one_line()


def test_layers_that_learnt_nothing_are_not_compared(tmp_path: Path) -> None:
    one = TABLE[: TABLE.index("  text:")] + "rows:\n  LSTM: {rnn: lstm}\n  a<b>|c: {rnn: tanh0}\n"
    table, ledger = load_table(write_table(tmp_path, one)), Ledger(tmp_path / "ledger.json")
    nothing = {"test": 0.0, "counts": pack_counts(np.array([[0, 0, 2]] * 9)), "parameters": 1, "seconds": [1.0]}
    ledger.runs = {name: nothing | {"peak_memory_mb": 1.0} for name in "abcd"}
    ledger.plan = {"cells": {"LSTM / tags & more": ["a", "b"], "a<b>|c / tags & more": ["c", "d"]}}
    shown = to_markdown(table, make_grid(table, ledger))
    assert "0.50" not in shown and "P(better)" not in shown.partition("Mean ±")[0]
    assert "Nothing was learnt on tags & more by LSTM, a\\<b\\>\\|c: train longer." in shown


def test_kept_runs_show_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, file, draw = write_table(tmp_path), tmp_path / "kept.jsonl", np.random.default_rng(0)
    monkeypatch.setattr(keeping, "file_of", lambda _: file)
    ledger = Ledger(tmp_path / "ledger.json")
    ledger.plan = {"cells": {}, "measured": {"as large / text": "size"}}
    ledger.runs["size"] = {"hidden_size": 7, "size_ratio": 0.98}
    for row in ("LSTM", "as large", "cell"):
        for column in ("tags & more", "text"):
            names = [f"{column}-{row}-seed{seed}" for seed in (1, 2, 3)]
            ledger.plan["cells"][f"{row} / {column}"] = names
            for run_name in names:
                words = draw.integers(1, 40, 3000)
                losses = words * draw.normal(5, 0.3, 3000)
                counts = np.stack([losses, words], 1).astype(np.float32)
                if column != "text":
                    counts = np.sort(draw.integers(0, 4, (3000, 3), dtype=np.int32), 1)
                figures = {"parameters": 5, "peak_memory_mb": 1.5, "seconds": [1.0, 2.25], "dev": [1.0]}
                ledger.runs[run_name] = figures | {"test": 1.0, "counts": pack_counts(counts)}
    ledger.runs["text-cell-seed3"] = {"error": "not finite"}
    append({"judges": 3}, file)
    keeping.keep(name, ledger)
    keeping.keep(name, ledger)
    table, results = keeping.kept(name)
    assert make_grid(table, results) == make_grid(load_table(name), ledger)
    lines = lines_in(file)
    assert [line for line in lines if "row" not in line and "column" not in line][1:] == [{"judges": 3}]
    assert "dev" not in lines[2] and len(lines) == 1 + 2 + 1 + 3 * 2 * 3 + 1


def test_entities_that_training_did_not_have(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    for part in ("train", "dev"):
        (tmp_path / "corpus" / f"{part}.txt").write_text("Ada B-PER\nsleeps O\n\n" * 3)
    (tmp_path / "run" / "seed-1").mkdir(parents=True)
    (tmp_path / "run" / "seed-1" / "dev.txt").write_text(
        "Ada\tB-PER\tB-PER\nin\tO\tO\nOslo\tB-LOC\tB-LOC\n\nNew\tB-LOC\tB-LOC\nYork\tI-LOC\tO\n\nada\tB-PER\tO\n"
    )
    assert count_unseen({"corpus": str(tmp_path / "corpus")}, tmp_path / "run") == (1, 2)


def test_counts_in_a_ledger_are_those_that_were_put_in() -> None:
    counts = np.random.default_rng(0).integers(0, 50, (300, 3), dtype=np.int32)
    assert np.array_equal(unpack_counts(pack_counts(counts)), counts) and len(pack_counts(counts)) < 2000


def test_layers_are_named_in_a_picture_with_how_many_seeds_they_have(tmp_path: Path) -> None:
    panels = {
        "tags, test F1": {"LSTM": [28.2, 29.9, 30.1], "cell": [32.0, 33.0], "one seed": [31.0], "not run": []},
        "text, valid perplexity": {"LSTM": [58.0]},
    }
    for name in ("one.svg", "two.svg"):
        draw_comparison(panels, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    texts = ElementTree.parse(tmp_path / "one.svg").getroot().iter("{http://www.w3.org/2000/svg}text")
    words = [text.text or "" for text in texts]
    assert [word for word in words if "(" in word] == ["LSTM (3)", "cell (2)", "one seed (1)", "LSTM (1)"]
    assert {*panels} <= {*words}
