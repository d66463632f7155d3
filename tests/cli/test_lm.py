"""The command `flair-nas lm`, from text to figures."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import pytest

from flair_nas import LanguageModelConfig, evaluate_language_model, load_language_model, train_language_model
from flair_nas.cli import main
from flair_nas.settings.resolve import read_settings

SMALL = ["--hidden-size=8", "--batch-size=4", "--bptt=5", "--epochs=2", "--dropout=0.1", "--device=cpu"]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("text")
    lines = ["the cat sat on the mat", "a dog ran to the house", "the mat was red", "a cat ran"]
    for part, count in (("train", 20), ("valid", 3), ("test", 4)):
        (folder / f"{part}.txt").write_text("\n".join(lines * count) + "\n", encoding="utf-8")
    return str(folder)


@pytest.fixture(scope="module")
def runs(text: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two trained models, with a searched cell and an LSTM."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAIR_NAS_CACHE", str(folder / "cache"))
        for rnn in ("darts-v1", "lstm"):
            config = LanguageModelConfig(text, rnn=rnn, hidden_size=8, batch_size=4, bptt=5, epochs=2, device="cpu")
            train_language_model(config, folder / rnn, progress=False)
    return str(folder / "darts-v1"), str(folder / "lstm")


def test_train_prints_what_it_wrote_and_the_next_command(text, tmp_path, capsys) -> None:
    out = tmp_path / "run"
    assert main(["lm", "train", "--text", text, "--rnn", "darts-v1", "--out", str(out), *SMALL]) == 0
    printed = capsys.readouterr()
    metrics = json.loads((out / "metrics.json").read_text())
    assert (
        f"dev perplexity: {metrics['dev_perplexity']:.2f} ({metrics['dev_tokens']:,} tokens, 0.0 % of the words "
        "<unk>)" in printed.out
    )
    assert metrics["dev_unknown_share"] == metrics["test_unknown_share"] == 0
    assert "stands for" not in printed.err  # where there are none
    assert f"test perplexity: {metrics['test_perplexity']:.2f} (" in printed.out
    assert f"{metrics['parameters']:,} parameters, {metrics['rnn_parameters']:,} of them" in printed.out
    assert f"next: flair-nas lm evaluate --model {out} --text" in printed.out
    assert re.findall(r"^epoch \d of 2", printed.err, re.M) == ["epoch 1 of 2", "epoch 2 of 2"]


def test_quiet_says_nothing_but_the_results(text, tmp_path, capsys) -> None:
    command = ["lm", "train", "--text", text, "--out", str(tmp_path / "run"), "-q", *SMALL]
    assert main(command) == 0
    assert capsys.readouterr().err == ""


def test_settings_come_from_preset_then_file_then_flags_and_resume_goes_on(text, tmp_path, capsys) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("hidden_size: 8\nepochs: 9\nslowness: 1e-4\n")
    out = tmp_path / "run"
    command = ["lm", "train", "--preset", "ptb-small", "--config", str(file), "--text", text, "--out", str(out)]
    assert main([*command, *SMALL, "--epochs", "1"]) == 0
    settings = read_settings(out / "config.yaml", LanguageModelConfig)
    assert (settings["rnn"], settings["slowness"], settings["epochs"]) == ("gru", 1e-4, 1)
    assert main(["lm", "train", "--resume", str(out), "--epochs", "2"]) == 0
    assert len((out / "history.jsonl").read_text().splitlines()) == 2
    assert main(["lm", "train", "--resume", str(out), "--hidden-size", "9"]) == 2
    assert "hidden_size was 8 and is now 9" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "x"], "no text: give a folder with train and valid text"),
        (["--text", "x"], "--out DIR is needed"),
        (
            ["--text", "x", "--out", "y", "--preset", "ptb-smal"],
            r"unknown preset 'ptb-smal'; did you mean ptb-small\? there are char-small, darts-ptb, ",
        ),
        (["--text", "x", "--out", "y", "--rnn", "i-darts"], "unknown rnn 'i-darts'"),
        (["--text", "x", "--out", "y", "--dropout", "2", "--clip", "0"], "dropout must be .*; clip must be "),
    ],
)
def test_what_cannot_be_used_exits_with_2(tmp_path, monkeypatch, capsys, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["lm", "train", *arguments]) == 2
    assert re.search(f"^flair-nas: .*{message}", capsys.readouterr().err)


def test_evaluate_gives_the_exact_figure_and_says_when_it_is_not(text, runs, tmp_path, capsys) -> None:
    exact = evaluate_language_model(runs[0], text)
    assert main(["lm", "evaluate", "--model", runs[0], "--text", text]) == 0
    known = "0.0 % of the words <unk>"
    assert capsys.readouterr().out == f"test perplexity: {exact.perplexity:.2f} ({exact.tokens:,} tokens, {known})\n"
    assert main(["lm", "evaluate", "--model", runs[0], "--text", text, "--part", "valid", "--json"]) == 0
    valid = evaluate_language_model(load_language_model(runs[0]), text, part="valid")
    expected = {"part": "valid", **valid._asdict(), "batch_size": 1, "sentences": []}
    assert json.loads(capsys.readouterr().out) == expected
    assert main(["lm", "evaluate", "--model", runs[0], "--text", text, "--batch-size", "3"]) == 0
    assert "approximate: 3 columns" in capsys.readouterr().out
    file = tmp_path / "new.txt"
    file.write_text("the zebra sat\n")
    assert main(["lm", "evaluate", "--model", str(Path(runs[1]) / "model.pt"), "--text", str(file)]) == 0
    said = capsys.readouterr()
    assert re.fullmatch(r"perplexity: [\d.]+ \(4 tokens, 33\.3 % of the words <unk>\)\n", said.out)  # a file is no part
    assert "new: <unk> stands for 33.3 % of the words, so a low perplexity says little. Is the text in" in said.err


def test_by_sentence_prints_each_line_and_all_together(text, runs, capsys) -> None:
    score = evaluate_language_model(runs[0], text, by_sentence=True)
    assert main(["lm", "evaluate", "--model", runs[0], "--text", text, "--by-sentence"]) == 0
    *lines, whole = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        f"line {number}: perplexity: {sentence.perplexity:.2f} ({sentence.tokens} tokens)"
        for number, sentence in enumerate(score.sentences[:2], 1)
    ]
    assert len(lines) == 16 and whole.startswith(f"test perplexity: {score.perplexity:.2f} ({score.tokens} tokens, 0.0")
    assert whole.endswith("<unk>, each line by itself)")
    assert main(["lm", "evaluate", "--model", runs[0], "--text", text, "--by-sentence", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["perplexity"] == score.perplexity
    assert figures["sentences"] == [sentence._asdict() for sentence in score.sentences]
    assert main(["lm", "evaluate", "--model", runs[0], "--text", text, "--by-sentence", "--batch-size", "2"]) == 2
    assert "leave out batch_size, which is 2" in capsys.readouterr().err


def test_without_a_test_part_valid_is_taken_and_said(text, runs, tmp_path, capsys) -> None:
    folder = shutil.copytree(text, tmp_path / "text")
    (folder / "test.txt").unlink()
    assert main(["lm", "evaluate", "--model", runs[0], "--text", str(folder)]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("valid perplexity: ") and "has no test part; valid is used" in said.err
    assert main(["lm", "evaluate", "--model", runs[0], "--text", str(folder), "--part", "test"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "--model", "{0}", "--text", "nowhere"], "there is no such folder or file"),
        (["evaluate", "--model", "nowhere", "--text", "{text}"], "there is no such model"),
        (["evaluate", "--model", "{0}", "--text", "{text}", "--batch-size", "0"], "--batch-size must be at least 1"),
        (["evaluate", "--model", "{0}", "--text", "{text}", "--batch-size", "999"], "too few for an evaluation batch"),
        (["evaluate", "--model", "{0}", "--text", "{text}", "--device", "tpu0"], "device must be cpu, cuda or cuda:N"),
    ],
)
def test_bad_arguments_of_evaluate_exit_with_2(text, runs, capsys, arguments, message) -> None:
    assert main(["lm", *(argument.format(*runs, text=text) for argument in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_bits_per_character_are_printed_for_characters(tmp_path, capsys) -> None:
    settings = ["--unit", "char", "--hidden-size", "8", "--epochs", "1", "--batch-size", "4", "--dropout", "0"]
    assert main(["lm", "train", "-q", "--text", "demo", *settings, "--out", str(tmp_path / "run")]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    bits = f"{math.log2(metrics['dev_perplexity']):.3f} bits per character"
    assert f"{bits} ({metrics['dev_tokens']:,} tokens, 0.0 % of the characters <unk>" in capsys.readouterr().out
    assert main(["lm", "evaluate", "--model", str(tmp_path / "run"), "--text", "demo", "--part", "valid"]) == 0
    assert bits in capsys.readouterr().out
    cutoffs = ["--adaptive-cutoffs", "10", "--out", str(tmp_path / "other")]
    assert main(["lm", "train", "-q", "--text", "demo", "--unit", "char", *cutoffs]) == 2
    assert "adaptive_cutoffs are for the many types of words" in capsys.readouterr().err
