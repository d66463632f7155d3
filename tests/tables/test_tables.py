"""Tables: what a file may say, runs that are never repeated, and how a table is shown."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import write_text
from select_jobs import run_jobs_here
from small_tagging import write_corpus

from flair_nas import Genotype, random_genotype
from flair_nas.cli import main
from flair_nas.errors import FlairNasError
from flair_nas.experiments import tagging_task, text_task, worker_setup
from flair_nas.experiments.counts import count_unseen, pack_counts, unpack_counts
from flair_nas.experiments.jobs import Job, Outcome
from flair_nas.experiments.local_pool import LocalPool
from flair_nas.library.layer_spec import parse_layer_spec
from flair_nas.select.config import SelectConfig
from flair_nas.select.selection import select_layer
from flair_nas.tables import running, sizing
from flair_nas.tables.config import TableConfig
from flair_nas.tables.running import run_table
from flair_nas.tables.showing import Grid, to_latex
from flair_nas.tables.spec import bundled_tables, load_table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_text(tmp_path_factory.mktemp("text") / "text", train_lines=26, valid_lines=8))


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return run_jobs_here(monkeypatch, tmp_path)


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


def written(folder: Path, corpus: str, table: str = TABLE) -> str:
    path = folder / "table.yaml"
    path.write_text(table.replace("CORPUS", corpus))
    return str(path)


def test_a_table_is_run_and_shown_and_nothing_is_run_twice(
    corpus: str, text: str, tmp_path: Path, jobs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = written(tmp_path, corpus), tmp_path / "out"
    run = ["tables", "run", "-q", "--table", path, "--text", text, "--device", "cpu", "--out", str(out)]
    assert main(run) == 0
    said = capsys.readouterr().out
    assert len(jobs) == len(set(jobs)) == 2 + 2 + 2 * 5 * 2
    assert [job.split("-")[0] for job in jobs[:4]] == ["search", "search", "size", "size"]
    assert [job[-5:] for job in jobs[4:]] == ["seed1"] * 10 + ["seed2"] * 10  # all with one seed come first
    assert said.startswith((out / "table.md").read_text()) and "## A trial" in said
    assert "by Student's t over seeds and sentences. If none of 8 were better, 0.4 would have 0.95 or more" in said
    jobs.clear()
    picture = tmp_path / "table.svg"
    assert main(["tables", "show", str(out), "--format", "csv", "--picture", str(picture)]) == 0
    assert "as large (2)" in picture.read_text()
    shown = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    header = shown[0]
    figure = "tags & more, test F1"
    assert header[:6] == ["layer", figure, f"{figure}, sd", "seeds", "P(better)", "published"]
    assert "text, valid perplexity" in header and [row[0] for row in shown[1:]] == [
        *("LSTM", "as large", "cell", "drawn", "found"),
    ]
    ledger = json.loads((out / "ledger.json").read_text())
    runs = [ledger["runs"][name] for name in ledger["plan"]["cells"]["cell / tags & more"]]
    scores = [run["test"] for run in runs]
    assert shown[3][1:3] == [f"{np.mean(scores):.2f}", f"{np.std(scores, ddof=1):.2f}"] and shown[1][5] == "50.00"
    assert shown[1][4] == "" and all(0 <= float(row[4]) <= 1 for row in shown[2:])
    weights = {row[0]: int(row[header.index("weights")]) for row in shown[1:]}
    assert weights["as large"] == pytest.approx(weights["cell"], rel=0.1) and weights["LSTM"] > 1.3 * weights["cell"]

    changed = TABLE.replace("learning_rate: 0.5", "learning_rate: 0.25").replace("tanh0-tanh1", "tanh0-relu1")
    written(tmp_path, corpus, changed)
    assert main(["tables", "run", "-q", "--resume", str(out), "--rows", "drown"]) == 2
    assert "rows: A trial has no row 'drown': did you mean drawn?" in capsys.readouterr().err
    assert main(["tables", "run", "-q", "--resume", str(out), "--rows", "drawn"]) == 0
    assert len(jobs) == 4 and all("drawn" in job for job in jobs)
    jobs.clear()
    assert main(["tables", "run", "-q", "--resume", str(out), "--rows", "all", "--seeds", "1"]) == 0
    assert (
        len(jobs) == 4 and all(job.startswith("size-") for job in jobs[:2]) and all("cell" in job for job in jobs[2:])
    )


def test_what_fails_is_told_and_what_the_budget_leaves_is_done_later(
    corpus: str, tmp_path: Path, jobs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = TABLE[: TABLE.index("  text:")] + "rows:\n  LSTM: {rnn: lstm}\n  cell: {rnn: tanh0}\n"
    train = tagging_task.train

    def failing(settings: dict[str, Any], folder: str, score: bool) -> dict[str, Any]:
        if settings["rnn"] == "tanh0" and settings["seeds"] == [2]:
            raise FlairNasError("not finite in epoch 1")
        return train(settings, folder, score)

    monkeypatch.setattr(tagging_task, "train", failing)
    path, out = written(tmp_path, corpus, one), tmp_path / "out"
    assert main(["tables", "run", "-q", "--table", path, "--budget", "0.001s", "--out", str(out)]) == 0
    assert "runs are still to be done; go on with: flair-nas tables run --resume" in capsys.readouterr().out
    few = len(jobs)
    assert (
        few < 4
        and main(["tables", "show", str(out)]) == 0
        and main(["tables", "run", "-q", "--resume", str(out), "--budget", "1h"]) == 0
    )
    said = capsys.readouterr().out
    assert len(jobs) == 4 and "cell on tags & more failed: not finite in epoch 1" in said
    assert main(["tag", "train", "-q", "--resume", str(out)]) == 2
    assert f"go on with: flair-nas tables run --resume {out}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title:", "titel:", r"table.yaml:1: unknown key 'titel': did you mean title\?"),
        ("seeds: [1, 2]", "seeds: [1, x]", "table.yaml:2: seeds must be a list of different whole"),
        ("seeds: [1, 2]", "seeds: [5000000000]", "table.yaml:2: seeds must be"),
        ("{tags & more: 50}", "{tags & more: '50,2'}", "table.yaml:9: published: 'tags & more' must have a number"),
        ('"random:3"', "'random:\u00b2'", "table.yaml:12: rnn .* must be followed by a number"),
        ("{rnn: lstm, published: {tags & more: 50}}", "{rnn: }", "table.yaml:9: row 'LSTM' must have one of rnn, a"),
        ("size_of: cell", "size_of: found", "table.yaml:10: size_of: 'found' has no rnn, or a size that is taken from"),
        ("learning_rate: 0.5", "corpus: demo", "table.yaml:12: settings: corpus is the same for a whole column"),
        ("    tagging: {", "    speech: {", "table.yaml:5: unknown key 'speech'"),
        ("hidden_size: 8, batch_size: 8", "hiden_size: 8, batch_size: 8", r"table.yaml:5: unknown key 'hiden_size'"),
        ("batch_size: 8, epochs: 1", "batch_size: 0, epochs: 1", "table.yaml:9: row 'LSTM' with .*batch_size must be"),
        ("size_of: cell", "time_of: cell, size_of: cell", "table.yaml:10: row 'as large' must have one of size_of and"),
        ("rnn: lstm, size_of: cell", "rnn: lstm, size_of: none", "table.yaml:10: size_of: 'none' is no row; it may be"),
        ('"tanh0-tanh1-tanh2-tanh3"', "i-dart", "table.yaml:11: unknown rnn_type 'i-dart'"),
        ("search: {nodes: 2", "search: {node: 2", "table.yaml:13: unknown key 'node'"),
        ("search: {nodes: 2", "search: {nodes: 0", "table.yaml:13: .*nodes must be"),
        ("{tags & more: 50}", "{tags: 50}", "table.yaml:9: unknown key 'tags'"),
        ("  drawn:", "  'as:large':", "table.yaml:1.: rows: the name .* is too like another one"),
        ("rows:", "rows: {}\nrest:", "table.yaml:.*: unknown key 'rest'|rows must be a mapping"),
    ],
)
def test_a_fault_in_a_table_is_told_with_its_line(
    old: str, new: str, message: str, corpus: str, tmp_path: Path
) -> None:
    assert old in TABLE
    with pytest.raises(FlairNasError, match=message):
        load_table(written(tmp_path, corpus, TABLE.replace(old, new, 1)))


def test_other_data_and_a_genotype_file_that_has_changed_are_run_anew(
    corpus: str, tmp_path: Path, jobs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, cell = tmp_path / "mine", tmp_path / "cell.json"
    write_corpus(folder)
    random_genotype(1).save(cell)
    one = TABLE[: TABLE.index("  text:")] + f"rows:\n  LSTM: {{rnn: lstm}}\n  cell: {{rnn: {cell}}}\n"
    path, out = written(tmp_path, str(folder), one), tmp_path / "out"
    run = ["tables", "run", "-q", "--table", path, "--seeds", "1", "--out", str(out)]
    assert main(run) == 0 and len(jobs) == 2
    assert main(["tables", "show", str(out)]) == 0 and "| cell |" in capsys.readouterr().out
    random_genotype(2).save(cell)
    assert main(run) == 0 and len(jobs) == 3 and "cell" in jobs[2]
    train = folder / "train.txt"
    train.write_text(train.read_text().replace("B-PER", "B-LOC", 1))
    assert main(run) == 0 and len(jobs) == 5
    Path(path).unlink()
    capsys.readouterr()
    assert main(["tables", "run", "-q", "--resume", str(out)]) == 0 and len(jobs) == 5
    assert "| P(better) |" not in capsys.readouterr().out  # of one seed it is not told


def test_an_interrupted_table_shows_what_there_is_and_a_search_that_failed(
    corpus: str, tmp_path: Path, jobs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = TABLE[: TABLE.index("  text:")] + TABLE[TABLE.index("rows:") :]
    in_this_process = LocalPool.run

    def stopped(pool: LocalPool, wanted: list[Job], *_: object) -> Iterator[Outcome]:
        for outcome in in_this_process(pool, wanted):
            if len(jobs) == 4:
                raise KeyboardInterrupt
            yield outcome

    def failing(settings: dict[str, Any], folder: str) -> dict[str, Any]:
        raise FlairNasError("not finite in\nepoch 1")

    monkeypatch.setattr(LocalPool, "run", stopped)
    monkeypatch.setattr(tagging_task, "search", failing)
    out = tmp_path / "out"
    assert main(["tables", "run", "-q", "--table", written(tmp_path, corpus, one), "--out", str(out)]) == 130
    assert "go on with: flair-nas tables run --resume" in capsys.readouterr().err
    assert main(["tables", "show", str(out)]) == 0
    said = capsys.readouterr().out
    assert "found on tags & more failed: not finite in epoch 1" in said and "One seed each: " in said
    assert re.search(r"\| LSTM \| \d+\.\d\d \| 1 \|", said) and re.search(r"\| drawn \| - \| - \|", said)


def test_a_setting_that_is_new_and_unset_leaves_the_names_of_runs() -> None:
    table = load_table("wnut-small")
    row, column = table.rows[0], table.columns[0]
    old = {"rnn": "lstm", "hidden_size": 256, "label_type": None}
    assert running._name(row, column, old, "") == running._name(row, column, {**old, "init_range": None}, "")
    assert running._name(row, column, old, "") != running._name(row, column, {**old, "init_range": 0.04}, "")


def test_a_layer_that_is_not_known_to_train_is_told_before_anything_is_trained(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def stop(pool: LocalPool, jobs: list[Job], *_: object) -> Iterator[Outcome]:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalPool, "run", stop)
    risky = "tanh0/input=tanh,gate=product"
    table = TABLE[: TABLE.index("  text:")] + f"rows:\n  LSTM: {{rnn: lstm}}\n  cell: {{rnn: '{risky}'}}\n"
    selection = {"embeddings": ["one-hot"], "hidden_size": 8, "seeds": [1, 2], "random": 0, "candidates": [risky]}
    for command in (
        lambda: run_table(TableConfig(table=written(tmp_path, corpus, table), device="cpu"), tmp_path / "table"),
        lambda: select_layer(SelectConfig(corpus=corpus, device="cpu", **selection), tmp_path / "selection"),
    ):
        caplog.clear()
        with pytest.raises(KeyboardInterrupt):
            command()
        assert caplog.text.count(f"use {risky},gate=residual") == 1


@pytest.mark.parametrize("task", [tagging_task, text_task])
def test_a_searched_layer_keeps_the_options_of_its_genotype(task: Any, corpus: str, text: str, tmp_path: Path) -> None:
    gates = {"learn": "joint", "history": 1, "gate": "product", "carry": "gated", "nodes": 1}
    data = {"corpus": corpus, "embeddings": ["one-hot"]} if task is tagging_task else {"text": text}
    small = {"hidden_size": 4, "batch_size": 4, "epochs": 1, "device": "cpu"}
    found = task.search({**gates, **data, **small}, str(tmp_path / "search"))["genotype"]
    genotype, _ = parse_layer_spec(found)
    assert (genotype.gate, genotype.carry) == ("product", "gated")
    assert genotype == Genotype.load(tmp_path / "search" / "genotype.json")


def test_the_size_is_that_of_the_other_row_with_its_own_settings(text: str, tmp_path: Path, jobs: list[str]) -> None:
    table = f"""columns:
  text:
    text: {{text: {text}, hidden_size: 8, epochs: 1, batch_size: 4, bptt: 8, dropout: 0.1, input_dropout: 0.1}}
