"""Exported taggers from elsewhere: whatever is damaged, one plain error names it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flair
import numpy as np
import pytest
from flair.data import Dictionary
from flair.embeddings import CharacterEmbeddings, FlairEmbeddings, OneHotEmbeddings, StackedEmbeddings
from flair.models import LanguageModel, SequenceTagger

from flair_nas import FlairNasError
from flair_nas.onnx import Tagger, export_tagger
from flair_nas.storage.files import hash_file

Damage = Callable[[Path, dict[str, Any]], object]
TABLE, CHARACTERS, LANGUAGE_MODEL = 2, 0, 1
"""Places of the embeddings, whose files are called by these numbers."""


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


def at(path: str, value: Any) -> Damage:
    """Set a setting, named by its keys with dots between."""
    *keys, last = path.split(".")

    def damage(_: Path, settings: dict[str, Any]) -> None:
        part: Any = settings
        for key in keys:
            part = part[int(key) if isinstance(part, list) else key]
        part[last] = value

    return damage


def replace(name: str, make: Callable[[Path], object]) -> Damage:
    """Make something else of a file, and list it with its checksum if it is one."""

    def damage(folder: Path, settings: dict[str, Any]) -> None:
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        make(folder / name)
        if not (folder / name).exists():
            (folder / name).write_bytes(content[: len(content) // 2])
        if (folder / name).is_file():
            settings["files"][name] = hash_file(folder / name)

    return damage


def outside(key: str, place: int) -> Damage:
    """Name a file outside the folder, which is listed."""

    def damage(folder: Path, settings: dict[str, Any]) -> None:
        file = folder / settings["embeddings"][place][key]
        shutil.copy(file, folder.parent / "outside")
        settings["embeddings"][place][key] = "../outside"
        settings["files"]["../outside"] = hash_file(folder.parent / "outside")

    return damage


def copied(source: str) -> Callable[[Path], object]:
    return lambda path: shutil.copy(path.parent / source, path)


def saved(*shape: int, dtype: str = "float32") -> Callable[[Path], object]:
    return lambda path: np.save(path.open("wb"), np.zeros(shape, dtype))


DAMAGES: dict[str, tuple[Damage, str]] = {
    "not a version": (at("version", [1]), r"version \[1\] is not known"),
    "label type": (at("label_type", 3), "label_type must be a text, got 3"),
    "tags in a text": (at("tags", "O"), "tags must be a list of texts, got 'O'"),
    "tags are numbers": (at("tags", [1, 2]), "tags must be a list of texts"),
    "one tag less": (at("tags", ["O"]), r"crf .* are no two of its 1 tags"),
    "spans": (at("spans", "yes"), "spans must be true or false, got 'yes'"),
    "crf": (at("crf", [1]), "crf must be null or the numbers of two tags"),
    "crf of truth": (at("crf", [True, False]), "crf must be null or the numbers of two tags"),
    "crf outside": (at("crf", [0, 99]), r"crf \[0, 99\] are no two of its"),
    "width is true": (at("width", True), "width must be a whole number above 0, got True"),
    "other width": (at("width", 12), "width is 12, and the embeddings have 11"),
    "no embeddings": (at("embeddings", []), "embeddings must be a list of objects"),
    "embeddings of texts": (at("embeddings", ["table"]), "embeddings must be a list of objects"),
    "files": (at("files", ["tagger.onnx"]), "files must be checksums by file"),
    "a checksum": (at("files", {"tagger.onnx": 1}), "files must be checksums by file"),
    "nothing listed": (at("files", {}), "embeddings, entry 1: model must be one of files"),
    "kind": (at("embeddings.2.kind", "pickle"), "entry 3: kind must be one of given, table, .* got 'pickle'"),
    "kind in a list": (at("embeddings.2.kind", []), "entry 3: kind must be one of"),
    "name": (at("embeddings.0.name", None), "entry 1: name must be a text"),
    "negative width": (at("embeddings.1.width", -4), "entry 2: width must be a whole number above 0"),
    "loose": (at("embeddings.2.loose", 1), "entry 3: loose must be true or false"),
    "no file": (at("embeddings.2.keys", None), "entry 3: keys must be one of files"),
    "a list of files": (at("embeddings.2.vectors", ["x"]), "entry 3: vectors must be one of files"),
    "not listed": (at("embeddings.2.vectors", "../vectors.npy"), "entry 3: vectors must be one of files"),
    "absolute": (at("embeddings.1.model", "/etc/hostname"), "entry 2: model must be one of files"),
    "characters": (at("embeddings.0.characters", {"a": "1"}), "entry 1: characters must be whole numbers"),
    "number of a character": (at("embeddings.0.characters", {"a": -1}), "entry 1: characters must be whole numbers"),
    "piece": (at("embeddings.1.chars_per_chunk", 0), "entry 2: chars_per_chunk must be a whole number above 0"),
    "direction": (at("embeddings.1.is_forward_lm", "no"), "entry 2: is_forward_lm must be true or false"),
    "start": (at("embeddings.1.start_marker", 0), "entry 2: start_marker must be a text"),
    "outside": (outside("vectors", TABLE), "'../outside' is no file of this folder"),
    "keys outside": (outside("keys", TABLE), "'../outside' is no file of this folder"),
    "model outside": (outside("model", CHARACTERS), "'../outside' is no file of this folder"),
    "the folder itself": (lambda _, settings: settings["files"].update({".": ""}), "'.' is no file of this folder"),
    "a name too long": (at("files." + "x" * 300, ""), "no such file"),
    "pipe": (replace("embeddings-2.npy", os.mkfifo), "embeddings-2.npy: no plain file"),
    "pipe of words": (replace("embeddings-2.json", os.mkfifo), "embeddings-2.json: no plain file"),
    "folder": (replace("embeddings-2.npy", os.mkdir), "embeddings-2.npy: no plain file"),
    "model is a folder": (replace("tagger.onnx", os.mkdir), "tagger.onnx: no plain file"),
    "cut table": (replace("embeddings-2.npy", lambda _: None), "embeddings-2.npy: this is no array"),
    "cut words": (replace("embeddings-2.json", lambda _: None), "embeddings-2.json: this is no list of words"),
    "words of numbers": (replace("embeddings-2.json", lambda p: p.write_text("[1, 2]")), "no list of words"),
    "cut transitions": (replace("transitions.npy", lambda _: None), "transitions.npy: this is no array"),
    "cut model": (replace("tagger.onnx", lambda _: None), "tagger.onnx: onnxruntime cannot read it"),
    "empty table": (replace("embeddings-2.npy", lambda p: p.touch()), "embeddings-2.npy: this is no array"),
    "pickle": (
        replace("embeddings-2.npy", lambda p: np.save(p.open("wb"), np.array([{}]))),
        "embeddings-2.npy: this is no array",
    ),
    "narrow table": (replace("embeddings-2.npy", saved(12, 2)), r"must hold float32 \[\d+, 3\], got float32 \[12, 2\]"),
    "doubles": (replace("transitions.npy", saved(7, 7, dtype="float64")), "must hold float32"),
    "swapped transitions": (replace("transitions.npy", copied("embeddings-2.npy")), "transitions.npy: it must hold"),
    "swapped table": (replace("embeddings-2.npy", copied("transitions.npy")), "embeddings-2.npy: it must hold"),
    "swapped models": (replace("embeddings-0.onnx", copied("embeddings-1.onnx")), "embeddings-0.onnx: it is no model"),
    "swapped head": (replace("tagger.onnx", copied("embeddings-0.onnx")), "tagger.onnx: it is no model of this tagger"),
}


def missing() -> dict[str, tuple[Damage, str]]:
    """Each setting is left out once."""
    own = ("label_type", "tags", "spans", "crf", "width", "embeddings", "files")
    entries = {
        CHARACTERS: ("kind", "name", "width", "model", "characters"),
        LANGUAGE_MODEL: ("is_forward_lm", "with_whitespace", "tokenized_lm", "is_lower", "start_marker"),
        TABLE: ("keys", "vectors", "loose"),
    }
    found: dict[str, tuple[Damage, str]] = {}
    for key in own:
        found[key] = (lambda _, settings, key=key: settings.pop(key), f"tagger.json: {key} is missing")  # type: ignore[misc]
    for place, keys in entries.items():
        for key in keys:
            message = f"embeddings, entry {place + 1}: {key} is missing"
            found[f"{key} of {place}"] = (lambda _, s, p=place, key=key: s["embeddings"][p].pop(key), message)  # type: ignore[misc]
    return found


@pytest.mark.parametrize(("damage", "message"), [pytest.param(*v, id=k) for k, v in {**DAMAGES, **missing()}.items()])
def test_damage_is_named(damage: Damage, message: str, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    shutil.copytree(whole, folder)
    settings = json.loads((folder / "tagger.json").read_text())
    damage(folder, settings)
    (folder / "tagger.json").write_text(json.dumps(settings))
    with pytest.raises(FlairNasError, match=message) as raised:
        Tagger(folder)
    assert "\n" not in str(raised.value) and str(folder) in str(raised.value)


@pytest.mark.parametrize("text", ["", "[]", "null", "3", "[" * 100_000, '{"format": {}}', "\xff"])
def test_settings_that_are_none_are_named(text: str, whole: Path, tmp_path: Path) -> None:
    (tmp_path / "tagger.json").write_text(text, encoding="latin-1")
    with pytest.raises(FlairNasError, match="this is no exported tagger, or it is cut short"):
        Tagger(tmp_path)


def test_a_run_that_fails_names_the_model(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    shutil.copytree(whole, folder)
    settings = json.loads((folder / "tagger.json").read_text())
    settings["embeddings"][CHARACTERS]["characters"]["a"] = 99
    (folder / "tagger.json").write_text(json.dumps(settings))
    with pytest.raises(FlairNasError, match="embeddings-0.onnx: onnxruntime cannot run it"):
        Tagger(folder).predict("a")
