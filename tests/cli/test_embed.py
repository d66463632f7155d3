"""The command `flair-nas embed`, from raw text to a tagger that is exported."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_embedding import write_raw

from flair_nas.cli import main
from flair_nas.onnx import Tagger

SMALL = ["--width=8", "--rows=64", "--epochs=1", "--hidden-size=8", "--character-epochs=1", "--device=cpu"]


def test_from_raw_text_to_an_exported_tagger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    raw = write_raw(tmp_path / "raw.txt")
    assert main(["embed", "train", "--text", raw, *SMALL, "--estimate"]) == 0
    said = capsys.readouterr().out
    assert "word vectors: epochs 1, about" in said and "two character models: epochs 1 each, about" in said
    assert main(["embed", "train", "--text", raw, *SMALL, "--out", "mine"]) == 0
    said, told = capsys.readouterr()
    assert "raw: lines 400, words " in told and "next: --embeddings mine" in said and "width 8" in said
    assert said.count("bits per character on held-out lines") == 2
    assert main(["embed", "train", "--resume", "mine"]) == 0
    assert "mine is finished, so nothing was trained" in capsys.readouterr().err
    tag = ["tag", "train", "-q", "--corpus=demo", "--epochs=1", "--hidden-size=4", "--device=cpu", "--out=runs"]
    assert main([*tag, "--embeddings", "mine", "char"]) == 0
    assert main(["tag", "export", "-q", "--model=runs", "--out=exported", "--check=demo"]) == 0
    assert Tagger("exported").given == {}
    assert main(["charlm", "train", "--resume", "mine"]) == 2
    assert "a run of flair-nas embed train" in capsys.readouterr().err
    assert main(["embed", "train", "--text", raw, "--preset=small", "--out=other"]) == 2
    assert "--preset" in capsys.readouterr().err
