"""``flair-nas tune``: what it prints and leaves, how it is gone on with, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from full_disk import full_disk
from pool_jobs import run_jobs_here
from small_tagging import write_corpus

from flair_nas.cli import main
from flair_nas.experiments import tagging_task
from flair_nas.experiments.jobs import ProcessDiedError
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.prediction import load_tagger
from flair_nas.tagging.usage_script import flair_script

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(autouse=True)
def in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return run_jobs_here(monkeypatch, tmp_path)


def command(corpus: str, out: Path, *more: str) -> list[str]:
    small = "--embeddings one-hot --hidden-size 8 --batch-size 8 --learning-rate 1 --epochs 2 --seeds 1,2"
    few = "--vary layer --candidates tanh0-tanh1 --random 0 --trials 2 --fresh-seeds 2 --budget 1h --device cpu"
    return ["tune", "-q", "--corpus", corpus, "--out", str(out), *small.split(), *few.split(), *more]


def test_an_estimate_says_what_the_budget_is_enough_for_and_trains_nothing(
    corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tagging_task, "train", None)
    arguments = command(corpus, tmp_path / "run", "--estimate")
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "an epoch of the baseline takes about" in said and "within 1h: about 2 settings, 2 epochs at most" in said
    assert not (tmp_path / "run").exists()


def runs_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "ledger.json").read_text())["runs"]
    return found


def test_it_prints_the_report_and_the_next_command(
    corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr("flair_nas.tune.answer.SURE", 0.0)  # nothing is left open
    assert main(command(corpus, out)) == 0
    said = capsys.readouterr()
    report = (out / "report.md").read_text()
    assert said.err == "" and said.out.startswith(report.partition("## All settings")[0])
    assert f"flair-nas tag predict --model {out} " in said.out
    verdict = report.split("**")[1]
    summary, _, last = said.out.splitlines()[-3:]
    assert summary == verdict and last == f"report: flair-nas report {out}"
    for words in (
        "# Settings for",
        "tanh0-tanh1",
        "with a probability of",
        "ms a sentence",
    ):
        assert words in report
    assert (out / "model.safetensors").exists() and (out / "config.json").exists()  # as of any training
    assert main(["tag", "predict", "-q", "--model", str(out), "Ada"]) == 0
    assert main(["tag", "evaluate", "-q", "--model", str(out), "--corpus", corpus]) == 0
    capsys.readouterr()
    before = runs_of(out)
    more = ["--candidates", "tanh0-tanh1", "gru", "--trials", "3", "--budget", "2h"]
    assert main(["tune", "-q", "--resume", str(out), *more]) == 0
    assert set(runs_of(out)) > set(before) and "| gru-" in (out / "report.md").read_text()
    assert all(runs_of(out)[name] == run for name, run in before.items())


def test_the_script_of_the_report_trains_such_a_tagger(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    more = ["--epochs", "1", "--seeds", "1", "--fresh-seeds", "1", "--columns", "text=0,ner=1", "--word-dropout", "0"]
    training = ["--patience", "2", "--clip", "1.5"]
    main(
        command(corpus, tmp_path / "run", "--rnn", "tanh0-relu1", "--layers", "2", "--reproject", "6", *more, *training)
    )
    (script,) = re.findall("```python\n(.*?)```", (tmp_path / "run" / "report.md").read_text(), re.DOTALL)
    for words in ("columns={0: 'text', 1: 'ner'}", "Width(6)", "patience=2, max_grad_norm=1.5"):
        assert words in script
    names: dict[str, Any] = {}
    exec(script, names)
    own, found = names["tagger"], load_tagger(tmp_path / "run")
    assert {name: weight.shape for name, weight in own.state_dict().items()} == {
        name: weight.shape for name, weight in found.state_dict().items()
    }
    script = flair_script(TaggerConfig(columns="", label_type="", precision="bfloat16", rnn="gru"))
    assert "load_corpus('demo')" in "".join(script) and script[0].startswith("# in float32")
    warm = flair_script(TaggerConfig(optimizer="adamw", learning_rate=0.001, warmup_steps=9))
    assert warm[0] == "# without the warm-up of 9 steps that the figures above have"
    assert "from torch.optim import AdamW" in warm and warm[-1].endswith("max_epochs=100, optimizer=AdamW)")
    assert own.use_word_dropout == 0 and (tmp_path / "tagger" / "final-model.pt").exists()


def test_what_a_selection_says_of_its_corpus(corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "corpus"
    write_corpus(folder)
    dev = folder / "dev.txt"
    dev.write_text(dev.read_text().replace("PER", "ORG"))
    (folder / "test.txt").unlink()
    arguments = command(str(folder), tmp_path / "run", "--epochs", "1", "--seeds", "1", "--fresh-seeds", "1")
    assert main([word for word in arguments if word != "-q"]) == 0
    said = capsys.readouterr()
    assert "ORG occurs in dev and not in train" in said.err and "labels in all: which settings" in said.err
    assert re.search(r"- dev has \d+ labels in all: .* is mostly chance", (tmp_path / "run/report.md").read_text())
    assert "There is no test part: these figures are of dev, which chose" in said.out
    assert "**Undecided, so keep the baseline: one seed of each does not tell which is better" in said.out
    more = f"flair-nas tune --resume {tmp_path / 'run'} --fresh-seeds 10 --budget 120m"
    assert f"next: keep the baseline, or: {more}" in said.out


def test_a_process_that_died_is_tried_again_by_the_next_call(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train, out = tagging_task.train, tmp_path / "run"

    def dying(settings: dict[str, Any], *rest: Any) -> dict[str, Any]:
        if settings["rnn"] != "lstm":
            raise ProcessDiedError("its process has died 2 times; is there memory enough?")
        return train(settings, *rest)

    monkeypatch.setattr(tagging_task, "train", dying)
    assert main(command(corpus, out)) == 0
    assert "**Keep the baseline: no other settings came to the end.**" in capsys.readouterr().out
    assert "its process has died" in (out / "report.md").read_text()
    monkeypatch.setattr(tagging_task, "train", train)
    assert main(["tune", "-q", "--resume", str(out)]) == 0
    assert "its process has died" not in (out / "report.md").read_text()
    assert not any("error" in run for run in runs_of(out).values())


def test_a_disk_that_is_full_for_a_process_ends_it_and_it_goes_on(
    corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    arguments = [sys.executable, "-m", "flair_nas", *command(corpus, out, "--epochs", "1", "--workers", "1")]
    with full_disk(9_000):
        ended = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    line = ended.stderr.splitlines()[-1]
    assert re.search(rf"{out}/runs/\S+-seed1/\S+: no room to write this file", line) and "free some disk space" in line
    assert not list(out.rglob("*.part"))
    assert main(["tune", "-q", "--resume", str(out)]) == 0 and (out / "report.md").exists()


def test_without_ray_its_engine_says_what_to_install_and_leaves_nothing(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # what is None is not imported
    out = tmp_path / "run"
    assert main(command(corpus, out, "--engine", "ray")) == 2
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "flair-nas: engine ray needs Ray, which is not installed: pip install 'flair-nas[ray]', or leave --engine out"
    ]
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--candidates", "gru,darts-v2"], "separate candidates by blanks, not by commas: gru darts-v2"),
        (["--budget", "soon"], "budget must be a time above 0 with its unit, such as 90m"),
        (["--budget", "-5m"], "budget must be a time above 0 with its unit, such as 90m, 2h or 1.5h, got '-5m'"),
        (["--budget", "0.01s"], "the budget of 0.01s is too small: an epoch of the baseline takes about"),
        (["--train-with-dev"], "train_with_dev must be left out"),
        (["--vary", "layer,rate"], "vary has no part layer,rate"),
        (["--candidates", "i-dart"], "i-dart"),
        (["--embeddings", "word:none.gensim"], "none.gensim does not exist"),
        (["--preset", "none"], "unknown preset 'none'"),
    ],
)
def test_what_cannot_be_used_is_refused(
    more: list[str], message: str, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(corpus, tmp_path / "run", *more)) == 2
    assert message in capsys.readouterr().err


def test_the_former_verb_names_the_new_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", "--corpus", "demo"]) == 2
    assert "flair-nas select is now flair-nas tune --vary layer rate" in capsys.readouterr().err
