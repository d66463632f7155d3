"""A search of something that is no text, judged by F1; and what it takes to add a strategy or an objective."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import parity
import pytest
import yaml
from small_search import NO_DROPOUT, SMALL, patched, with_samples

from flair_nas.library.named import load_genotype
from flair_nas.runs.metric import Evaluation
from flair_nas.search.build import make_objective, make_strategy
from flair_nas.search.config import SearchConfig
from flair_nas.search.estimate import estimate_search
from flair_nas.search.processes import make_accelerator
from flair_nas.search.space import CellSpace
from flair_nas.search.trainer import SearchResult, search_genotype
from flair_nas.settings.fields import make_settings

ROOT = Path(__file__).resolve().parents[2]


def small(**changes: Any) -> SearchConfig:
    return make_settings(SearchConfig, with_samples({**SMALL, "batch_size": 8}, changes))


def run(out: Path, *, progress: bool = False, **settings: Any) -> SearchResult:
    config = small(**settings)

    def make(accelerator: Any) -> parity.Parity:
        return parity.build(config, parity.read(config), accelerator)

    return search_genotype(config, out, objective=make, progress=progress)


def written(out: Path) -> str:
    """All that a search has written that is text."""
    return "\n".join(path.read_text() for path in out.iterdir() if path.suffix in (".yaml", ".jsonl", ".json", ".svg"))


# --- another measure ---


def test_history_genotype_picture_and_lines_name_the_measure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "flair_nas")
    settings = {**NO_DROPOUT, "hidden_size": 16, "learning_rate": 0.5, "clip": 5.0}
    result = run(tmp_path / "run", epochs=12, **settings)
    history = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").open()]
    assert history == result.history and result.metric is parity.Parity.metric
    for line in history:
        assert 0 <= line["dev_f1"] <= 100 and line["dev_f1"] != pytest.approx(math.exp(line["dev_loss"]))
    assert history[-1]["dev_f1"] > 80 > history[0]["dev_f1"]  # it has learned something
    genotype = load_genotype(tmp_path / "run" / "genotype.json")
    assert genotype.origin["figures"]["supernet_dev_f1"] == history[-1]["dev_f1"]
    assert genotype.origin["corpus"] == "made-up bits, 280 of them"
    pattern = r"epoch 12 of 12: train loss \d\.\d{3}, valid F1 \d+\.\d\d, MAD intra 0\.\d+, \d+ s, \d+ s left; "
    assert re.match(pattern, caplog.messages[-1]) and f"valid F1 {history[-1]['dev_f1']:.2f}," in caplog.messages[-1]
    assert "F1 on dev" in (tmp_path / "run" / "progress.svg").read_text()
    assert "perplexity" not in written(tmp_path / "run") + caplog.text


def test_the_live_line_shows_losses_where_an_evaluation_alone_tells_the_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "run", progress=True)
    shown = capsys.readouterr().err
    assert re.search(r"train loss \d\.\d{3}, valid loss \d\.\d{3}, MAD intra", shown)
    assert (
        re.search(r"epoch 2 of 2: train loss \d\.\d{3}, valid F1 \d+\.\d\d, MAD", shown) and "perplexity" not in shown
    )


def test_an_estimate_takes_the_objective(tmp_path: Path) -> None:
    config = small(epochs=3)
    found = estimate_search(
        config, objective=lambda accelerator: parity.build(config, parity.read(config), accelerator)
    )
    assert (found.steps, found.finishing) == (5, "") and found.total_seconds > 0
    assert found.architecture_parameters == 15 and found.parameters == 2 * 6 + (2 * 6 + 2) + 4 * 6 * 12


class Scripted:
    """Evaluations in place of an objective's, one after the other."""

    def __init__(self, *found: tuple[float, float]) -> None:
        self.found = iter(found)

    def __call__(self) -> Evaluation:
        return Evaluation(*next(self.found))


def test_random_search_picks_the_highest_figure_whatever_the_losses_are(tmp_path: Path) -> None:
    config = small(strategy="random-shared", samples=3)
    objective = make_objective(
        config, make_accelerator("cpu", "float32"),
        make=lambda accelerator: parity.build(config, parity.read(config), accelerator),
    )  # fmt: skip
    strategy = make_strategy(objective, config)
    with patched(objective, "evaluate", Scripted((0.1, 40.0), (0.3, 80.0), (0.2, math.nan))):
        strategy.finish(False)
    scores: dict[int, float] = strategy.scores  # type: ignore[attr-defined]
    best = list(scores)[1]  # in the order in which they were evaluated
    assert strategy.end_epoch() == {"candidates": 3, "best_f1": 80.0}
    assert strategy.genotype() == CellSpace(config).draw(best)


