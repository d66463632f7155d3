"""What teachers say, written to a folder, and taggers that learn from it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flair.data import Sentence
from small_tagging import write_corpus

from flair_nas.errors import FlairNasError
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.distillation import targets as targets_module
from flair_nas.tagging.distillation.targets import ABOUT, describe_targets, read_lines, read_targets, write_targets
from flair_nas.tagging.distillation.teachers import annotate, describe_teacher, name_tags
from flair_nas.tagging.prediction import load_tagger
from flair_nas.tagging.training import train_taggers

LINES = ["Ada Byron saw London .", "", "It rained in Oslo", "Alan met Grace Hopper .", "a " * 300, "Oslo"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def settings(corpus: str, **changes: object) -> TaggerConfig:
    given: dict[str, object] = {
        "corpus": corpus, "rnn": "small-relu-tanh", "embeddings": ["one-hot"], "hidden_size": 8, "batch_size": 4,
        "epochs": 3, "learning_rate": 0.5, "device": "cpu",
    }  # fmt: skip
    return TaggerConfig(**{**given, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def teacher(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("teacher") / "run"
    train_taggers(settings(corpus, rnn="lstm", epochs=12), out, progress=False)
    return out


@pytest.fixture
def label(teacher: Path, tmp_path: Path) -> Callable[..., dict[str, object]]:
    """Label LINES in chunks of two sentences."""
    tagger = load_tagger(teacher)
    (tmp_path / "raw.txt").write_text("\n".join(LINES), encoding="utf-8")

    def write(folder: str = "taught", chunks: int = 9) -> dict[str, object]:
        left = [False] * chunks
        over = lambda: left.pop() if left else True  # noqa: E731
        return write_targets([tagger], str(tmp_path / "raw.txt"), name_tags(tagger), tmp_path / folder, is_over=over)

    return write


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets_module, "CHUNK", 2)


def test_a_text_is_labelled_read_and_its_odd_lines_are_told(
    label: Callable[..., dict[str, object]], teacher: Path, tmp_path: Path
) -> None:
    about = label()
    assert (about["lines"], about["empty"], about["long"], about["sentences"]) == (6, 1, 1, 4)
    words = describe_targets(about)
    assert "teachers have labelled 4 sentences" in words and "1 lines of more than 200 words are left out" in words
    assert label() == about  # nothing is done twice
    taught = read_targets(str(tmp_path / "taught"))
    found = {sentence.to_tokenized_string(): targets for sentence, targets in taught.sentences}
    assert sorted(found) == sorted([LINES[0], LINES[2], LINES[3], LINES[5]])
    tagger = load_tagger(teacher)
    again = [Sentence(line.split()) for line in found]
    for sentence, targets in zip(again, annotate([tagger], again, taught.names), strict=True):
        own = found[sentence.to_tokenized_string()]
        np.testing.assert_allclose(own.chances, targets.chances, atol=1e-6)
        assert (own.tags == targets.tags).all() and np.allclose(own.chances.sum(1), 1)
    assert describe_teacher(tagger, taught.names) == "has the labels of the corpus, and gives probabilities"
    other = describe_teacher(tagger, ["O", "S-PER", "S-WORK"])
    assert other == "has other tags, and gives its best ones: PER; LOC is not in the corpus and counts as O"


def test_labelling_goes_on_after_the_last_whole_file(
    label: Callable[..., dict[str, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = label()
    write = targets_module._write

    def stop_at_second(file: Path, *others: Any) -> None:
        if file.name == "00001.npz":
            raise KeyboardInterrupt
        write(file, *others)

    monkeypatch.setattr(targets_module, "_write", stop_at_second)
    with pytest.raises(KeyboardInterrupt):
        label("stopped")
    assert [file.name for file in (tmp_path / "stopped").iterdir()] == ["00000.npz"]
    monkeypatch.setattr(targets_module, "_write", write)
    (tmp_path / "raw.txt").write_text("another\n" + "\n".join(LINES), encoding="utf-8")
    with pytest.raises(FlairNasError, match="00000.npz: is of another text or teacher; give these back"):
        label("stopped")
    (tmp_path / "raw.txt").write_text("\n".join(LINES), encoding="utf-8")
    assert label("stopped") == whole
    assert label("stopped", chunks=0) == whole  # what is there needs no time
    part = label("part", chunks=1)
    assert not part["is_whole"] and "there was no time for the rest" in describe_targets(part)


def test_texts_and_folders_that_cannot_be_used_are_told(
    label: Callable[..., dict[str, object]], tmp_path: Path
) -> None:
    with pytest.raises(FlairNasError, match="there was no time to label a thousand sentences; raise --budget"):
        label("none", chunks=0)
    with pytest.raises(FlairNasError, match="there is no such file or folder"):
        next(read_lines(str(tmp_path / "missing.txt")))
    (tmp_path / "latin.txt").write_bytes(b"fine\nna\xefve\n")
    with pytest.raises(FlairNasError, match=r"latin.txt:2: not UTF-8"):
        list(read_lines(str(tmp_path / "latin.txt")))
    label()
    (file,) = (tmp_path / "taught").glob("00001.npz")
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    with pytest.raises(FlairNasError, match="00001.npz is missing or damaged; give it back, or label"):
        read_targets(str(tmp_path / "taught"))
    file.write_bytes(data)
    about = json.loads((tmp_path / "taught" / ABOUT).read_text())
    (tmp_path / "taught" / ABOUT).write_text(json.dumps(about | {"sentences": 5}))
    with pytest.raises(FlairNasError, match="no whole folder of labelled sentences"):
        read_targets(str(tmp_path / "taught"))


def test_a_weight_of_0_changes_nothing_and_another_does(
    label: Callable[..., dict[str, object]], corpus: str, tmp_path: Path
) -> None:
    label()
    taught = str(tmp_path / "taught")
    weights = []
    kinds = {"plain": {}, "zero": {"taught": taught, "taught_weight": 0.0}, "one": {"taught": taught}}
    for name, changes in kinds.items():
        train_taggers(settings(corpus, **changes), tmp_path / name, progress=False)
        weights.append(load_tagger(tmp_path / name).state_dict())
    same = [all(torch.equal(other[key], weights[0][key]) for key in weights[0]) for other in weights[1:]]
    assert same == [True, False]


def test_a_run_goes_on_as_one_that_was_never_stopped_and_refuses_other_targets(
    label: Callable[..., dict[str, object]], corpus: str, tmp_path: Path
) -> None:
    label()
    config = settings(corpus, taught=str(tmp_path / "taught"), taught_weight=0.5)
    train_taggers(config, tmp_path / "whole", progress=False)
    train_taggers(dataclasses.replace(config, epochs=1), tmp_path / "parts", progress=False)
    train_taggers(config, tmp_path / "parts", progress=False)
    whole, parts = (load_tagger(tmp_path / name / "seed-1" / "model.pt").state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(whole[key], parts[key]) for key in whole)
    (tmp_path / "raw.txt").write_text("Oslo .", encoding="utf-8")
    for file in (tmp_path / "taught").iterdir():
        file.unlink()
    label()
    with pytest.raises(FlairNasError, match="labelled sentences"):
        train_taggers(dataclasses.replace(config, epochs=5), tmp_path / "parts", progress=False)
