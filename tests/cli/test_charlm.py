"""The command `flair-nas charlm`, from text to bits per character."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_character_model import write_text_folder

from flair_nas.cli import main

SMALL = ["--hidden-size=8", "--embedding-size=5", "--batch-size=4", "--bptt=11", "--learning-rate=2", "--device=cpu"]


def test_train_evaluate_and_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["charlm", "train", "--help"])
    assert "--min-count" in (help := capsys.readouterr().out) and "--lowercase" not in help
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text").mkdir()
    text, out = write_text_folder(tmp_path / "text"), tmp_path / "run"
    assert main(["charlm", "train", "--text", text, *SMALL, "--epochs=1", "--estimate"]) == 0
    assert "an epoch of 1 splits and" in capsys.readouterr().out and not out.exists()
    assert main(["charlm", "train", "-q", "--text", text, *SMALL, "--epochs=1", "--rnn=tanh0", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    figures = json.loads((out / "metrics.json").read_text())["forward"]
    assert f"test: {figures['test_bits']:.4f} bits per character ({figures['test_characters']:,} characters; " in said
    model = out / "forward" / "model.pt"
    assert f'next: FlairEmbeddings("{model}"), or --embeddings flair:{model}' in said
    assert main(["charlm", "train", "-q", "--resume", str(out), "--epochs=2", "--direction=both"]) == 0
    assert capsys.readouterr().out.count("epochs: 2, best on dev: 2") == 2

    weights = str(out / "backward" / "model.safetensors")
    assert main(["charlm", "evaluate", "--model", weights, "--text", text, "--batch-size=4", "--json"]) == 0
    score = json.loads(capsys.readouterr().out)
    expected = json.loads((out / "metrics.json").read_text())["backward"]
    assert score["bits"] == pytest.approx(expected["test_bits"]) and score["batch_size"] == 4
    tag = ["tag", "train", "-q", "--corpus=demo", "--epochs=1", "--hidden-size=4", "--device=cpu"]
    assert main([*tag, "--embeddings", f"flair:{model}", f"flair:{weights}", "--out", str(tmp_path / "tagger")]) == 0
    for path in (out, model):  # the models of one command in another
        assert main(["lm", "evaluate", "--model", str(path), "--text", text]) == 2
        assert "its folder is a run of flair-nas charlm train" in capsys.readouterr().err
    words = tmp_path / "words"
    assert main(["lm", "train", "-q", "--text", text, *SMALL[:1], *SMALL[2:4], "--epochs=1", "--out", str(words)]) == 0
    for path in (words, words / "model.pt"):
        assert main(["charlm", "evaluate", "--model", str(path), "--text", text]) == 2
        assert "flair-nas lm train" in capsys.readouterr().err
    assert main(["charlm", "evaluate", "--model", str(tmp_path / "no.pt"), "--text", text]) == 2
    assert "there is no such model" in capsys.readouterr().err
