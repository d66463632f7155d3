"""Reports: the page holds the numbers of real runs, whatever state they are in, and shows other input as text."""

from __future__ import annotations

import builtins
import html
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects
import plotly.io
import pytest
import yaml
from small_language_model import settings as language_model
from small_search import JOINT, KINDS, SMALL, no_picture, patched, with_samples, write_text

from flair_nas.cli import main
from flair_nas.drawing import charts
from flair_nas.drawing.curves import COLOURS, load_template
from flair_nas.embedding.character_model.config import CharacterModelConfig
from flair_nas.experiments.counts import f1, pack_counts
from flair_nas.experiments.ledger import Ledger
from flair_nas.genotype import Genotype, random_genotype
from flair_nas.language_model.training import train_language_model
from flair_nas.report.page import MAX_BYTES
from flair_nas.report.tunings import measure_parts
from flair_nas.runs.run import Run
from flair_nas.search.config import SearchConfig
from flair_nas.search.trainer import search_genotype
from flair_nas.settings.fields import make_settings
from flair_nas.settings.resolve import to_yaml
from flair_nas.storage.files import hash_data
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tune.answer import make_answer
from flair_nas.tune.candidates import Candidate, make_candidate
from flair_nas.tune.config import TextTuneConfig, TuneConfig, TuneSettings
from flair_nas.tune.report import format_report
from flair_nas.tune.trials import Trials

SMALLER = {**SMALL, "epochs": 3, "bptt": 4}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "text", train_lines=12, valid_lines=6)


