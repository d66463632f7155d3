"""flair-nas tag, as it is typed: what it prints, its exit codes, and how it stops and goes on."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import flair
import pytest
import torch
from flair.data import Sentence
from flair.models import SequenceTagger
from small_tagging import BATCHES, assert_same_run, at_batch, press_ctrl_c, write_corpus

from flair_nas.cli import main
from flair_nas.cli.tag import suggest_next
from flair_nas.errors import FlairNasError
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.search.config import SearchConfig
from flair_nas.settings.resolve import to_yaml
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tune.config import TuneConfig
from flair_nas.tune.tuning import tune_tagger

ROOT = Path(__file__).parents[2]
CAPTURE = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def process_state() -> Iterator[None]:
    """Puts back what the command sets for its whole process: the device and the log of Flair."""
    log, device = flair.logger, flair.device
    before = log.handlers, log.propagate, log.level
    yield
    flair.device = device
    log.handlers, log.propagate = before[:2]
    log.setLevel(before[2])


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def train_arguments(corpus: str, out: Path, **flags: object) -> list[str]:
    given: dict[str, object] = {
        "corpus": corpus, "rnn": "lstm", "embeddings": "one-hot", "hidden-size": 8, "batch-size": 8, "epochs": 3,
        "learning-rate": 1.0, "patience": 0, "locked-dropout": 0.2, "out": out,
    }  # fmt: skip
    given |= {name.replace("_", "-"): value for name, value in flags.items()}
    return ["tag", "train", "-q", *(f"--{name}={value}" for name, value in given.items())]


@pytest.fixture(scope="session")
def short_run(tmp_path_factory: pytest.TempPathFactory, corpus: str) -> Path:
    """Three epochs, never stopped."""
    out = tmp_path_factory.mktemp("short") / "run"
    assert main(train_arguments(corpus, out)) == 0
    return out


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, corpus: str) -> Path:
    """A run whose tagger makes no mistake on its corpus, so that what it prints is known."""
    out = tmp_path_factory.mktemp("model") / "run"
    assert main(train_arguments(corpus, out, epochs=25, patience=9, locked_dropout=0.0, hidden_size=16)) == 0
    return out


def printed(capsys: CAPTURE, *arguments: object) -> str:
    """What a command that succeeds prints; it says nothing on standard error."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 0
    found = capsys.readouterr()
    assert found.err == ""
    return found.out


