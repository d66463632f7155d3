"""A tuning on a text: small language models, in this process."""

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
from pool_jobs import run_jobs_here

from flair_nas.cli import main
from flair_nas.errors import FlairNasError
from flair_nas.experiments import text_task
from flair_nas.experiments.counts import perplexity, unpack_counts
from flair_nas.experiments.statistics import compare
from flair_nas.language_model.evaluation import evaluate_language_model
from flair_nas.language_model.saved import load_language_model
from flair_nas.tune import tuning
from flair_nas.tune.config import TextTuneConfig
from flair_nas.tune.parts import list_layers
from flair_nas.tune.tuning import tune_language_model

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


def settings(text: str, **changes: Any) -> TextTuneConfig:
    given: dict[str, Any] = {
        "text": text, "hidden_size": 8, "batch_size": 4, "bptt": 8, "learning_rate": 5.0, "epochs": 4, "random": 1,
        "dropout": 0.1, "input_dropout": 0.1, "candidates": ["tanh0-tanh1"], "seeds": [1, 2], "fresh_seeds": 1,
        "vary": ["layer", "dropout"], "trials": 4, "sampler": "random", "workers": 1, "device": "cpu",
    }  # fmt: skip
    return TextTuneConfig(**(given | changes))


def test_the_best_settings_of_a_text(
    text: str, tmp_path: Path, jobs: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    found = tune_language_model(settings(text), out)
    ledger, answer = json.loads((out / "ledger.json").read_text()), found.answer
    assert len(ledger["points"]) == 4 and answer.judges == (3,) and answer.part == "test"
    assert answer.baseline is not None and answer.recommended == answer.baseline  # one seed each is undecided
    for judged in (answer.baseline, *answer.others):
        judge = ledger["runs"][judged.candidate.run(3)]
        assert judged.figure == pytest.approx(judge["test"], rel=1e-5) and judged.interval[0] < judged.figure
    best = answer.others[0]
    assert best.gain is not None and best.gain.value == pytest.approx(answer.baseline.figure - best.figure)
    name = found.recommended.name
    chosen = min((seed for seed in (1, 3)), key=lambda seed: min(ledger["runs"][f"{name}-seed{seed}"]["dev"]))
    assert (out / "model.pt").read_bytes() == (out / "runs" / f"{name}-seed{chosen}" / "model.pt").read_bytes()
    saved = load_language_model(out / "runs" / f"{name}-seed3")
    assert evaluate_language_model(saved, text).perplexity == pytest.approx(answer.baseline.figure, rel=1e-5)
    for words in ("# Settings for", "perplexity on test |", "| best valid perplexity |"):
        assert words in found.report
    (command,) = re.findall(r"```sh\n(flair-nas lm train .*) --out runs/again\n```", found.report)
    assert main([*shlex.split(command)[1:], "-q", "--out", str(tmp_path / "again")]) == 0
    lines = (tmp_path / "again" / "history.jsonl").read_text().splitlines()
    again = [json.loads(line)["dev_perplexity"] for line in lines]
    assert again == ledger["runs"][found.recommended.run(1)]["dev"]
    jobs.clear()
    assert main(["tune", "-q", "--resume", str(out)]) == 0 and jobs == []
    more = f"flair-nas tune --resume {out} --fresh-seeds 10 --budget 240m"
    assert f"next: keep the baseline, or: {more}" in capsys.readouterr().out  # of one seed each
    monkeypatch.setattr("flair_nas.tune.report.suggest_flags", lambda answer, config: "")
    assert main(["tune", "-q", "--resume", str(out)]) == 0 and jobs == []
    assert f"next: flair-nas lm evaluate --model {out} --text {text}" in capsys.readouterr().out


def test_training_in_rungs_gives_what_one_training_gives(text: str, tmp_path: Path) -> None:
    config = settings(text)
    one = config.run_settings({"rnn": "tanh0-tanh1"}) | text_task.seeded(3)
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
    found = tune_language_model(settings(str(folder), epochs=1, seeds=[1], trials=2), tmp_path / "out")
    run = json.loads((tmp_path / "out" / "ledger.json").read_text())["runs"][found.recommended.run(2)]
    assert run["test"] is None and found.answer.part == "valid" and "these figures are of valid" in found.report
    of_valid = float(perplexity(unpack_counts(run["counts"]).sum(0)))
    judge = tmp_path / "out" / "runs" / found.recommended.run(2)
    exact = evaluate_language_model(load_language_model(judge), folder, part="valid")
    assert exact.perplexity == pytest.approx(of_valid, rel=1e-5)
    assert found.answer.recommended.figure == pytest.approx(of_valid)


def test_other_data_are_refused_and_the_same_elsewhere_are_not(text: str, tmp_path: Path, jobs: list[str]) -> None:
    few: dict[str, Any] = {"epochs": 1, "trials": 2, "seeds": [1]}
    tune_language_model(settings(text, **few), tmp_path / "out")
    jobs.clear()
    copy = shutil.copytree(text, tmp_path / "copy")
    tune_language_model(settings(str(copy), **few), tmp_path / "out")
    assert jobs == []
    lines = (copy / "valid.txt").read_text()
    (copy / "valid.txt").write_text(lines * 2)
    before = (tmp_path / "out" / "ledger.json").read_text()
    with pytest.raises(FlairNasError, match="its runs are on other data"):
        tune_language_model(settings(str(copy), **few), tmp_path / "out")
    assert (tmp_path / "out" / "ledger.json").read_text() == before and jobs == []


def test_tied_embeddings_are_as_wide_as_any_layer(text: str) -> None:
    assert settings(text, embedding_size=8).run_settings({"hidden_size": 9})["embedding_size"] is None


def test_what_a_text_cannot_have_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FlairNasError, match="rnn"):
        list_layers(settings(text, candidates=["rnn"]))
    assert "rnn" not in list_layers(settings(text, candidates=[]))
    for more, message in [
        (["--corpus", "demo"], "give --corpus or --text: taggers are tuned on the one"),
        (["--budget", "soon"], "budget must be a time above 0 with its unit, such as 90m"),
        (["--candidates", "rnn"], "unknown rnn_type 'rnn'"),
    ]:
        assert main(["tune", "-q", "--text", text, "--out", str(tmp_path / "out"), *more]) == 2
        assert message in capsys.readouterr().err
    assert main(["tune", "-q", "--corpus", "demo", "--bptt", "5", "--out", str(tmp_path / "out")]) == 2
    assert "--bptt: only with language models (--text)" in capsys.readouterr().err
    assert main(["tune", "-q", "--preset", "ptb-small", "--out", str(tmp_path / "out")]) == 2
    assert "no text" in capsys.readouterr().err


def test_a_preset_does_not_change_the_baseline(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def stop(config: TextTuneConfig, *_: Any, **__: Any) -> None:
        seen.append(config.rnn)
        raise FlairNasError("enough")

    monkeypatch.setattr(tuning, "tune_language_model", stop)
    command = ["tune", "-q", "--text", text, "--preset", "ptb-small", "--out", str(tmp_path / "out")]
    (tmp_path / "gates.yaml").write_text("rnn: ess-ptb\n")
    for more in ([], ["--rnn", "nao"], ["--config", str(tmp_path / "gates.yaml")]):
        assert main([*command, *more]) == 2
    assert seen == ["lstm", "nao", "ess-ptb"]
