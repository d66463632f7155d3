"""Exported taggers whose folder is damaged: one plain error names the file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flair
import pytest
from flair.data import Dictionary
from flair.embeddings import CharacterEmbeddings, FlairEmbeddings, OneHotEmbeddings, StackedEmbeddings
from flair.models import LanguageModel, SequenceTagger

from flair_nas import FlairNasError
from flair_nas.onnx import Tagger, export_tagger
from flair_nas.storage.files import hash_file


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flair.set_seed(1)
    letters, labels = Dictionary(), Dictionary(add_unk=False)
    for letter in "\n abcdefg":
        letters.add_item(letter)
    labels.span_labels = True
    labels.add_item("PER")
    members = [
        CharacterEmbeddings(letters, 3, 2, name="a"),
        FlairEmbeddings(LanguageModel(letters, True, 4, 1, embedding_size=3), name="b"),
        OneHotEmbeddings(letters, embedding_length=3),
    ]
    folder = tmp_path_factory.mktemp("export")
    tagger = SequenceTagger(StackedEmbeddings(members), labels, "ner", hidden_size=4)
    assert export_tagger(tagger, folder) == []
    kinds = [entry["kind"] for entry in json.loads((folder / "tagger.json").read_text())["embeddings"]]
    assert kinds == ["characters", "language model", "table"]
    return folder


def copy_changed(whole: Path, folder: Path, change: Callable[[Any], object]) -> Path:
    """Copy an export to a folder, and change its settings there."""
    shutil.copytree(whole, folder)
    settings = json.loads((folder / "tagger.json").read_text())
    change(settings)
    (folder / "tagger.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize("name", ["tagger.onnx", "embeddings-0.onnx", "embeddings-2.json", "transitions.npy"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "is damaged, or of another export; copy the whole"),
        (lambda file: file.write_bytes(b""), "is damaged, or of another export; copy the whole"),
        (lambda file: shutil.copy(file.parent / "embeddings-2.npy", file), "is damaged, or of another export"),
        (lambda file: file.unlink(), "no such file; copy the whole folder"),
        (lambda file: (file.unlink(), file.mkdir()), "no such file; copy the whole folder"),
        (lambda file: (file.unlink(), os.mkfifo(file)), "no such file; copy the whole folder"),
    ],
    ids=["cut", "empty", "other", "missing", "folder", "pipe"],
)
def test_damage_is_named(
    name: str, damage: Callable[[Path], object], message: str, whole: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "export"
    shutil.copytree(whole, folder)
    damage(folder / name)
    with pytest.raises(FlairNasError, match=f"{name}: {message}") as raised:
        Tagger(folder)
    assert "\n" not in str(raised.value) and str(folder) in str(raised.value)


def test_a_model_that_onnxruntime_cannot_read_is_named(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    shutil.copytree(whole, folder)
    (folder / "tagger.onnx").write_bytes(b"of a later version")
    settings = json.loads((folder / "tagger.json").read_text())
    settings["files"]["tagger.onnx"] = hash_file(folder / "tagger.onnx")
    (folder / "tagger.json").write_text(json.dumps(settings))
    with pytest.raises(FlairNasError, match="tagger.onnx: onnxruntime cannot read it"):
        Tagger(folder)


@pytest.mark.parametrize("text", ["", "[]", "null", "3", "[" * 100_000, '{"format": {}}', "\xff"])
def test_settings_that_are_none_are_named(text: str, whole: Path, tmp_path: Path) -> None:
    (tmp_path / "tagger.json").write_text(text, encoding="latin-1")
    with pytest.raises(FlairNasError, match="this is no exported tagger, or it is cut short"):
        Tagger(tmp_path)


def test_a_run_that_fails_names_the_model(whole: Path, tmp_path: Path) -> None:
    folder = copy_changed(
        whole, tmp_path / "export", lambda settings: settings["embeddings"][0]["characters"].update(a=99)
    )
    with pytest.raises(FlairNasError, match="embeddings-0.onnx: onnxruntime cannot run it"):
        Tagger(folder).predict("a")


@pytest.mark.parametrize(
    "change",
    [
        lambda settings: settings.pop("files"),
        lambda settings: settings.pop("embeddings"),
        lambda settings: settings.update(files=["tagger.onnx"]),
        lambda settings: settings.update(embeddings=None),
        lambda settings: settings["embeddings"][0].update(kind="unknown", model=3),
        lambda settings: settings["embeddings"][1].pop("characters"),
        lambda settings: settings.pop("spans"),
        lambda settings: settings.pop("label_type"),
        lambda settings: settings.update(tags="OABC"),
        lambda settings: settings.update(crf=3),
    ],
    ids=["files", "embeddings", "list of files", "null", "kind", "characters", "spans", "label_type", "tags", "crf"],
)
def test_settings_that_do_not_fit_are_refused(change: Callable[[Any], object], whole: Path, tmp_path: Path) -> None:
    folder = copy_changed(whole, tmp_path / "export", change)
    with pytest.raises(FlairNasError, match="tagger.json: a setting is missing or of another type .*; export once"):
        Tagger(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda settings: settings.update(width=4), "width or crf does not fit"),
        (lambda settings: settings.update(embeddings=[]), "width or crf does not fit"),
        (lambda settings: settings.update(crf=[1]), "width or crf does not fit"),
        (lambda settings: settings.update(crf=[0, 99]), "width or crf does not fit"),
        (lambda settings: settings["files"].pop("tagger.onnx"), "'tagger.onnx' is not one of the files of this folder"),
        (lambda settings: settings["embeddings"][2].update(keys="/etc/hostname"), "is not one of the files of this"),
        (lambda settings: settings["files"].update({"../base.npy": "0"}), "is not one of the files of this folder"),
    ],
    ids=["width", "no embeddings", "one tag", "unknown tag", "not listed", "elsewhere", "above"],
)
def test_settings_that_contradict_are_refused(
    change: Callable[[Any], object], message: str, whole: Path, tmp_path: Path
) -> None:
    folder = copy_changed(whole, tmp_path / "export", change)
    with pytest.raises(FlairNasError, match=f"tagger.json: .*{message}.*; export once more"):
        Tagger(folder)