def test_a_figure_that_is_no_number_is_null_and_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "flair_nas")
    with patched(parity.Parity, "evaluate", Scripted((0.5, math.nan), (0.4, 50.0))):
        result = run(tmp_path / "run")
    assert [line["dev_f1"] for line in result.history] == [None, 50.0]
    assert "valid F1 nan," in caplog.messages[0] and "valid F1 50.00," in caplog.messages[1]


# --- a strategy and an objective more ---


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
(CLIMBING,) = [code for code in re.findall(r"^```python\n(.*?)^```$", ARCHITECTURE, re.M | re.S) if "Climbing" in code]
(CLIMBING_LINE,) = re.findall(r'its line is `("climbing": .*?)`', ARCHITECTURE)


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a copy of the package that has a strategy and an objective more: a file and a line each."""
    folder = tmp_path_factory.mktemp("extended")
    package = folder / "flair_nas"
    shutil.copytree(ROOT / "flair_nas", package, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "resources").symlink_to(ROOT / "resources")
    (package / "search" / "strategies" / "climbing.py").write_text(CLIMBING)
    shutil.copy(parity.__file__, package / "search" / "objectives" / "parity.py")
    for name, table, line in (
        ("registry", "STRATEGIES", CLIMBING_LINE),
        ("tasks", "TASKS", '"parity": ("parity", "config:SearchConfig"),'),
    ):
        text = (package / "search" / f"{name}.py").read_text()
        assert text.count(f"{table} = {{\n") == 1
        changed = text.replace(f"{table} = {{\n", f"{table} = {{\n    {line}\n")
        (package / "search" / f"{name}.py").write_text(changed)
    yield folder


def command(extended: Path, *words: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(extended), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    line = [sys.executable, "-m", "flair_nas", "search", *map(str, words)]
    return subprocess.run(line, cwd=extended, env=environment, capture_output=True, text=True, timeout=300)


FLAGS = "--objective parity --strategy climbing --hidden-size 6 --nodes 2 --batch-size 8 --learning-rate 1 --device cpu"


@pytest.mark.slow
def test_help_knows_them_and_a_contradiction_is_named_with_all_others(extended: Path) -> None:
    shown = command(extended, "--help").stdout
    assert "search strategy: climbing, gradient," in shown and "objective parity or text:" in shown
    assert "strategy climbing:\n  --stride N  " in shown
    refused = command(
        extended, *FLAGS.split(), *["--learn", "joint", "--batch-size", "9", "--parts", "2", "--out", "run"]
    )
    assert refused.returncode == 2 and refused.stdout == ""
    for words in ("history must be at least 1", "climbing searches cells: learn must be intra", "cannot be divided"):
        assert words in refused.stderr
    assert not (extended / "run").exists()


@pytest.mark.slow
def test_a_search_with_both(extended: Path) -> None:
    done = command(extended, *FLAGS.split(), "--stride", 2, "--epochs", 2, "--out", "run")
    assert done.returncode == 0, done.stderr
    assert re.search(r"epoch 2 of 2: train loss \d\.\d{3}, valid F1 \d+\.\d\d, \d+ s, ", done.stderr)
    assert re.search(r"epochs: 2, \d+ s; the supernet's valid F1 is \d+\.\d\d\n", done.stdout)
    assert "tag train" in done.stdout and "lm train" not in done.stdout  # there is no text
    out = extended / "run"
    assert "perplexity" not in written(out) + done.stdout + done.stderr
    settings = yaml.safe_load((out / "config.yaml").read_text())
    assert (settings["objective"], settings["strategy"]) == ("parity", "climbing")
    genotype = load_genotype(out / "genotype.json")
    assert genotype.origin["method"] == "climbing search, seed 1" and genotype.one_line() == done.stdout.splitlines()[0]
    assert command(extended, "--resume", "run", "--epochs", 3).returncode == 0
    assert len((out / "history.jsonl").read_text().splitlines()) == 3