@pytest.fixture(scope="module")
def searches(text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A search of a cell, and one of cell and gates."""
    folder = tmp_path_factory.mktemp("searches")
    kinds: dict[str, dict[str, Any]] = {"cell": {"relaxation": "i-darts"}, "joint": {**JOINT, "relaxation": "darts"}}
    with patched(charts, "draw_progress", no_picture):
        for name, changes in kinds.items():
            config = make_settings(SearchConfig, {**with_samples(SMALLER, changes), "text": str(text)})
            search_genotype(config, folder / name, progress=False)
    return {name: folder / name for name in kinds}


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "draw_progress", no_picture)


@pytest.fixture
def run(searches: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the search of a cell, to be damaged."""
    return Path(shutil.copytree(searches["cell"], tmp_path / "run"))


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change each line of a history."""
    history = lines(folder)
    for line in history:
        change(line)
    (folder / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in history))


def report(*folders: Path, out: Path) -> str:
    """Return the page on these folders."""
    assert main(["report", *map(str, folders), "--out", str(out)]) == 0
    return out.read_text(encoding="utf-8")


def figures_in(page: str) -> list[dict[str, Any]]:
    """Return the figures that a page draws; Plotly itself accepts them all."""
    body = page[: page.index('<div id="template"')]
    figures = [json.loads(data) for data in re.findall(r'<script type="application/json">(.*?)</script>', body, re.S)]
    for figure in figures:
        plotly.graph_objects.Figure(figure["data"], figure["layout"] | {"template": load_template()})
    return figures


def figure_titled(page: str, words: str) -> dict[str, Any]:
    (figure,) = (one for one in figures_in(page) if words in one["layout"]["title"]["text"])
    return figure


def texts(page: str) -> str:
    """Return what a reader can read, without figures."""
    body = page[page.index("<body>") : page.index('<div id="template"')]
    return html.unescape(re.sub(r"<script.*?</script>|<[^>]*>", " ", body, flags=re.S))


# --- searches ---


def test_the_curves_of_searches_are_in_one_picture(searches: dict[str, Path], tmp_path: Path) -> None:
    page = report(*searches.values(), out=tmp_path / "page.html")
    by_epoch, by_time = (figure_titled(page, f"perplexity on dev, by {x}")["data"] for x in ("epoch", "time"))
    for folder, curve, timed in zip(searches.values(), by_epoch, by_time, strict=True):
        history = lines(folder)
        assert curve["name"] == timed["name"] == folder.name and curve["x"] == [1, 2, 3]
        assert curve["y"] == timed["y"] == [line["dev_perplexity"] for line in history]
        assert timed["x"][-1] == pytest.approx(sum(line["seconds"] + line["evaluation_seconds"] for line in history))
    mad = [figure for figure in figures_in(page) if figure["layout"]["title"]["text"].startswith("MAD")]
    assert [len(figure["data"]) for figure in mad] == [1, 2]
    assert mad[1]["data"][1]["y"] == [
        point["inter"] for line in lines(searches["joint"]) for point in line["mad_curve"]
    ]
    shown = texts(page)
    for folder in searches.values():
        origin = json.loads((folder / "genotype.json").read_text())["origin"]
        assert f"Verdict: {origin['verdict']}" in shown and origin["corpus"] in shown
    assert "hidden_size 6" in " ".join(shown.split())


def test_mixing_weights_are_shown_over_the_even_weight_with_the_edges_that_are_kept(
    searches: dict[str, Path], tmp_path: Path
) -> None:
    page = report(searches["cell"], out=tmp_path / "page.html")
    heat = figure_titled(page, "cell: mixing weights")
    history = lines(searches["cell"])
    assert heat["data"][0]["y"] == ["s0 → s1", "s0 → s2", "s1 → s2"] and len(heat["frames"]) == len(history)
    for frame, line in zip(heat["frames"], history):
        values, marks = frame["data"]
        even = np.array([[5], [10], [10]])  # I-DARTS has one softmax for a node
        np.testing.assert_allclose(values["z"], even * np.array(line["mixing"]["cell"]), atol=1e-3)
        nodes = enumerate(Genotype.parse(line["genotype"]).nodes, start=1)
        kept = [(f"s{edge.tail} → s{node}", edge.op) for node, edges in nodes for edge in edges]
        assert list(zip(marks["y"], marks["x"])) == kept
    assert heat["data"][0]["z"] == heat["frames"][-1]["data"][0]["z"]
    page = report(searches["joint"], out=tmp_path / "page.html")
    gates = [figure_titled(page, f"{gate} gate: mixing") for gate in ("state", "input")]
    rows = [["x[t-1] → f1", "x[t-2] → f2", "f1 → f2"], ["h[t-1] → g1", "h[t-2] → g2", "g1 → g2"]]
    assert [gate["data"][0]["y"] for gate in gates] == rows
    entries = lines(searches["joint"])[-1]["mixing"]["state_gate_entries"]
    np.testing.assert_allclose(gates[0]["data"][0]["z"][:2], 5 * np.array(entries), atol=1e-3)


def test_each_epoch_has_its_genotype_and_what_changed(run: Path, tmp_path: Path) -> None:
    genotypes = iter(["relu0-tanh1", "relu0-tanh0", "relu0-tanh0"])
    rewrite(run, lambda line: line.update(genotype=next(genotypes)))
    page = report(run, out=tmp_path / "page.html")
    assert page.count('<figure class="genotype">') == 2 + 1  # each is drawn once, and that of genotype.json
    assert "The genotype is not that of the last epoch" in texts(page)
    assert re.findall(r'class="epoch" data-genotype="(\d)"', page) == ["0", "1", "1"]
    shown = texts(page)
    assert "changed since the epoch before: s2: tanh(s1) → tanh(s0)." in shown
    assert "changed since the epoch before: nothing." in shown


def test_each_of_several_tasks_has_its_curve(run: Path, tmp_path: Path) -> None:
    rewrite(run, lambda line: line.update(tasks={"<b>": {"dev_loss": 2.0, "dev_f1": 10.0 * line["epoch"]}}))
    figure = figure_titled(report(run, out=tmp_path / "page.html"), "f1")
    assert figure["data"][0]["y"] == [10.0, 20.0, 30.0] and "&lt;b&gt;: f1" in figure["layout"]["title"]["text"]


def test_a_search_without_mixing_weights_has_no_heat_maps(run: Path, tmp_path: Path) -> None:
    rewrite(run, lambda line: line.pop("mixing"))
    page = report(run, out=tmp_path / "page.html")
    assert "There are no heat maps: this history has no mixing weights." in texts(page)
    assert len(figures_in(page)) == 4 and '<figure class="genotype">' in page


def test_the_report_of_a_search_without_a_supernet(text: Path, tmp_path: Path) -> None:
    config = make_settings(SearchConfig, {**with_samples(SMALLER, KINDS["halving"]), "text": str(text)})
    search_genotype(config, tmp_path / "halving", progress=False)
    page = report(tmp_path / "halving", out=tmp_path / "page.html")
    assert len(figures_in(page)) == 3 and "There are no heat maps" in texts(page)
    (curve,) = figure_titled(page, "the best candidate")["data"]
    best = [line["best_loss"] for line in lines(tmp_path / "halving")]
    assert any(best) and curve["y"] == [loss and math.exp(loss) for loss in best]


# --- runs that are not whole ---


def test_a_torn_line_is_left_out_and_reported(run: Path, tmp_path: Path) -> None:
    whole = (run / "history.jsonl").read_text()
    (run / "history.jsonl").write_text(whole[:-40])
    page = report(run, out=tmp_path / "page.html")
    assert "Damaged lines of run/history.jsonl are left out: 3." in texts(page)
    assert figure_titled(page, "by epoch")["data"][0]["x"] == [1, 2] and "2 of 3 epochs so far" in texts(page)
    (run / "history.jsonl").write_text("\0\n[1]\n" + whole)
    assert "Damaged lines of run/history.jsonl are left out: 1, 2." in texts(report(run, out=tmp_path / "page.html"))


def test_a_run_without_an_epoch_says_so(run: Path, tmp_path: Path) -> None:
    for name in ("history.jsonl", "genotype.json"):
        (run / name).unlink()
    page = report(run, out=tmp_path / "page.html")
    assert "No epoch has ended yet" in texts(page) and figures_in(page) == []
    (run / "history.jsonl").touch()
    assert "No epoch has ended yet" in texts(report(run, out=tmp_path / "page.html"))


def test_values_that_are_not_finite_leave_a_gap(run: Path, tmp_path: Path) -> None:
    values = iter([None, math.nan, 7.0])
    rewrite(run, lambda line: line.update(dev_perplexity=next(values)))
    assert figure_titled(report(run, out=tmp_path / "page.html"), "by epoch")["data"][0]["y"] == [None, None, 7.0]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: run / "none", "there is no such folder"),
        (lambda run: run.parent, "holds no run"),
        (lambda run: (run / "part").mkdir() or run / "part", "its run may be "),
        (
            lambda run: (run / "config.yaml").write_text("a: 1\n") and run,
            "holds no run (no config.yaml with the settings of one)",
        ),
        (
            lambda run: (run / "config.yaml").write_text("- a") and run,
            "holds no run (no config.yaml with the settings of one)",
        ),
        (lambda run: rewrite(run, lambda line: line.update(mixing={"cell": [["x"]]})) or run, "are not as flair-nas"),
        (lambda run: (run / "config.yaml").rename(run / "ledger.json").parent, "holds no run"),
    ],
)
def test_what_is_no_run_is_refused(
    damage: Callable[[Path], Path], message: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(damage(run)), "--out", str(tmp_path / "page.html")]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "page.html").exists()


def test_bad_flags_are_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--out", str(tmp_path / "page.pdf")]) == 2
    assert "must end in .html" in capsys.readouterr().err
    assert main(["report", str(run), "--out", str(tmp_path / "none" / "page.html")]) == 1
    assert "page.html" in capsys.readouterr().err
    (mine := tmp_path / "mine.html").write_text("<!doctype html><title>Mine</title>")
    assert main(["report", str(run), "--out", str(mine)]) == 2
    assert "exists and is no report of flair-nas; name another file" in capsys.readouterr().err
    mine.unlink()
    assert main(["report", str(run), "--out", str(mine)]) == main(["report", str(run), "--out", str(mine)]) == 0


def test_without_plotly_the_error_says_what_to_install(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import_module = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name.startswith("plotly"):
            raise ImportError(name)
        return import_module(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 2
    assert "pip install 'flair-nas[report]'" in capsys.readouterr().err


def test_pictures_are_named_by_their_sections(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[Path] = []
    monkeypatch.setattr(plotly.io, "write_images", lambda figures, files, **_: written.extend(files))
    command = ["report", str(run), "--out", str(tmp_path / "page.html"), "--png", str(tmp_path / "png")]
    assert main(command) == 0 and {path.parent for path in written} == {tmp_path / "png"}
    assert {path.name for path in written} >= {"1-Perplexity-on-dev-epochs.png", "2-run-mixing-cell.png"}

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("Kaleido requires Google Chrome")

    monkeypatch.setattr(plotly.io, "write_images", fail)
    assert main(command) == 2
    assert "--png needs Kaleido and Chrome or Chromium: pip install 'flair-nas[report-png]'" in capsys.readouterr().err


# --- large and hostile input ---


def test_ten_thousand_epochs_stay_small(run: Path, tmp_path: Path) -> None:
    line = lines(run)[-1]
    rng = np.random.default_rng(0)
    cell = rng.dirichlet(np.ones(5), 36).round(4).tolist()
    line |= {"epoch": "EPOCH", "genotype": "GENOTYPE", "mixing": {"cell": cell}, "dev_perplexity": "FIGURE"}
    form = json.dumps(line).replace('"EPOCH"', "EPOCH").replace('"FIGURE"', "FIGURE")
    genotypes = [random_genotype(number).one_line() for number in range(100)]
    with (run / "history.jsonl").open("w") as stream:
        for epoch in range(1, 10_001):
            text = form.replace("EPOCH", str(epoch)).replace("GENOTYPE", genotypes[epoch % 100])
            stream.write(text.replace("FIGURE", str(1e4 / epoch)) + "\n")
    page = report(run, out=tmp_path / "page.html")
    assert len(page.encode()) < MAX_BYTES
    curve = figure_titled(page, "by epoch")["data"][0]
    assert (curve["x"][0], curve["y"][0]) == (1, 1e4) and (curve["x"][-1], curve["y"][-1]) == (10_000, 1.0)
    assert len(curve["x"]) == 1000 and "Curves are thinned: 1,000 of 10,000 epochs are drawn." in texts(page)
    assert "The slider is thinned: it has 60 of 10,000 epochs." in texts(page)


def test_the_page_needs_no_network(searches: dict[str, Path], tmp_path: Path) -> None:
    page = report(*searches.values(), out=tmp_path / "page.html")
    assert "default-src 'none'" in page and not re.search(r"<(script|link|img)[^>]+(src|href)=", page)


def test_html_is_shown_as_text(run: Path, tmp_path: Path) -> None:
    bad = "</script><img src=x onerror=alert(1)>"
    data = json.loads((run / "genotype.json").read_text())
    data["origin"] |= {"verdict": bad, "corpus": bad}
    (run / "genotype.json").write_text(json.dumps(data))
    settings = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(re.sub("^text: .*$", f"text: {json.dumps(bad)}", settings, flags=re.M))
    rewrite(run, lambda line: line.update(genotype=bad))
    run = run.rename(tmp_path / "<b>name & co")
    other = Path(shutil.copytree(run, tmp_path / "other"))
    page = report(run, other, out=tmp_path / "page.html")
    assert "<img" not in page and f"Verdict: {bad}" in texts(page) and "this line has no genotype" in texts(page)
    names = [curve["name"] for curve in figure_titled(page, "by epoch")["data"]]
    assert names == ["&lt;b&gt;name &amp; co", "other"] and "<h2><b>" not in page


# --- other kinds of runs ---


def save(folder: Path, config: Any, parts: dict[str, list[dict[str, Any]]], **figures: Any) -> Path:
    """Write a run folder as a training does."""
    folder.mkdir()
    for name, history in parts.items():
        run = Run(folder, config).part(name)
        run.history = history
        run.accept()
    if figures:
        Run(folder, config).finish(figures)
    return folder


def test_runs_of_different_kinds_are_sections(run: Path, text: Path, tmp_path: Path) -> None:
    shutil.copy(text / "valid.txt", tmp_path / "test.txt")
    train_language_model(language_model(str(text), epochs=2), tmp_path / "lm", progress=False)
    seeds = {
        f"seed-{seed}": [
            {"epoch": epoch, "dev_f1": 10.0 * epoch + seed, "seconds": 1.0, "evaluation_seconds": 0.5}
            for epoch in (1, 2)
        ]
        for seed in (1, 2)
    }
    tagger = save(tmp_path / "tagger", TaggerConfig(seeds=[1, 2], epochs=2), seeds, test_f1=21.5)
    bits = [{"epoch": epoch, "dev_bits": 3.0 / epoch, "seconds": 1.0} for epoch in (1, 2)]
    characters = save(tmp_path / "characters", CharacterModelConfig(text="demo", epochs=5), {"forward": bits})
    page = report(run, tmp_path / "lm", tagger, characters, out=tmp_path / "page.html")
    perplexities = [one for one in figures_in(page) if one["layout"]["title"]["text"] == "perplexity on dev, by epoch"]
    assert [one["data"][0]["name"] for one in perplexities] == ["run", "lm"]
    assert perplexities[1]["data"][0]["y"] == [line["dev_perplexity"] for line in lines(tmp_path / "lm")]
    curves = figure_titled(page, "F1 on dev, by time")["data"]
    assert [curve["name"] for curve in curves] == ["tagger seed-1", "tagger seed-2"]
    assert curves[1]["x"] == [1.5, 3.0] and curves[1]["y"] == [12.0, 22.0]
    assert figure_titled(page, "bits per character on dev, by epoch")["data"][0]["y"] == [3.0, 1.5]
    shown = " ".join(texts(page).split())
    assert "test_f1 21.5" in shown and "forward: 2 of 5 epochs so far in 2 s" in shown
    (tagger / "metrics.json").write_text("{")
    assert "metrics.json is damaged" in texts(report(tagger, out=tmp_path / "page.html"))


def test_the_reliability_of_calibrated_scores_is_drawn(tmp_path: Path) -> None:
    tagger = save(tmp_path / "tagger", TaggerConfig(epochs=1), {"seed-1": [{"epoch": 1, "dev_f1": 9.0}]})
    parts = {
        name: {"error": error, "by_chance": 1.0, "labels": 40, "bins": [[0.5, share], [0.9, 0.9]]}
        for name, error, share in (("before", 12.0, 0.2), ("after", 2.0, 0.5))
    }
    figures = {"corpus": "mine", "part": "test", "temperature": 1.5, **parts}
    (tagger / "calibration.json").write_text(json.dumps(figures | {"sha256": hash_data(figures)}))
    curves = figure_titled(report(tagger, out=tmp_path / "page.html"), "Scores on test of mine, 40 labels")["data"]
    assert [curve["name"] for curve in curves] == [
        "exact scores", "before, error 12.0 points", "after, error 2.0 points",
    ]  # fmt: skip
    assert curves[1]["x"] == [0.5, 0.9] and curves[1]["y"] == [0.2, 0.9]
    (tagger / "calibration.json").write_text(json.dumps(figures))
    page = report(tagger, out=tmp_path / "page.html")
    assert "calibration.json is damaged, so the reliability of scores is missing" in texts(page)


# --- tunings ---


def begin_tuning(folder: Path, config: TuneSettings, points: list[dict[str, Any]]) -> tuple[Ledger, list[Candidate]]:
    """Begin the folder of a tuning; return its ledger, and the candidates of the points."""
    folder.mkdir()
    (folder / "config.yaml").write_text(to_yaml(config))
    ledger = Ledger(folder / "ledger.json")
    ledger.plan, ledger.points = {"budget": config.budget}, points
    return ledger, [make_candidate(config, point) for point in points]


def a_run(*dev: float, loss: float = 1.0, at: float = 0.0, **more: Any) -> dict[str, Any]:
    """Return a run with these metrics of its epochs."""
    seconds = {"seconds": [2.0] * len(dev), "around_seconds": 1.0, "at": at}
    return {"dev": [*dev], "dev_loss": [loss] * len(dev), **seconds, "parameters": 9, "peak_memory_mb": 7.0, **more}


def small_tuning(folder: Path) -> tuple[Ledger, list[Candidate]]:
    """Write the folder of a tuning of an LSTM and a GRU, each judged by two seeds, with two further candidates."""
    config = TuneConfig(corpus="demo", vary=["layer", "rate"], epochs=4, seeds=[1], fresh_seeds=2, budget="1h")
    layers = ("lstm", "gru", "tanh0-tanh1", "relu0-tanh1")
    points = [{"rnn": rnn, "learning_rate": 0.1 * (1 + place)} for place, rnn in enumerate(layers)]
    ledger, candidates = begin_tuning(folder, config, points)
    lstm, gru, other, broken = candidates
    ledger.runs |= {
        lstm.run(1): a_run(1.0, 2.0, 3.0, 5.0, at=3600.0),
        gru.run(1): a_run(1.0, 2.5, 7.0, 6.0, at=7200.0),
        other.run(1): a_run(0.5, 0.6, at=5400.0),
        broken.run(1): {"error": "<i>not finite</i>", "again": False, "at": 60.0},
        lstm.shape: {"ratio": 1.0, "ms": 2.0},
        gru.shape: {"ratio": 0.75, "ms": 2.1},
    }
    rng = np.random.default_rng(0)
    for candidate, chance in ((lstm, 0.5), (gru, 0.7)):
        for seed in (2, 3):
            counts = np.stack([rng.binomial(2, chance, 50), np.full(50, 2), np.full(50, 2)], axis=1)
            scored = {"test": float(f1(counts.sum(0))), "counts": pack_counts(counts)}
            ledger.runs[candidate.run(seed)] = a_run(1.0, 2.0, 3.0, 4.0, **scored)
    ledger.plan["finalists judged"] = [gru.name]
    ledger.save()
    return ledger, candidates


def test_a_tuning_has_its_rungs_curves_and_final_difference(tmp_path: Path) -> None:
    ledger, (lstm, gru, other, _) = small_tuning(tmp_path / "out")
    page = report(tmp_path / "out", out=tmp_path / "page.html")
    shown = " ".join(texts(page).split())
    assert "There is no report.md" in shown and "<i>not finite</i>" in shown and "<i>not" not in page
    assert "rung epochs candidates that reached it 1 2 3 2 4 2" in shown
    curves = figure_titled(page, "F1 on dev, seed 1")
    assert {curve["name"]: curve["y"] for curve in curves["data"]} == {
        other.name: [0.5, 0.6], lstm.name: [1.0, 2.0, 3.0, 5.0], gru.name: [1.0, 2.5, 7.0, 6.0],
    }  # fmt: skip
    assert [line["x0"] for line in curves["layout"]["shapes"]] == [2]  # the rung at which candidates were compared
    assert {curve["name"] for curve in figure_titled(page, "loss on dev, seed 1")["data"]} == {
        one.name for one in (lstm, gru, other)
    }
    seeds = figure_titled(page, "F1 on test by seed")["data"][0]
    tests = [run["test"] for run in ledger.runs.values() if "test" in run]
    assert seeds["x"] == pytest.approx(tests) and seeds["y"] == [lstm.name] * 2 + [gru.name] * 2
    density = figure_titled(page, f"lead of {gru.name} over {lstm.name}")["data"][-1]
    peak = density["x"][int(np.argmax(density["y"]))]
    assert peak == pytest.approx(sum(tests[2:]) / 2 - sum(tests[:2]) / 2, abs=0.3)


def test_the_baseline_and_finalists_have_colours_and_the_others_are_grey(tmp_path: Path) -> None:
    _, (lstm, gru, other, _) = small_tuning(tmp_path / "out")
    curves = figure_titled(report(tmp_path / "out", out=tmp_path / "page.html"), "F1 on dev, seed 1")["data"]
    assert [curve["name"] for curve in curves][0] == other.name  # below the others
    assert {curve["name"]: curve["line"]["color"] for curve in curves} == {
        lstm.name: COLOURS[1], gru.name: COLOURS[0], other.name: COLOURS[-1],
    }  # fmt: skip
    assert {curve["name"] for curve in curves if curve["showlegend"]} == {lstm.name, gru.name}


def test_candidates_that_ended_are_drawn_by_milliseconds_and_as_the_best_so_far(tmp_path: Path) -> None:
    ledger, (lstm, gru, other, _) = small_tuning(tmp_path / "out")
    page = report(tmp_path / "out", out=tmp_path / "page.html")
    front, points = figure_titled(page, "F1 on dev and time")["data"]
    assert (points["x"], points["y"]) == ([2.0, 1.5], [5.0, 7.0])  # milliseconds: those of the baseline by the ratio
    assert (front["x"], front["y"]) == ([1.5], [7.0])  # it is faster and better
    assert points["text"][1] == f"{gru.name}<br>learning rate 0.2"
    (best,) = figure_titled(page, "Best so far")["data"]
    assert (best["x"], best["y"]) == ([1.0, 2.0], [5.0, 7.0])  # hours
    del ledger.runs[gru.shape]
    ledger.runs[other.run(1)] = a_run(0.5, 0.6, 0.7, 0.8, at=9000.0)
    ledger.save()
    page = report(tmp_path / "out", out=tmp_path / "page.html")
    assert figure_titled(page, "F1 on dev and time")["data"][1]["x"] == [2.0]  # of the others no time is known
    (best,) = figure_titled(page, "Best so far")["data"]
    assert (best["x"], best["y"]) == ([1.0, 2.0, 2.5], [5.0, 7.0, 7.0])


def test_the_report_of_a_tuning_is_shown_whole(tmp_path: Path) -> None:
    ledger, (lstm, gru, *_) = small_tuning(tmp_path / "out")
    config = make_settings(TuneConfig, yaml.safe_load((tmp_path / "out" / "config.yaml").read_text()))
    runs = [[ledger.runs[one.run(seed)] for seed in (2, 3)] for one in (lstm, gru)]
    answer = make_answer(config.task, runs[0], [(gru, runs[1])], [2, 3], first=lstm, fresh=True)
    written = format_report(answer, Trials(config, ledger), ["few <labels>"], tmp_path / "out")
    (tmp_path / "out" / "report.md").write_text(written)
    page = report(tmp_path / "out", out=tmp_path / "page.html")
    shown, gain = " ".join(texts(page).split()), answer.others[0].gain
    assert gain is not None and f"The lead of {gru.name} is {gain.value:.2f} F1 (95 %:" in shown
    assert f'<p class="verdict">Take {gru.name}: it is better than the baseline by' in page
    assert '<p class="remark">few &lt;labels&gt;.</p>' in page and "There is no report.md" not in shown
    assert "<pre>from flair" in page and f"flair-nas tune --resume {tmp_path / 'out'} --budget 120m" in shown
    tables = [
        [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", body)]
        for body in re.findall(r"<table>(.*?)</table>", page)
    ]
    (answers,) = (rows for rows in tables if "P(better)" in rows[0])
    assert [row[:2] for row in answers] == [["what", "name"], ["baseline", lstm.name], ["best", gru.name]]
    assert all(len(row) == len(answers[0]) for row in answers)
    (tried,) = (rows for rows in tables if rows[0][0] == "name" and "settings" in rows[0])
    assert {row[0] for row in tried[1:]} == {make_candidate(config, point).name for point in ledger.points}
    assert all(len(row) == len(tried[0]) for row in tried)
    assert page.count("<summary>All settings that were tried</summary>") == 1


def test_marks_of_a_report_are_not_shown(tmp_path: Path) -> None:
    small_tuning(tmp_path / "out")
    (tmp_path / "out" / "report.md").write_text(
        "# A\n\n**Keep lstm.**\n\n| name | P(better) |\n| --- | --- |\n| a\\<b\\>\\|c | 0.81 |\n\n"
        "Beware:\n\n- few labels.\n\nIn Flair:\n\n```python\nx < 1\n```\n\n## All settings\n\n| a |\n| - |\n| c |\n"
    )
    shown = " ".join(texts(report(tmp_path / "out", out=tmp_path / "page.html")).split())
    assert "Keep lstm. name P(better) a<b>|c 0.81 few labels. x < 1 All settings that were tried a c" in shown


def test_what_parts_matter_is_measured_after_the_first_rung(tmp_path: Path) -> None:
    config = TuneConfig(corpus="demo", vary=["layer", "rate", "crf", "width"], epochs=4, seeds=[1])
    points = [
        {
            "rnn": ("lstm", "gru")[place % 2],
            "learning_rate": 0.02 + 0.01 * place,
            "crf": place % 4 < 2,
            "hidden_size": 8 + place,
        }  # a value of its own for each says nothing
        for place in range(16)
    ]
    ledger, candidates = begin_tuning(tmp_path / "out", config, points)
    for candidate in candidates:
        ledger.runs[candidate.run(1)] = a_run(1.0, 5.0 if candidate.point["rnn"] == "gru" else 2.0, 99.0)
    ledger.save()
    spreads = measure_parts(Trials(config, ledger))
    assert spreads == {"rnn": pytest.approx(1.0), "learning_rate": 0.0, "crf": 0.0}
    page = report(tmp_path / "out", out=tmp_path / "page.html")
    bars = figure_titled(page, "Share of the variance of F1 on dev")["data"][0]
    assert bars["y"][0] == "rnn" and bars["x"][0] == pytest.approx(1.0)
    ledger.points = points[:7]
    assert measure_parts(Trials(config, ledger)) == {}  # of a few, it would be chance


def test_the_best_perplexity_of_a_tuning_is_the_smallest(tmp_path: Path) -> None:
    config = TextTuneConfig(text="demo", vary=["rate"], epochs=2, seeds=[1], fresh_seeds=1)
    points = [{"learning_rate": rate} for rate in (20.0, 10.0)]
    ledger, candidates = begin_tuning(tmp_path / "out", config, points)
    for candidate, figures, at in zip(candidates, ([90.0, 80.0], [99.0, 95.0]), (3600.0, 7200.0)):
        ledger.runs[candidate.run(1)] = a_run(*figures, at=at)
        ledger.runs[candidate.run(2)] = a_run(*figures, test=None, counts=pack_counts(np.array([[4.0, 1], [5.0, 1]])))
    ledger.save()
    page = report(tmp_path / "out", out=tmp_path / "page.html")
    assert figure_titled(page, "Best so far")["data"][0]["y"] == [80.0, 80.0]
    assert "There is no final difference yet" in texts(page)  # no finalist
    ledger.plan["finalists judged"] = [candidates[1].name]
    ledger.save()
    page = report(tmp_path / "out", out=tmp_path / "page.html")
    assert figure_titled(page, "perplexity on valid by seed")["data"][0]["x"] == pytest.approx([np.exp(4.5)] * 2)


def test_a_tuning_that_has_just_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger, _ = small_tuning(tmp_path / "out")
    ledger.plan = {}
    ledger.save()
    assert "There is no final difference yet" in texts(report(tmp_path / "out", out=tmp_path / "page.html"))
    ledger.runs = {}
    ledger.save()
    assert "No candidate has ended an epoch yet" in texts(report(tmp_path / "out", out=tmp_path / "page.html"))
    ledger.points = []  # stopped before the first one
    ledger.save()
    assert "No candidate has ended an epoch yet" in texts(report(tmp_path / "out", out=tmp_path / "page.html"))
    (tmp_path / "out" / "ledger.json").write_text("{")
    assert main(["report", str(tmp_path / "out"), "--out", str(tmp_path / "page.html")]) == 2
    assert "this ledger cannot be read" in capsys.readouterr().err