rows:
  LSTM: {{rnn: lstm, size_of: large}}
  large: {{rnn: tanh0, settings: {{hidden_size: 24}}}}
"""
    ledger = run_table(TableConfig(table=written(tmp_path, "", table), seeds=[1]), tmp_path / "out")[1]
    small, large = (run["parameters"] for run in ledger.runs.values() if "parameters" in run)
    assert small == pytest.approx(large, rel=0.05)
    assert re.search(
        r"LSTM on text has a hidden size of \d+, at which it has (0.9|1.0)\d of the weights of large",
        (tmp_path / "out" / "table.md").read_text(),
    )


def test_a_layer_that_is_larger_at_any_size_is_told_and_the_rest_goes_on(
    tmp_path: Path, jobs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    gated = "  gates: {rnn: tanh0/input=sigmoid-tanh, size_of: LSTM}\n"
    one = TIMED[: TIMED.index("  text:")] + "rows:\n  LSTM: {rnn: lstm, settings: {hidden_size: 2}}\n" + gated
    path, out = written(tmp_path, "", one), str(tmp_path / "out")
    assert main(["tables", "run", "-q", path, "--seeds", "1", "--out", out]) == 0
    assert len(jobs) == 2 and jobs[1].endswith("seed1")
    told = r"gates on demo failed: tanh0/\S+ has [\d,]+ weights with a hidden size of 1, and lstm [\d,]+: give the row"
    assert re.search(told, capsys.readouterr().out)


TIMED = """columns:
  demo:
    tagging: {corpus: demo, embeddings: [one-hot], hidden_size: 24, batch_size: 8, epochs: 1}
  text:
    text: {hidden_size: 24, epochs: 1, batch_size: 4, bptt: 8}
