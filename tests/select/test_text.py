"""A selection on a text: small language models, in this process."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import write_text
from select_jobs import run_jobs_here

from flair_nas.cli import main
from flair_nas.errors import FlairNasError
from flair_nas.experiments import text_task
from flair_nas.experiments.counts import perplexity, unpack_counts
from flair_nas.experiments.statistics import compare
from flair_nas.language_model.evaluation import evaluate_language_model
from flair_nas.language_model.saved import load_language_model
from flair_nas.select import selection
from flair_nas.select.candidates import named_layers
from flair_nas.select.config import TextSelectConfig
from flair_nas.select.selection import select_layer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_text(tmp_path_factory.mktemp("text") / "text", train_lines=40, valid_lines=12)
    lines = (folder / "train.txt").read_text().splitlines(keepends=True)
    (folder / "test.txt").write_text("".join(lines[::3]))
    return str(folder)


@pytest.fixture(autouse=True)
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return run_jobs_here(monkeypatch, tmp_path)


def settings(text: str, **changes: Any) -> TextSelectConfig:
    given: dict[str, Any] = {
        "text": text, "hidden_size": 8, "batch_size": 4, "bptt": 8, "learning_rate": 5.0, "epochs": 4, "random": 1,
        "dropout": 0.1, "input_dropout": 0.1, "candidates": ["tanh0-tanh1"], "seeds": [1, 2], "rates": [1.0],
        "fresh_seeds": 1, "match": False, "workers": 1, "device": "cpu",
    }  # fmt: skip
    return TextSelectConfig(**(given | changes))


def test_the_best_layer_of_a_text(
    text: str, tmp_path: Path, jobs: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    found = select_layer(settings(text), out)
    ledger = json.loads((out / "ledger.json").read_text())
    winner, other = found.answer.winner, found.answer.other
    assert other is not None and found.answer.seeds == 1 and found.answer.part == "test"
    for scored in (winner, other):
        name = scored.candidate.name
        *chose, judge = [ledger["runs"][f"{name}-seed{seed}"] for seed in (1, 2, 3)]
        assert all(len(run["dev"]) == 4 and "counts" not in run for run in chose) and "counts" in judge
        assert scored.figure == pytest.approx(judge["test"], rel=1e-5) and scored.interval[0] < scored.figure
    assert "lstm" in {scored.candidate.layer.name for scored in (winner, other)}
    assert found.answer.probability is not None and found.answer.probability >= 0.5
    low, high = found.answer.interval or (1, -1)
    assert low <= other.figure - winner.figure <= high
    kept = next(scored for scored in (winner, other) if scored.candidate == found.recommended)
    assert kept.candidate.layer.name == "lstm"  # one seed each is undecided
    best = min((1, 2, 3), key=lambda seed: min(ledger["runs"][f"{kept.candidate.name}-seed{seed}"]["dev"]))
    of_seeds = {seed: out / "runs" / f"{kept.candidate.name}-seed{seed}" for seed in (best, 3)}
    assert (out / "model.pt").read_bytes() == (of_seeds[best] / "model.pt").read_bytes()
    saved = load_language_model(of_seeds[3])
    assert evaluate_language_model(saved, text).perplexity == pytest.approx(kept.figure, rel=1e-5)
    for words in (
        "# Recurrent layers for",
        "perplexity on test |",
        "| best valid perplexity |",
    ):
        assert words in found.report
    (command,) = re.findall(r"```sh\n(flair-nas lm train .*) --out runs/again\n```", found.report)
    assert main([*shlex.split(command)[1:], "-q", "--out", str(tmp_path / "again")]) == 0
    lines = (tmp_path / "again" / "history.jsonl").read_text().splitlines()
    again = [json.loads(line)["dev_perplexity"] for line in lines]
    assert again == json.loads((tmp_path / "out/ledger.json").read_text())["runs"][found.recommended.run(1)]["dev"]
    jobs.clear()
    assert main(["select", "-q", "--resume", str(out)]) == 0 and jobs == []
    more = f"flair-nas select --resume {out} --fresh-seeds 10 --budget 240m"
    assert f"next: keep lstm, or: {more}" in capsys.readouterr().out  # of one seed each
    monkeypatch.setattr("flair_nas.select.report.suggest_flags", lambda answer, config: "")
    assert main(["select", "-q", "--resume", str(out)]) == 0 and jobs == []
    assert f"next: flair-nas lm evaluate --model {out} --text {text}" in capsys.readouterr().out


def test_training_in_rungs_gives_what_one_training_gives(text: str, tmp_path: Path) -> None:
    config = settings(text)
    (layer,) = (layer for layer in named_layers(config) if layer.name == "tanh0-tanh1")
    one = config.one(rnn=layer.rnn, seed=3) | text_task.seeded(3)
    whole = text_task.train(one, str(tmp_path / "whole"), True)
    for epochs, score in [(1, False), (2, False), (4, False), (4, True)]:
        found = text_task.train({**one, "epochs": epochs}, str(tmp_path / "rungs"), score)
        assert len(found["dev"]) == epochs and ("test" in found) is score
    for name in ("dev", "dev_loss", "test", "counts", "parameters"):
        assert found[name] == whole[name], name
    exact = evaluate_language_model(load_language_model(tmp_path / "rungs"), text)
    assert exact.perplexity == pytest.approx(found["test"], rel=1e-5)


def test_the_losses_of_sentences() -> None:
    losses = np.array([1, 2, 3, 4, 5, 6], dtype=np.float32)
    ends = np.array([False, True, True, False, False, True])
    found = text_task.sum_sentence_losses(losses, ends)
    assert found.tolist() == [[3, 2], [3, 1], [15, 3]]
    assert text_task.sum_sentence_losses(losses[:5], ends[:5]).tolist() == [[3, 2], [3, 1], [9, 2]]
    assert float(perplexity(found.sum(0))) == pytest.approx(np.exp(21 / 6))
    twice = compare([found, found], [2 * found, 2 * found], perplexity)
    assert (twice.value, twice.probability) == (0, 0.5)  # twice the loss of twice the tokens


def test_a_text_without_a_test_part_is_judged_by_valid(tmp_path: Path) -> None:
    folder = write_text(tmp_path / "text", train_lines=40, valid_lines=12)
    found = select_layer(settings(str(folder), epochs=1, random=0, seeds=[1], candidates=["lstm"]), tmp_path / "out")
    _, run = json.loads((tmp_path / "out" / "ledger.json").read_text())["runs"].values()
    assert run["test"] is None and found.answer.part == "valid" and "these figures are of valid" in found.report
    of_valid = float(perplexity(unpack_counts(run["counts"]).sum(0)))
    (judge,) = (tmp_path / "out" / "runs").glob("*-seed2")
    exact = evaluate_language_model(load_language_model(judge), folder, part="valid")
    assert exact.perplexity == pytest.approx(of_valid, rel=1e-5)
    assert found.answer.winner.figure == pytest.approx(of_valid)


def test_other_data_are_refused_and_the_same_elsewhere_are_not(text: str, tmp_path: Path, jobs: list[str]) -> None:
    few: dict[str, Any] = {"epochs": 1, "random": 0, "seeds": [1]}
    select_layer(settings(text, **few), tmp_path / "out")
    jobs.clear()
    copy = shutil.copytree(text, tmp_path / "copy")
    select_layer(settings(str(copy), **few), tmp_path / "out")
    assert jobs == []
    lines = (copy / "valid.txt").read_text()
    (copy / "valid.txt").write_text(lines * 2)
    before = (tmp_path / "out" / "ledger.json").read_text()
    with pytest.raises(FlairNasError, match="its runs are on other data"):
        select_layer(settings(str(copy), **few), tmp_path / "out")
    assert (tmp_path / "out" / "ledger.json").read_text() == before and jobs == []


def test_a_cell_that_is_searched_on_the_text(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings(text, searches=["gdas"], search_epochs=1, random=0, epochs=1, seeds=[1])
    assert config.search("gdas")["sampling"] == "straight-through" and config.search("gdas")["text"] == text
    of_ess = settings(text, searches=["ess"]).search("ess")
    assert (of_ess["learn"], of_ess["history"], of_ess["text"]) == ("joint", 3, text)
    small = {"hidden_size": 8, "batch_size": 4, "bptt": 8, "nodes": 2}
    search = TextSelectConfig.search
    monkeypatch.setattr(TextSelectConfig, "search", lambda self, by: search(self, by) | small)
    assert "| found by gdas | 8 |" in select_layer(config, tmp_path / "gdas").report
    children = {**small, "child_steps": [5]}
    monkeypatch.setattr(TextSelectConfig, "search", lambda self, by: search(self, by) | children)
    config = settings(text, searches=["local-search"], search_epochs=1, random=0, epochs=1, seeds=[1])
    assert "| found by local-search | 8 |" in select_layer(config, tmp_path / "local").report


def test_tied_embeddings_are_as_wide_as_any_layer(text: str) -> None:
    assert settings(text, embedding_size=8).one(hidden_size=9)["embedding_size"] is None


def test_what_a_text_cannot_have_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FlairNasError, match="rnn"):
        named_layers(settings(text, candidates=["rnn"]))
    assert [layer.name for layer in named_layers(settings(text, candidates=[]))][:3] == ["lstm", "darts-v2", "gru"]
    for more, message in [
        (["--corpus", "demo"], "give --corpus or --text: taggers are compared on the one"),
        (["--budget", "soon"], "budget must be a time above 0 with its unit, such as 90m"),
        (["--candidates", "rnn"], "unknown rnn_type 'rnn'"),
    ]:
        assert main(["select", "-q", "--text", text, "--out", str(tmp_path / "out"), *more]) == 2
        assert message in capsys.readouterr().err
    assert main(["select", "-q", "--corpus", "demo", "--bptt", "5", "--out", str(tmp_path / "out")]) == 2
    assert "--bptt: only with language models (--text)" in capsys.readouterr().err
    assert main(["select", "-q", "--preset", "ptb-small", "--out", str(tmp_path / "out")]) == 2
    assert "no text" in capsys.readouterr().err


def test_a_preset_does_not_change_the_baseline(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def stop(config: TextSelectConfig, *_: Any, **__: Any) -> None:
        seen.append(config.rnn)
        raise FlairNasError("enough")

    monkeypatch.setattr(selection, "select_layer", stop)
    command = ["select", "-q", "--text", text, "--preset", "ptb-small", "--out", str(tmp_path / "out")]
    (tmp_path / "gates.yaml").write_text("rnn: ess-ptb\n")
    for more in ([], ["--rnn", "nao"], ["--config", str(tmp_path / "gates.yaml")]):
        assert main([*command, *more]) == 2
    assert seen == ["lstm", "nao", "ess-ptb"]
