"""The command, its comparison of labels, and 8 bits."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path

import pytest
import torch
from flair.models import SequenceTagger
from full_disk import full_disk
from small_tagging import settings, write_corpus

from flair_nas import FlairNasError, load_corpus, load_tagger, train_taggers
from flair_nas.cli import main
from flair_nas.onnx import Tagger, check_export, export_tagger, quantize_tagger


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def run(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train_taggers(settings(corpus, rnn="small-relu-tanh", epochs=6), folder, progress=False)
    return folder


def test_the_command_writes_a_tagger_and_compares_it(
    run: Path, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["tag", "export", "--model", str(run), "--out", str(out), "--int8", "--check", corpus]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^int8: \d+ of \d+ labels depend on the batch \(32 or 1\)$", told, re.MULTILINE)
    rows = [line.split(" | ") for line in told.splitlines() if line.startswith("|")]
    assert [row[0] for row in rows] == ["| 6 sentences", "| ---", "| PyTorch", "| onnxruntime", "| int8"]
    assert rows[2][1:4] == rows[3][1:4] and int(rows[2][1]) > 5 and rows[3][2] == "0.0 %"
    found = Tagger(out).predict("Ada Byron saw London")[0]
    assert found["tokens"] == ["Ada", "Byron", "saw", "London"] and found["labels"]


def test_the_first_label_that_differs_is_shown(run: Path, corpus: str, tmp_path: Path) -> None:
    tagger = load_tagger(run)
    export_tagger(tagger, tmp_path)
    sentences = list(load_corpus(corpus).corpus.dev)
    assert "| onnxruntime |" in check_export(tagger, tmp_path, sentences)
    with torch.no_grad():
        tagger.linear.bias[tagger.label_dictionary.get_idx_for_item("O")] += 100
    with pytest.raises(FlairNasError, match=r': sentence \d, ".*": the export alone finds (PER|LOC) [A-Z]'):
        check_export(tagger, tmp_path, sentences)


def test_eight_bits_are_smaller_and_warn_of_changed_labels(
    run: Path, corpus: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tagger = load_tagger(run)
    export_tagger(tagger, tmp_path)
    before = (tmp_path / "tagger.onnx").stat().st_size
    weight = next(tagger.rnn.parameters())
    with torch.no_grad():
        weight[0, 0] = 1e4  # one scale for the whole matrix: all else becomes 0
    export_tagger(tagger, tmp_path)
    caplog.set_level(logging.WARNING)
    table = check_export(tagger, tmp_path, list(load_corpus(corpus).corpus.dev), int8=True)
    assert "% of the labels; without --int8 they are the tagger's" in caplog.text and "| int8 |" in table
    assert [record.name for record in caplog.records] == ["flair_nas"]
    assert (tmp_path / "tagger.onnx").stat().st_size < before


def test_a_full_disk_leaves_the_earlier_export(run: Path, tmp_path: Path) -> None:
    tagger: SequenceTagger = load_tagger(run)
    out = tmp_path / "out"
    with full_disk(4000), pytest.raises(OSError, match="no room to write this file"):
        export_tagger(tagger, out)
    assert not out.exists()
    export_tagger(tagger, out)
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    for write in (lambda: export_tagger(tagger, out), lambda: quantize_tagger(out)):
        with full_disk(4000), pytest.raises((OSError, FlairNasError)):
            write()
        assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    assert Tagger(out).predict("Oslo")[0]["tokens"] == ["Oslo"]


def test_folders_may_be_given_as_text(run: Path, corpus: str, tmp_path: Path) -> None:
    tagger = load_tagger(str(run))
    export_tagger(tagger, str(tmp_path))
    quantize_tagger(str(tmp_path))
    assert json.loads((tmp_path / "tagger.json").read_text())["int8"] is True
    with pytest.raises(FlairNasError, match=r"is no exported tagger; export one with: flair-nas tag export"):
        quantize_tagger(str(run))
    export_tagger(tagger, str(tmp_path))
    assert "| int8 |" in check_export(tagger, str(tmp_path), list(load_corpus(corpus).corpus.dev), int8=True)


def test_bad_input_of_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*arguments: str) -> str:
        assert main(["tag", "export", *arguments]) == 2
        return capsys.readouterr().err

    assert "there is no such model" in refused("--model", str(tmp_path / "nothing"), "--out", str(tmp_path / "out"))
    assert "opset must be between 17" in refused("--model", str(run), "--out", str(tmp_path / "out"), "--opset", "9")
    (tmp_path / "empty").mkdir()
    assert "no model.pt" in refused("--model", str(tmp_path / "empty"), "--out", str(tmp_path / "out"))
    assert "is a file; name a folder" in refused("--model", str(run), "--out", str(run / "model.pt"))
    assert not (tmp_path / "out").exists()
    (tmp_path / "config.yaml").write_text("random_case: true\n")
    out = str(tmp_path / "out")
    message = "this is no tagger; its folder is a run of flair-nas charlm train"
    assert message in refused("--model", str(tmp_path), "--out", out)
    error = refused("--model", str(run), "--out", out, "--check", "conll_2000", "--data-root", str(tmp_path))
    assert "conll_2000" in error and "--file" not in error
    assert main(["tag", "export", "--model", str(run), "--out", out]) == 0
    assert main(["tag", "predict", "--model", out, "Oslo"]) == 2
    assert "is an exported tagger; flair_nas.onnx.Tagger runs it" in capsys.readouterr().err


def test_a_check_of_labels_of_another_kind_is_refused(run: Path, corpus: str, tmp_path: Path) -> None:
    tagger = load_tagger(run)
    export_tagger(tagger, tmp_path)
    tags = load_corpus(corpus, label_type="ner", columns={0: "text", 1: "ner"}).corpus
    with pytest.raises(FlairNasError, match="the labels of type 'ner' are of tokens"):
        check_export(tagger, tmp_path, list(tags.dev))


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named_with_what_installs_it(
    package: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("flair_nas.onnx.", f"{package}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["tag", "export", "--model", str(run), "--out", str(tmp_path / "out"), "--int8"]) == 2
    assert f"{package} is not installed; pip install onnx" in capsys.readouterr().err