def refused(capsys: CAPTURE, *arguments: object, code: int = 2) -> str:
    """What a command that fails says: one plain message on standard error, nothing on standard output."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == code
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("flair-nas: ") and "Traceback" not in found.err
    return found.err


def type_in(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text), encoding="utf-8"))


# Training.


def test_train_prints_the_table_of_metrics_and_nothing_else(corpus: str, tmp_path: Path, capfd: CAPTURE) -> None:
    out = printed(capfd, *train_arguments(corpus, tmp_path / "run", seeds="1,2", epochs=2))
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["seed", "dev", "F1", "test", "F1", "epochs", "best", "s/epoch"]
    for row, result in zip(rows[1:3], metrics["seeds"], strict=True):
        shown = [str(result["seed"]), f"{result['dev_f1']:.2f}", f"{result['test_f1']:.2f}", "2"]
        assert row[:5] == [*shown, str(result["best_epoch"])]
    for part in ("dev", "test"):
        mean, sd = (metrics["summary"][f"{part}_f1"][name] for name in ("mean", "sd"))
        assert f"{part} F1: {mean:.2f} ± {sd:.2f}" in out.splitlines()
    assert f"{metrics['parameters']:,} trained parameters" in out and "one seed" not in out
    assert f"flair-nas tag predict --model {tmp_path / 'run'} " in out


def test_a_tagger_that_finds_nothing_is_not_offered_for_use(corpus: str, tmp_path: Path, capsys: CAPTURE) -> None:
    run = tmp_path / "run"
    arguments = [*train_arguments(corpus, run, epochs=1, learning_rate=0.05), "--no-crf"]
    assert main([word for word in arguments if word != "-q"]) == 0
    out = capsys.readouterr().out
    assert "nothing was found on dev in any epoch" in out and "no use yet" in out
    assert f"(flair-nas tag train --resume {run} --epochs 2)" in out and "--embeddings that know words" in out
    assert "tag predict" not in out and "one seed" not in out
    assert "The tagger found nothing" in printed(capsys, "tag", "evaluate", "--model", run, "--corpus", corpus)
    assert main(["tag", "predict", "--model", str(run), ADA, "", OSLO]) == 0
    found = capsys.readouterr()
    assert found.out == f"{ADA}\n\n{OSLO}\n" and "nothing found in 2 sentences" in found.err
    assert printed(capsys, "tag", "predict", "-q", "--model", run, ADA) == f"{ADA}\n"


@pytest.mark.parametrize(
    ("epochs", "options", "said"),
    [
        ([(4, 4)], {}, "--resume run --epochs 8; --embeddings"),
        ([(4, 4), (4, 4)], {"embeddings": ["glove"]}, "--resume run --epochs 8"),
        ([(4, 4), (3, 4)], {}, None),  # one of two seeds has had enough
        ([(3, 3)], {}, None),  # its learning rate had become too small
        ([(4, 4)], {"train_with_dev": True}, None),  # the last one is taken in any case
    ],
)
def test_where_the_best_epoch_is_the_last_more_are_proposed(
    epochs: list[tuple[int, int]], options: dict[str, Any], said: str | None
) -> None:
    config = TaggerConfig(**{"corpus": "demo", "embeddings": ["one-hot", "char"], "epochs": 4, **options})
    seeds = [{"dev_f1": 30.0, "best_epoch": best, "epochs": of} for best, of in epochs]
    metrics = {"seeds": seeds, "measure": "micro F1", "model_seed": 1, "summary": {"test_f1": {}}}
    found = [line for line in suggest_next(metrics, config, Path("run")) if "the best epoch was the last" in line]
    assert [line.partition("tag train ")[2].partition(" that")[0] for line in found] == ([said] if said else [])


def test_quiet_stays_quiet_with_a_searched_cell_and_evaluation(corpus: str, tmp_path: Path, capfd: CAPTURE) -> None:
    run = tmp_path / "run"
    rnn = "i-darts-ptb,recurrent_dropout=0.25"
    out = printed(capfd, *train_arguments(corpus, run, epochs=1, rnn=rnn, embeddings="char", learning_rate=0.01))
    (line,) = (
        line for line in out.splitlines() if line.startswith("one seed: differences of several points can be chance")
    )
    assert "flair-nas tag train --resume " in line and line.endswith(" --seeds 1,2,3")
    report = json.loads(printed(capfd, "tag", "evaluate", "-q", "--json", "--model", run, "--corpus", corpus))
    assert report["flair"]["micro_f1"] == json.loads((run / "metrics.json").read_text())["seeds"][0]["test_f1"]


def test_flags_win_over_files_and_both_over_presets(corpus: str, tmp_path: Path, capsys: CAPTURE) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"corpus: {corpus}\nrnn: gru\nhidden_size: 4\nepochs: 9\nembeddings: [one-hot]\nseeds: [4]\n")
    arguments = ["--preset", "ess-ner", "--config", file, "--epochs", "1", "--no-crf", "--out", tmp_path / "run"]
    printed(capsys, "tag", "train", "-q", *arguments)
    written = (tmp_path / "run" / "config.yaml").read_text()
    for line in ("rnn: gru", "hidden_size: 4", "epochs: 1", "crf: false", "batch_size: 24", "train_with_dev: true"):
        assert line in written.splitlines()
    assert (tmp_path / "run" / "seed-4" / "model.pt").is_file()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--corpus", "demo"], "--out DIR is needed"),
        (["--corpus", "dmo", "--out", "{tmp}/run"], "unknown corpus 'dmo': did you mean demo"),
        (
            ["--preset", "ess", "--out", "{tmp}/run"],
            "unknown preset 'ess'; did you mean ess-ner? there are ess-chunk",
        ),
        (["--config", "{tmp}/none.yaml", "--out", "{tmp}/run"], "none.yaml: cannot read"),
        (["--rnn", "lstmm", "--out", "{tmp}/run"], "Did you mean LSTM"),
        (["--rnn", "lstm,recurrent_dropout=0.1", "--out", "{tmp}/run"], "lstm"),
        (["--embeddings", "word:{tmp}/none", "--out", "{tmp}/run"], "none does not exist"),
        (["--epochs", "0", "--dropout", "1", "--out", "{tmp}/run"], "epochs must be a whole number from 1"),
        (["--epochs", "0", "--dropout", "1", "--out", "{tmp}/run"], "dropout must be a number from 0 to 0.99, got 1.0"),
        (["--seeds=-1", "--out", "{tmp}/run"], "seeds"),
        (["--device", "cuda:99", "--out", "{tmp}/run"], "cuda:99"),
        (["--device", "bogus", "--out", "{tmp}/run"], "bogus"),
        (["--out", "{tmp}"], "is not empty"),
        (["--out", "{tmp}/taken"], "is a file"),
        (["--out", "{tmp}/taken/run"], "cannot write to the folder"),
        (["--resume", "{tmp}"], "holds no run to go on with"),
        (["--resume", "{tmp}/none"], "none holds no run to go on with (there is no such folder)"),
        (["--corpus", "demo", "--out", "{tmp}/run", "--rnn", "{tmp}"], "no genotype.json in the folder {tmp}."),
        (["--corpus", "demo", "--out", "{tmp}/run", "--seeds", "1", "2"], "'2'; separate several numbers by commas"),
        (["--resume", "{tmp}/taken"], "holds no run to go on with"),
    ],
)  # fmt: skip
def test_train_refuses_what_it_cannot_use(tmp_path: Path, capsys: CAPTURE, arguments: list[str], expected: str) -> None:
    (tmp_path / "taken").write_text("mine")
    error = refused(capsys, "tag", "train", "-q", *(argument.format(tmp=tmp_path) for argument in arguments))
    assert expected.replace("{tmp}", str(tmp_path)) in error
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.parametrize(
    "arguments",
    [["train", "--epochs", "many"], ["train", "--seeds", "1,b"], ["evaluate"],
     ["evaluate", "--model", "m", "--corpus", "demo", "--file", "f"], ["predict", "--model", "m", "--format", "xml"]],
)  # fmt: skip
def test_misspelt_commands_exit_with_2(capsys: CAPTURE, arguments: list[str]) -> None:
    assert main(["tag", *arguments]) == 2
    assert f"flair-nas tag {arguments[0]} --help tells more" in capsys.readouterr().err


# Stopping and going on.


def test_resume_takes_settings_from_the_run(short_run: Path, tmp_path: Path, capsys: CAPTURE) -> None:
    run = tmp_path / "run"
    shutil.copytree(short_run, run)
    assert "dev F1" in printed(capsys, "tag", "train", "-q", "--resume", run)
    assert_same_run(run, short_run)
    error = refused(capsys, "tag", "train", "--resume", run, "--out", tmp_path, "--preset", "ess-ner")
    assert "drop --out, --preset" in error
    error = refused(capsys, "tag", "train", "--resume", run, "--hidden-size", "9", "--rnn", "gru")
    assert "hidden_size was 8 and is now 9" in error and "rnn was 'lstm' and is now 'gru'" in error
    for name in ("checkpoint.pt", "checkpoint-previous.pt"):
        checkpoint = run / "seed-1" / name
        checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    error = refused(capsys, "tag", "train", "-q", "--resume", run, "--epochs", "4")
    assert f"{checkpoint}: this checkpoint cannot be read" in error


def test_ctrl_c_exits_with_130_and_says_how_to_go_on(
    corpus: str, short_run: Path, tmp_path: Path, capsys: CAPTURE
) -> None:
    run = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        at_batch(patch, BATCHES + 2, press_ctrl_c)
        error = refused(capsys, *train_arguments(corpus, run), code=130)
    assert "stopped in epoch 2 of 3 (seed 1)" in error
    (advice,) = re.findall(r"go on with: flair-nas (.*)\n", error)
    printed(capsys, *advice.split(), "-q")
    assert_same_run(run, short_run)


# Evaluating.


@pytest.mark.slow
def test_evaluate_gives_the_figures_of_the_run(model: Path, corpus: str, tmp_path: Path, capsys: CAPTURE) -> None:
    (result,) = json.loads((model / "metrics.json").read_text())["seeds"]
    file = tmp_path / "predictions.txt"
    for part in ("dev", "test"):
        arguments = ["--corpus", corpus, "--part", part, "--predictions", file]
        out = printed(capsys, "tag", "evaluate", "--model", model, *arguments)
        assert f"by seqeval (strict) and by Flair: {result[f'{part}_f1']:.2f}" in out and "label set: LOC, PER" in out
        assert re.match(rf"{part} of {re.escape(corpus)}: \d+ sentences\n", out)
        assert file.read_bytes() == (model / "seed-1" / f"{part}.txt").read_bytes()
    for own in (model, model / "model.pt", model / "seed-1", model / "seed-1" / "model.pt"):
        assert printed(capsys, "tag", "evaluate", "--model", own) == out  # the corpus of the run, its test part
    for arguments in (["--columns", "text=0,pos=1,ner=2"], []):  # the last column is the label by default
        one = [*arguments, "--file", f"{corpus}/test.txt", "--json"]
        report = json.loads(printed(capsys, "tag", "evaluate", "--model", model / "model.pt", *one))
        assert report == result["reports"]["test"]


def test_evaluate_refuses_what_it_cannot_use(model: Path, corpus: str, tmp_path: Path, capsys: CAPTURE) -> None:
    shutil.copytree(corpus, untested := tmp_path / "untested")
    (untested / "test.txt").unlink()
    unlabelled = tmp_path / "unlabelled.txt"
    unlabelled.write_text("London NNP O\n")
    columns = ["--columns", "text=0,ner=2"]
    for arguments, expected in (
        (["--corpus", untested], "has no test part"),
        (["--file", tmp_path / "none.txt", *columns], "none.txt cannot be read"),
        (["--file", unlabelled, *columns], "no sentence has the label type 'ner'"),
        (["--file", f"{corpus}/test.txt", "--columns", "text=0,ner=7"], "there is no column 7"),
        (["--corpus", corpus, "--batch-size", "0"], "--batch-size must be at least 1"),
        (["--corpus", corpus, "--device", "bogus"], "bogus"),
    ):
        assert expected in refused(capsys, "tag", "evaluate", "--model", model, *arguments)
    shutil.copy(model / "model.pt", alone := tmp_path / "alone.pt")
    needed = f"--corpus or --file is needed: {alone} has no settings"
    assert needed in refused(capsys, "tag", "evaluate", "--model", alone)
    assert "no test part; --part takes train, dev" in refused(
        capsys, "tag", "evaluate", "--model", model, "--corpus", untested
    )
    shutil.copytree(model, moved := tmp_path / "moved")
    settings = (moved / "config.yaml").read_text().replace(corpus, "gone")
    (moved / "config.yaml").write_text(settings)
    error = refused(capsys, "tag", "evaluate", "--model", moved)
    assert "unknown corpus 'gone'" in error and "(as the run has it; --corpus says another)" in error
    error = refused(capsys, "tag", "evaluate", "--model", model, "--corpus", corpus, "--predictions",
                    tmp_path / "none" / "file.txt", code=1)  # fmt: skip
    assert str(tmp_path / "none") in error


# Predicting.

ADA = "Ada Byron saw London ."
OSLO = "In Oslo , Grace Hopper sang ."


def test_predict_puts_spans_in_brackets(model: Path, capsys: CAPTURE) -> None:
    out = printed(capsys, "tag", "predict", "--model", model, ADA, "In Oslo, Grace Hopper sang.", "")
    assert out == "[PER Ada Byron] saw [LOC London] .\nIn [LOC Oslo], [PER Grace Hopper] sang.\n\n"


def test_predict_writes_columns_that_read_back(model: Path, corpus: str, tmp_path: Path, capsys: CAPTURE) -> None:
    out = printed(capsys, "tag", "predict", "--model", model, "--format", "columns", ADA, "", "good")
    ada = "Ada\tB-PER\nByron\tI-PER\nsaw\tO\nLondon\tB-LOC\n.\tO\n\n"
    assert out.startswith(ada + "\n") and len(out.splitlines()) == len(ada.splitlines()) + 1 + 2
    (file := tmp_path / "tagged.txt").write_text(ada)
    report = printed(capsys, "tag", "evaluate", "--model", model, "--file", file, "--columns", "text=0,ner=1")
    assert report.rstrip().endswith("100.00")


def test_predict_writes_json_whose_places_are_right(
    model: Path, tmp_path: Path, capsys: CAPTURE, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [
        ADA,
        "",
        "  Zoë 🦆 saw  New York ,\tŁódź and e\u0301t\u00e9 .  ",
        "\ufeffIn Oslo , Alan sang .\r",
        "   ",
        OSLO,
    ]
    (file := tmp_path / "notes.txt").write_text("\n".join(written) + "\n", encoding="utf-8", newline="")
    out = printed(capsys, "tag", "predict", "--model", model, "--format", "jsonl", "--text", file, "--batch-size", 2)
    type_in(monkeypatch, file.read_bytes())
    assert printed(capsys, "tag", "predict", "--model", model, "--format", "jsonl") == out
    type_in(monkeypatch, file.read_bytes().rstrip(b"\n"))  # the last line needs no end
    assert printed(capsys, "tag", "predict", "--model", model, "--format", "jsonl", "--text", "-") == out

    tagger = SequenceTagger.load(model / "model.pt")
    objects = [json.loads(line) for line in out.splitlines()]
    assert [o["text"] for o in objects] == [text.rstrip("\r") for text in written]
    for o, text in zip(objects, written, strict=True):
        assert all(o["text"][label["start"] : label["end"]] == label["text"] for label in o["labels"])
        assert all(0 <= label["score"] <= 1 for label in o["labels"])
        if text.strip():
            tagger.predict(sentence := Sentence(text.strip()))
            assert o["tokens"] == [token.text for token in sentence]
            spans = [(span.text, span.get_label("ner").value) for span in sentence.get_spans("ner")]
            assert [(label["text"], label["label"]) for label in o["labels"]] == spans
    assert [label["text"] for label in objects[-1]["labels"]] == ["Oslo", "Grace Hopper"]
    assert any(label["text"] == "New York" for label in objects[2]["labels"])
    assert [objects[at] for at in (1, 4)] == [{"text": text, "tokens": [], "labels": []} for text in ("", "   ")]


def test_tokenized_text_is_split_at_spaces_alone(model: Path, capsys: CAPTURE) -> None:
    text = "Ada Byron saw London. don't"
    for flags, tokens in (
        (["--tokenized"], ["Ada", "Byron", "saw", "London.", "don't"]),
        ([], [token.text for token in Sentence(text)]),
    ):
        out = printed(capsys, "tag", "predict", "--model", model, "--format", "jsonl", *flags, text)
        assert json.loads(out)["tokens"] == tokens


def test_labels_below_a_probability_are_left_out(model: Path, capsys: CAPTURE) -> None:
    def labels(*flags: object) -> list[dict[str, Any]]:
        out = printed(capsys, "tag", "predict", "-q", "--model", model, "--format", "jsonl", *flags, ADA)
        found: list[dict[str, Any]] = json.loads(out)["labels"]
        return found

    everything = labels()
    middle = sorted(label["score"] for label in everything)[1]
    assert len(everything) > 1 and labels("--at-least", 0) == everything and labels("--at-least", 1) == []
    assert labels("--at-least", middle) == [label for label in everything if label["score"] >= middle]
    assert main(["tag", "predict", "--model", str(model), "--at-least", "1", ADA]) == 0
    assert "nothing found in 1 sentence with a probability of 1 or more" in capsys.readouterr().err
    wrong = refused(capsys, "tag", "predict", "--model", model, "--at-least", 80, ADA)
    assert "--at-least must be at least 0 and at most 1, got '80'" in wrong


def test_calibration_is_stored_in_all_files_and_told(model: Path, corpus: str, tmp_path: Path, capsys: CAPTURE) -> None:
    run = tmp_path / "run"
    shutil.copytree(model, run)
    before = printed(capsys, "tag", "predict", "--model", run, "--format", "jsonl", ADA)
    assert main(["tag", "evaluate", "--model", str(run), "--calibration"]) == 0
    found = capsys.readouterr()
    assert re.search(r"temperature [\d.]+, fitted on dev; expected calibration error of \d+ labels", found.out)
    assert f"{run} now has these scores; its labels are as before" in found.out
    assert "mostly chance" in found.err
    after = printed(capsys, "tag", "predict", "--model", run, "--format", "jsonl", ADA)
    (run / "model.safetensors").unlink()
    (run / "config.json").unlink()
    assert printed(capsys, "tag", "predict", "--model", run, "--format", "jsonl", ADA) == after
    old, new = (json.loads(text)["labels"] for text in (before, after))
    assert [label["text"] for label in new] == [label["text"] for label in old]
    assert all(one["score"] != other["score"] for one, other in zip(new, old, strict=True))
    figures = json.loads(printed(capsys, "tag", "evaluate", "-q", "--model", run, "--json", "--calibration"))
    assert figures["calibration"]["part"] == "test" and len(figures["calibration"]["after"]["bins"]) > 1
    flags = ("tag", "evaluate", "--calibration", "--model")
    assert "needs the dev part of a corpus" in refused(capsys, *flags, run, "--file", Path(corpus) / "test.txt")
    assert "is not on this machine" in refused(capsys, *flags, "hf://owner/name")


@pytest.mark.slow
@pytest.mark.usefixtures("bfloat16")
def test_bfloat16_changes_scores_a_little(model: Path, corpus: str, capsys: CAPTURE) -> None:
    def labels(precision: str) -> list[dict[str, Any]]:
        flags = ("--precision", precision, "--format", "jsonl")
        found: list[dict[str, Any]] = json.loads(printed(capsys, "tag", "predict", "--model", model, *flags, ADA))[
            "labels"
        ]
        return found

    exact, rounded = labels("float32"), labels("bfloat16")
    assert [label["text"] for label in rounded] == [label["text"] for label in exact]
    scores, other = ([label["score"] for label in found] for found in (exact, rounded))
    assert scores == pytest.approx(other, abs=0.05) and scores != other
    flags = ("--precision", "bfloat16", "--corpus", corpus)
    assert "micro avg" in printed(capsys, "tag", "evaluate", "--model", model, *flags)


def test_token_labels_are_predicted_too(corpus: str, tmp_path: Path, capsys: CAPTURE) -> None:
    run = tmp_path / "run"
    flags = {"columns": "text=0,pos=1", "label-type": "pos", "epochs": 20, "patience": 9, "locked-dropout": 0.0}
    printed(capsys, *train_arguments(corpus, run, **flags))
    out = printed(capsys, "tag", "predict", "--model", run, "--format", "columns", ADA)
    assert out == "Ada\tNNP\nByron\tNNP\nsaw\tVBD\nLondon\tNNP\n.\t.\n\n"
    labels = json.loads(printed(capsys, "tag", "predict", "--model", run, "--format", "jsonl", ADA))["labels"]
    assert [(label["text"], label["label"]) for label in labels][:3] == [
        ("Ada", "NNP"),
        ("Byron", "NNP"),
        ("saw", "VBD"),
    ]
    evaluated = printed(capsys, "tag", "evaluate", "--model", run, "--corpus", corpus, "--columns", "text=0,pos=1")
    assert "NNP" in evaluated and "accuracy" in evaluated


def test_predict_refuses_what_it_cannot_use(
    model: Path, tmp_path: Path, capsys: CAPTURE, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "notes.txt").write_text("good\n")
    for name in ("bare", "begun", "search", "lm"):
        (tmp_path / name).mkdir()
    bare, begun, search, lm = (tmp_path / name for name in ("bare", "begun", "search", "lm"))
    (lm / "config.yaml").write_text("text: demo\nrnn: lstm\nhidden_size: 4\n")
    torch.save({"format": "another"}, lm / "model.pt")
    (search / "checkpoint.pt").write_bytes(b"")
    (begun / "config.yaml").write_text("corpus: demo\n")
    (search / "config.yaml").write_text("strategy: darts\n")
    for arguments, expected in (
        (["--model", model, "--text", file, "good"], "not both"),
        (["--model", model, "good", file], f"{str(file)!r} is a file: --text {file} tags its lines"),
        (["--model", model, "--text", tmp_path / "none.txt"], "none.txt: no such file"),
        (["--model", model, "--batch-size", "0", "good"], "--batch-size must be at least 1"),
        (["--model", tmp_path / "none", "good"], "none: there is no such model; give the folder"),
        (["--model", bare, "good"], "no model.pt in this folder; is its training finished?"),
        (["--model", begun, "good"], f"not finished; flair-nas tag train --resume {begun} goes on"),
        (["--model", lm, "good"], "lm: this is no tagger; its folder is a run of flair-nas lm train"),
        (["--model", search, "good"], "no model.pt in this folder; its folder is a run of flair-nas search"),
    ):
        assert expected in refused(capsys, "tag", "predict", *arguments)
    type_in(monkeypatch, b"good\n\nna\xefve\n")
    assert main(["tag", "predict", "--model", str(model), "--batch-size", "1"]) == 2
    assert "standard input:3: not UTF-8" in capsys.readouterr().err
    file.write_bytes("Müller\n".encode() + b"gr\xfc\xdf\xe9\n" + b"good\n")
    message = refused(capsys, "tag", "predict", "--model", model, "--text", file)
    assert f"{file}:2: not UTF-8 (byte 0xfc), broken lines: 2" in message and "iconv -c" in message
    type_in(monkeypatch, file.read_bytes())
    assert "iconv -c" in refused(capsys, "tag", "predict", "--model", model)  # LATIN1 would change the first line


def test_a_file_that_is_no_whole_tagger_is_refused(model: Path, tmp_path: Path, capsys: CAPTURE) -> None:
    whole = (model / "model.pt").read_bytes()
    for content in (b"", b"no model", whole[:1000], whole[: len(whole) // 2], whole[:-1]):
        (file := tmp_path / "damaged.pt").write_bytes(content)
        assert f"{file}: not a whole tagger file" in refused(capsys, "tag", "predict", "--model", file, "good")
        assert file.read_bytes() == content
    torch.save({"weights": torch.zeros(2)}, file)
    for other in (file, model / "seed-1" / "checkpoint.pt"):
        assert f"{other}: not a whole tagger file" in refused(capsys, "tag", "predict", "--model", other, "good")


def test_empty_input_gives_empty_output(model: Path, capsys: CAPTURE, monkeypatch: pytest.MonkeyPatch) -> None:
    type_in(monkeypatch, b"")
    assert printed(capsys, "tag", "predict", "--model", model) == ""


def test_ctrl_c_while_predicting_exits_with_130(model: Path, capsys: CAPTURE, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequenceTagger, "predict", press_ctrl_c)
    refused(capsys, "tag", "predict", "--model", model, ADA, code=130)


@pytest.mark.slow
def test_evaluate_takes_the_columns_of_the_run(
    corpus: str, tmp_path: Path, capsys: CAPTURE, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "corpus"
    folder.mkdir()
    for part in ("train", "dev", "test"):  # with a column after the label
        rows = (Path(corpus) / f"{part}.txt").read_text(encoding="utf-8").splitlines()
        (folder / f"{part}.txt").write_text(
            "\n".join(f"{row} x" if row else "" for row in rows) + "\n", encoding="utf-8"
        )
    label = len(next(row for row in rows if row).split()) - 1
    run = tmp_path / "run"
    printed(capsys, *train_arguments(str(folder), run, epochs=1, columns=f"text=0,ner={label}"))
    capsys.readouterr()
    for source in (["--corpus", folder], ["--corpus", "~/corpus"], ["--file", folder / "test.txt"]):
        assert "by seqeval (strict)" in printed(capsys, "tag", "evaluate", "--model", run, *source)
    (other := tmp_path / "other.txt").write_text("Ada B-PER\nsaw O\n", encoding="utf-8")
    error = refused(capsys, "tag", "evaluate", "--model", run, "--file", other)
    assert f"there is no column {label} (ner)" in error and f"columns text=0,ner={label}, as the tagger" in error
    assert "--columns says others" in error
    (alone := tmp_path / "alone").mkdir()
    (alone / "test.txt").write_text("Ada x x B-PER\n", encoding="utf-8")
    error = refused(capsys, "tag", "evaluate", "--model", run, "--corpus", alone)
    assert "no file has 'train' in its name" in error
    error = refused(capsys, "tag", "evaluate", "--model", run, "--file", other, "--columns", "text=0,ner=2")
    assert "there is no column 2" in error and "as the tagger" not in error
    out = printed(capsys, "tag", "evaluate", "--model", run, "--file", other, "--columns", "text=0,ner=1")
    assert out.startswith(f"{other}: 1 sentence\n") and "by seqeval (strict)" in out


def test_files_are_read_as_in_training_with_the_names_of_flair_too(tmp_path: Path, capsys: CAPTURE) -> None:
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.txt").write_text("% a note\nNew York|B-LOC\nsaw|O\n\nAda|B-PER\n", encoding="utf-8")
    how = {"column-delimiter": "|", "comment-symbol": "%"}
    printed(capsys, *train_arguments(str(tmp_path), run := tmp_path / "run", epochs=1, **how))
    evaluate = ("tag", "evaluate", "-q", "--model", run)
    assert "label set: LOC, PER" in printed(capsys, *evaluate)
    assert (run / "seed-1" / "test.txt").read_text().startswith("New York\tB-LOC\t")
    (other := tmp_path / "other.txt").write_text("New York;B-LOC\n! a note\n", encoding="utf-8")
    given = ["--file", other, "--delimiter", ";", "--comment", "!"]
    assert "label set: LOC\n" in printed(capsys, *evaluate, *given)
    assert "no label column" in refused(capsys, *evaluate, "--file", other, "--delimiter", "|")


def test_a_known_corpus_has_its_own_columns_whatever_the_run_had(
    corpus: str, tmp_path: Path, capsys: CAPTURE, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed(capsys, *train_arguments(corpus, run := tmp_path / "run", epochs=1, columns="text=0,ner=2"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()  # a folder of that name is not meant
    arguments = ["--model", run, "--corpus", "demo", "-q"]
    assert "label set: EVENT, LOC, ORG, PER" in printed(capsys, "tag", "evaluate", *arguments)


def test_a_folder_with_other_model_files_names_them(model: Path, tmp_path: Path, capsys: CAPTURE) -> None:
    shutil.copy(model / "model.pt", tmp_path / "final-model.pt")
    error = refused(capsys, "tag", "predict", "--model", tmp_path, ADA)
    assert "it holds final-model.pt: give the file itself" in error


def error_of(first: type[BaseException], second: BaseException, how: str) -> Callable[..., None]:
    """A function in which one error leads to another: as its cause, in its handling, or hidden by `from None`."""

    def raising(*_: object) -> None:
        try:
            raise first("first")
        except first as error:
            if how == "cause":
                raise second from error
            if how == "other cause":
                raise second from ValueError("unrelated")
            if how == "hidden":
                raise second from None
            raise second  # noqa: B904 - a context without a cause

    return raising


@pytest.mark.parametrize(
    ("first", "second", "how", "code", "said"),
    [
        (KeyboardInterrupt, ImportError("could not import a module"), "cause", 130, "stopped"),
        (KeyboardInterrupt, FlairNasError("bad"), "handling", 130, "stopped"),
        (KeyboardInterrupt, FlairNasError("bad"), "hidden", 2, "bad"),
        (KeyboardInterrupt, FlairNasError("bad"), "other cause", 2, "bad"),
        (ValueError, FlairNasError("bad"), "handling", 2, "bad"),
        (KeyboardInterrupt, OSError(28, "No space left", "model.pt"), "handling", 1, "model.pt: No space left"),
        (KeyboardInterrupt, OSError(28, "No space left", "model.pt"), "cause", 1, "model.pt: No space left"),
        (ValueError, KeyboardInterrupt("stopped in epoch 3"), "handling", 130, "stopped in epoch 3"),
    ],
)  # fmt: skip
def test_what_an_error_came_from_decides_what_is_said(
    capsys: CAPTURE, monkeypatch: pytest.MonkeyPatch, first: type[BaseException], second: BaseException, how: str,
    code: int, said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr("flair_nas.cli.tag.quiet_flair", error_of(first, second, how))
    assert refused(capsys, "tag", "predict", "--model", ".", "text", code=code) == f"flair-nas: {said}\n"


@pytest.mark.parametrize(
    ("first", "how"), [(KeyboardInterrupt, "hidden"), (KeyboardInterrupt, "other cause"), (ValueError, "handling")]
)
def test_a_defect_is_not_taken_for_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, first: type[BaseException], how: str
) -> None:
    monkeypatch.setattr("flair_nas.cli.tag.quiet_flair", error_of(first, RuntimeError("a defect"), how))
    with pytest.raises(RuntimeError, match="a defect"):
        main(["tag", "predict", "--model", ".", "text"])


# What is said.


def test_a_terminal_without_the_sign_is_no_reason_to_fail(
    corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown := io.BytesIO(), encoding="ascii"))
    assert main(train_arguments(corpus, tmp_path / "run", seeds="1,2", epochs=1)) == 0
    sys.stdout.flush()
    assert b" \\xb1 " in shown.getvalue()


def test_a_folder_whose_name_is_like_a_flag_is_printed_so_that_it_can_be_pasted(
    corpus: str, tmp_path: Path, capsys: CAPTURE, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = printed(capsys, *train_arguments(corpus, Path("-x"), epochs=1))
    command = shlex.split(out.splitlines()[-1].removeprefix("next: flair-nas "))
    assert command[:3] == ["tag", "predict", "--model"]
    assert printed(capsys, *command)


def test_predictions_that_cannot_be_written_are_refused_before_the_model_is_read(
    corpus: str, tmp_path: Path, capsys: CAPTURE
) -> None:
    for path, words in ((tmp_path / "none" / "x", "No such file or directory"), (tmp_path, "Is a directory")):
        arguments = ("--model", tmp_path / "no model", "--corpus", corpus, "--predictions", path)
        assert refused(capsys, "tag", "evaluate", *arguments, code=1) == f"flair-nas: {path}: {words}\n"


@pytest.mark.parametrize("source", ["--corpus", "--file", "of the run"])
def test_predictions_replace_no_file_of_the_corpus(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "corpus" / "test.txt").parent.mkdir()
    file.write_text("Ada\tB-PER\n")
    (model := tmp_path / "run").mkdir()
    (model / "config.yaml").write_text(f"corpus: {file.parent}\n")
    chosen = {"--corpus": ["--corpus", str(file.parent)], "--file": ["--file", str(file)]}.get(source, [])
    arguments = ["--model", str(model), *chosen, "--predictions", str(file)]
    assert main(["tag", "evaluate", *arguments]) == 2
    assert f"--predictions {file} is the model or a file of the corpus; name another file" in capsys.readouterr().err
    assert file.read_text() == "Ada\tB-PER\n"


def test_predictions_replace_no_device_no_pipe_no_link_and_not_the_model(
    short_run: Path, corpus: str, tmp_path: Path, capsys: CAPTURE
) -> None:
    shutil.copytree(short_run, run := tmp_path / "run")
    evaluate = ("tag", "evaluate", "-q", "--model", run, "--corpus", corpus, "--predictions")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    for name in ("pipe", "device"):
        assert "no regular file" in refused(capsys, *evaluate, tmp_path / name, code=1)
    (tmp_path / "model").symlink_to(run / "model.pt")
    before = (run / "model.pt").read_bytes()
    for path in (run / "model.pt", tmp_path / "model"):
        assert "is the model or a file of the corpus" in refused(capsys, *evaluate, path)
    assert (run / "model.pt").read_bytes() == before and Path("/dev/null").is_char_device()
    (target := tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(target)
    printed(capsys, *evaluate, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and target.read_text().count("B-PER") > 0


def test_lines_are_answered_when_no_more_are_waiting(
    short_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURE
) -> None:
    """A program that asks line by line through a pipe waits for each answer."""
    shown = []

    class Pipe(io.RawIOBase):
        waiting = iter((f"{ADA}\n{OSLO}\n{ADA[:4]}", f"{ADA[4:]}\r\n", OSLO))

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            shown.append(capsys.readouterr().out.count("\n"))
            data = next(self.waiting, "").encode()
            buffer[: len(data)] = data
            return len(data)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Pipe()), encoding="utf-8"))
    assert main(["tag", "predict", "--model", str(short_run), "-q"]) == 0
    assert shown == [0, 2, 1, 0] and capsys.readouterr().out.count("\n") == 1


def test_bytes_that_are_no_text_are_refused(short_run: Path, tmp_path: Path, capsys: CAPTURE) -> None:
    assert "sentence 2, '\\udcff': not UTF-8" in refused(capsys, "tag", "predict", "--model", short_run, "a", "\udcff")
    assert "this is no file of text" in refused(capsys, "tag", "predict", "--model", short_run, "--text", tmp_path)


def test_flags_without_a_value_and_settings_of_another_kind_are_refused(
    short_run: Path, corpus: str, tmp_path: Path, capsys: CAPTURE
) -> None:
    from_run = ("tag", "evaluate", "--model", short_run)
    assert "cannot be read: Is a directory" in refused(capsys, *from_run, "--file=")
    refused(capsys, *from_run, "--corpus", corpus, "--predictions=", code=1)
    assert "at most 1,000,000" in refused(capsys, *from_run, "--corpus", corpus, "--batch-size", "9" * 30)
    shutil.copytree(short_run, run := tmp_path / "run")
    (run / "config.yaml").write_text("columns: 5\n")
    assert "columns must be text, got 5" in refused(capsys, "tag", "evaluate", "--model", run, "--corpus", corpus)


@pytest.mark.parametrize("verb", ["lm train", "search", "tune"])
def test_a_run_of_another_command_is_told_with_that_command(
    short_run: Path, capsys: CAPTURE, verb: str, corpus: str, tmp_path: Path
) -> None:
    error = refused(capsys, *verb.split(), "--resume", short_run)
    assert error == (
        f"flair-nas: {short_run} holds a run of flair-nas tag train; go on with: flair-nas tag train --resume "
        f"{short_run}\n"
    )
    (tmp_path / "config.yaml").write_text(
        to_yaml({"lm train": LanguageModelConfig, "search": SearchConfig, "tune": TuneConfig}[verb]())
    )
    assert f"holds a run of flair-nas {verb}" in refused(capsys, "tag", "train", "--resume", tmp_path)
    error = refused(capsys, *train_arguments(corpus, tmp_path))
    assert f"{tmp_path} holds no run to go on with, but one of another kind" in error and len(error) < 300
    with pytest.raises(FlairNasError, match="holds no tuning to go on with, but one of another kind"):
        tune_tagger(TuneConfig(corpus=corpus, embeddings=["one-hot"]), short_run)