rows:
  LSTM: {rnn: lstm}
  cell: {rnn: "tanh0-tanh1-tanh2-tanh3-tanh4-tanh5"}
"""
OF_TIME = "  of equal time: {rnn: lstm, time_of: cell}\n"


def test_a_size_by_time_is_measured_once_and_leaves_the_other_runs(
    text: str, tmp_path: Path, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_setup, "_ROUNDS", 1)
    path, out = written(tmp_path, "", TIMED), tmp_path / "out"
    run = ["tables", "run", "-q", path, "--text", text, "--seeds", "1", "--device", "cpu", "--out", str(out)]
    assert main(run) == 0 and len(jobs) == 4
    jobs.clear()
    written(tmp_path, "", TIMED + OF_TIME)
    assert main([*run, "--budget", "1h"]) == 0
    assert [job.startswith("size-") for job in jobs] == [True, True, False, False]  # and nothing is run again
    ledger, shown = json.loads((out / "ledger.json").read_text()), (out / "table.md").read_text()
    for column in ("demo", "text"):
        size = ledger["runs"][ledger["plan"]["measured"][f"of equal time / {column}"]]["hidden_size"]
        (name,) = ledger["plan"]["cells"][f"of equal time / {column}"]
        settings = (out / "runs" / name / "config.yaml").read_text()
        assert f"hidden_size: {size}\n" in settings
        assert f"of equal time on {column} has a hidden size of {size}, at which its steps took" in shown
    jobs.clear()
    assert main([*run, "--budget", "2h"]) == 0 and jobs == []  # another budget is no other size


def test_a_size_by_time_is_where_the_times_are_level(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(worker_setup.time, "perf_counter", lambda: now[0])

    def stepper(settings: dict[str, Any]) -> Any:
        taken = settings["hidden_size"] * settings.get("each", 1.0) + settings.get("all", 0.0)

        def step() -> None:
            now[0] += taken

        return step

    cell = {"rnn": "cell", "hidden_size": 100, "each": 3.0}
    for each, level in ((1.0, 300), (3.0, 100), (10.0, 30)):
        found = sizing.match_time(stepper, {"rnn": "lstm", "each": each}, cell)
        assert found["hidden_size"] == pytest.approx(level, rel=0.04)
        assert found["time_ratio"] == pytest.approx(found["hidden_size"] * each / 300)
    with pytest.raises(FlairNasError, match="lstm takes longer than cell at any hidden size"):
        sizing.match_time(stepper, {"rnn": "lstm", "all": 500.0}, cell)


def test_a_text_that_nothing_names_and_a_table_that_is_not_there(
    corpus: str, tmp_path: Path, jobs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FlairNasError, match="column text is of a text that the table does not name: give --text"):
        run_table(TableConfig(table=written(tmp_path, corpus)), tmp_path / "out")
    with pytest.raises(FlairNasError, match="unknown table 'wnut-smal': did you mean wnut-small"):
        load_table("wnut-smal")
    assert main(["tables", "show", str(tmp_path)]) == 2
    assert "holds no table" in capsys.readouterr().err


def test_a_table_is_named_without_a_flag_and_shown_by_its_folder(
    corpus: str, tmp_path: Path, jobs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    one = TABLE[: TABLE.index("  text:")] + "rows:\n  LSTM: {rnn: lstm}\n"
    path, out = written(tmp_path, corpus, one), tmp_path / "out"
    run = ["-q", "--seeds", "1", "--out", str(out)]
    assert main(["tables", "run", path, *run]) == 0 and len(jobs) == 1
    assert main(["tables", "run", *run, path]) == 0 and len(jobs) == 1
    shown = capsys.readouterr().out
    for name in ("table.yaml", "ledger.json", "table.md"):  # a file of a run stands for its folder
        assert main(["tables", "show", str(out / name)]) == 0
        assert capsys.readouterr().out in shown
    for given in (path, "wnut-small"):
        assert main(["tables", "show", given]) == 2
        said = capsys.readouterr().err
        assert f"{given!r} is a table, and its runs are in another folder" in said
        assert f"flair-nas tables run {given} --out DIR" in said and "flair-nas tables show DIR" in said
    assert main(["tables", "run", path, "--table", path, *run]) == 2
    assert f"give the table once, as {path!r} or by --table" in capsys.readouterr().err
    assert main(["tables", "run", "wnut-smal", "--out", str(tmp_path / "other")]) == 2
    assert "did you mean wnut-small?" in capsys.readouterr().err


@pytest.mark.parametrize("name", bundled_tables())
def test_a_bundled_table_can_be_used(name: str) -> None:
    table = load_table(name)
    assert table.rows[0].name.startswith("LSTM") and len(table.seeds) >= 3 and len(table.rows) >= 4


def test_a_drawn_row_is_that_random_cell(corpus: str, tmp_path: Path) -> None:
    table = load_table(written(tmp_path, corpus))
    assert table.rows[3].rnn == random_genotype(3).one_line()


def test_each_row_says_of_how_many_seeds_it_is(
    corpus: str, tmp_path: Path, jobs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    one = TABLE[: TABLE.index("  text:")] + "rows:\n  LSTM: {rnn: lstm}\n  cell: {rnn: tanh0}\n"
    path, out = written(tmp_path, corpus, one), tmp_path / "out"
    assert main(["tables", "run", "-q", path, "--seeds", "1", "--out", str(out)]) == 0
    assert main(["tables", "run", "-q", "--resume", str(out), "--seeds", "1,2", "--rows", "cell"]) == 0
    for form, cell in (("markdown", "| 2 |"), ("csv", ",2,"), ("latex", " & 2 & ")):
        capsys.readouterr()
        assert main(["tables", "show", str(out), "--format", form]) == 0
        lines = {line.strip("| ").split(" ")[0].split(",")[0]: line for line in capsys.readouterr().out.splitlines()}
        assert cell in lines["cell"] and cell.replace("2", "1") in lines["LSTM"]


def test_layers_that_learnt_nothing_are_not_compared(
    corpus: str, tmp_path: Path, jobs: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = {"dev": [0.0], "test": 0.0, "counts": pack_counts(np.array([[0, 0, 2]] * 9)), "parameters": 1}
    figures = nothing | {"seconds": [1.0], "peak_memory_mb": 1.0}
    monkeypatch.setattr(tagging_task, "train", lambda *_: dict(figures))
    one = TABLE[: TABLE.index("  text:")] + "rows:\n  LSTM: {rnn: lstm}\n  a<b>|c: {rnn: tanh0}\n"
    assert main(["tables", "run", "-q", written(tmp_path, corpus, one), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "0.50" not in said and "P(better)" not in said.partition("Mean ±")[0]
    assert "Nothing was learnt on tags & more by LSTM, a\\<b\\>\\|c: train longer." in said
    assert "| a\\<b\\>\\|c |" in said and "<b>" not in said


def test_latex_escapes_what_it_must() -> None:
    grid = Grid(["layer", "F1"], [["A&B_1 50% \\ #", "1.00 ± 0.10"]], ["a remark"])
    found = to_latex(None, grid)  # type: ignore[arg-type]
    assert r"A\&B\_1 50\% \textbackslash{} \# & 1.00 $\pm$ 0.10 \\" in found
    assert re.search(r"\\begin\{tabular\}\{lr\}\n\\toprule\nlayer & F1", found)


def test_counts_in_a_ledger_are_those_that_were_put_in() -> None:
    counts = np.random.default_rng(0).integers(0, 50, (300, 3), dtype=np.int32)
    assert np.array_equal(unpack_counts(pack_counts(counts)), counts) and len(pack_counts(counts)) < 2000
    older = base64.b64encode(zlib.compress(counts.astype("<i4").tobytes())).decode()
    assert np.array_equal(unpack_counts(older), counts)


def test_entities_that_training_did_not_have(tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text(
        "Ada B-PER B-PER\nin O O\nOslo B-LOC B-LOC\n\nNew B-LOC B-LOC\nYork I-LOC O\n\nada B-PER O\n"
    )
    assert count_unseen(tmp_path / "test.txt", {"ada"}) == (1, 2)
    assert count_unseen(tmp_path / "test.txt", set()) == (2, 4)
