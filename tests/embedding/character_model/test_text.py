"""Text of character models: splits, dictionaries, and texts that cannot be used."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from flair.data import Dictionary
from flair.embeddings import FlairEmbeddings
from flair.models import LanguageModel
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from flair_nas import FlairNasError
from flair_nas.embedding.character_model.config import CharacterModelConfig
from flair_nas.embedding.character_model.evaluation import evaluate_character_model, evaluate_columns
from flair_nas.embedding.character_model.text import Splits, load_characters
from flair_nas.language_model.text.corpus import END, UNKNOWN, TextCorpus, Vocabulary, load_text
from flair_nas.tagging.data.character_models import load_character_model, save_character_model

HEADERS = {
    b'\\"is_forward_lm\\": true': b'\\"is_forward_lm\\": null',
    b'\\"a\\", \\"b\\"]': b'\\"b\\", \\"a\\"]',
    b'\\"document_delimiter\\": \\"\\\\n': b'\\"document_delimiter\\": \\"\\\\t',
    b'"decoder.bias":{"dtype":"F32"': b'"decoder.bias":{"dtype":"I32"',
}
"""Parts of the header of a file of data, and others that it could be damaged to."""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path_factory.mktemp("cache")))


def corpus_of(lines: list[str]) -> TextCorpus:
    """Return a text of these lines in memory."""
    characters = (UNKNOWN, END, *sorted(set("".join(lines))))
    vocabulary = Vocabulary(characters, (0,) * len(characters))
    ids = np.array([vocabulary.index(c) for line in lines for c in [*line, END]], np.int32)
    return TextCorpus("t", vocabulary, ids, ids, None, "f", {"train": "t.txt"})


def dictionary_of(corpus: TextCorpus) -> Dictionary:
    """Return a dictionary of all characters of a text."""
    dictionary = Dictionary(add_unk=True)
    for word in ("\n", *corpus.vocabulary.words[2:]):
        dictionary.add_item(word)
    return dictionary


def read(splits: Splits, number: int, epoch: int, forward: bool = True) -> str:
    """Return a split as text."""
    ids = splits.columns(number, epoch, forward)[:, 0].tolist()
    return "".join(splits.dictionary.get_item_for_index(n) for n in ids)


LINE = st.text("abA B", min_size=0, max_size=8)


@settings(max_examples=60)
@given(st.lists(LINE, min_size=3, max_size=30).filter(lambda lines: any(lines)), st.integers(0, 3))
def test_an_epoch_has_every_line_once(lines: list[str], epoch: int) -> None:
    corpus = corpus_of(lines)
    config = CharacterModelConfig(text="t", batch_size=1, split_size=1000, random_case=False)
    config.split_size = max(map(len, lines)) + 12
    splits = Splits(corpus, dictionary_of(corpus), config)
    order = splits.order(epoch)
    assert sorted(order) == list(range(len(splits))) and order == splits.order(epoch)
    whole = "".join(read(splits, number, epoch) for number in order)
    assert sorted(whole.split("\n")[:-1]) == sorted(line for line in lines if line)
    assert [read(splits, n, epoch, False) for n in order] == [read(splits, n, epoch)[::-1] for n in order]


def test_lines_are_shuffled_anew_in_each_epoch() -> None:
    corpus = corpus_of([f"line {'abcdefghij'[n]}" for n in range(10)])
    splits = Splits(corpus, dictionary_of(corpus), CharacterModelConfig(text="t", batch_size=1))
    first, second = (read(splits, 0, epoch) for epoch in (0, 1))
    assert first != second and first == read(splits, 0, 0)


def test_one_line_in_a_hundred_is_in_lower_case_and_one_in_capitals() -> None:
    corpus = corpus_of(["aB"] * 10_000 + ["Ab"])
    splits = Splits(corpus, dictionary_of(corpus), CharacterModelConfig(text="t", batch_size=1))
    lines = read(splits, 0, 0).split("\n")
    assert 60 < lines.count("ab") < 140 and 60 < lines.count("AB") < 140


def test_a_line_that_is_longer_than_a_split_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a line\n" * 9 + "abc " * 1000)
    (tmp_path / "valid.txt").write_text("abc\n" * 10)
    corpus = load_text(tmp_path, unit="char")
    with pytest.raises(FlairNasError, match="/train.txt, line 10: longer than split_size = 2,000; break it into lines"):
        Splits(corpus, dictionary_of(corpus), CharacterModelConfig(text="t", split_size=2000))
    splits = Splits(corpus, dictionary_of(corpus), CharacterModelConfig(text="t", split_size=4001, batch_size=1))
    assert splits.bounds == [0, 9 * 7 + 4001]  # the nine lines before are joined with it


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda folder: (folder / "train" / "b").write_text(""), "train/b: the file is empty"),
        (lambda folder: (folder / "train" / "b").write_bytes(b"a\0b\n"), "train/b:1: a NUL byte"),
        (lambda folder: (folder / "train" / "a").unlink(), "the folder is empty"),
    ],
)
def test_bad_files_of_a_folder_are_named(write: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a").write_text("one\n")
    (tmp_path / "valid.txt").write_text("one\n")
    write(tmp_path)
    with pytest.raises(FlairNasError, match=message):
        load_text(tmp_path, unit="char")


def test_files_of_a_folder_are_read_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "split_1").write_text("two words")
    (tmp_path / "train" / "split_0").write_text("one\n")
    (tmp_path / "valid.txt").write_text("two\n")
    corpus = load_text(tmp_path)
    assert [corpus.vocabulary.words[n] for n in corpus.train] == ["one", END, "two", "words", END]


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    from flair.models import LanguageModel

    dictionary = Dictionary()
    for character in "\n ab":
        dictionary.add_item(character)
    model = LanguageModel(dictionary, True, 4, 1, embedding_size=3, recurrent_type="tanh0")
    save_character_model(model, tmp_path)
    for name, cut, message in (
        ("model.pt", 300, "is cut short or damaged, or no character language model"),
        ("model.safetensors", 300, "no safetensors file, or cut short"),
    ):
        (tmp_path / "cut").mkdir(exist_ok=True)
        path = tmp_path / "cut" / name
        path.write_bytes((tmp_path / name).read_bytes()[:cut])
        with pytest.raises(FlairNasError, match=message):
            load_character_model(path)
    state = torch.load(tmp_path / "model.pt", weights_only=False)
    torch.save(state, tmp_path / "old.pt", pickle_protocol=4, _use_new_zipfile_serialization=False)  # as Flair's are
    assert load_character_model(tmp_path / "old.pt").recurrent_type == model.recurrent_type
    (tmp_path / "list.txt").write_text("connected to a terminal\n")
    (tmp_path / "pickle.pt").write_bytes(b"cos\nmkdir\n(V" + str(tmp_path / "made").encode() + b"\ntR.")
    for name in ("list.txt", "pickle.pt"):
        config = CharacterModelConfig(text="demo", dictionary=str(tmp_path / name))
        with pytest.raises(FlairNasError, match=f"{name}: .*no character language model.*not written by torch.save"):
            load_characters(config, progress=False)
    assert not (tmp_path / "made").exists()
    with pytest.raises(FlairNasError, match="is a folder; give a file of a model, such as .*model.safetensors"):
        load_character_model(tmp_path)
    data = (tmp_path / "model.safetensors").read_bytes()
    assert rb"\"version\": 2," in data
    (tmp_path / "newer.safetensors").write_bytes(data.replace(rb"\"version\": 2,", rb"\"version\": 7,"))
    with pytest.raises(FlairNasError, match="version 7 is not known here"):
        load_character_model(tmp_path / "newer.safetensors")
    damaged = bytearray(data)
    damaged[-3] ^= 64
    (tmp_path / "damaged.safetensors").write_bytes(damaged)
    with pytest.raises(FlairNasError, match="is damaged, its checksum does not match"):
        load_character_model(tmp_path / "damaged.safetensors")
    for before, after in HEADERS.items():
        assert data.count(before) == 1 and len(before) == len(after)
        (tmp_path / "header.safetensors").write_bytes(data.replace(before, after))
        with pytest.raises(FlairNasError, match="is damaged, its checksum does not match"):
            load_character_model(tmp_path / "header.safetensors")
    assert evaluate_character_model(tmp_path / "model.safetensors", "demo", part="valid").unknown_share > 0.5
    (tmp_path / "text").write_text("xyz\n\na\n")
    score = evaluate_character_model(tmp_path / "model.safetensors", tmp_path / "text", batch_size=1)
    assert score.unknown_share == 0.75  # as the warning has it
    with pytest.raises(FlairNasError, match="too few for 9,999 columns"):
        evaluate_character_model(tmp_path / "model.safetensors", "demo", batch_size=9999)
    model.decoder = None
    with pytest.raises(FlairNasError, match="the model has no decoder"):
        evaluate_character_model(model, "demo")


def test_a_file_whose_checksum_covers_the_weights_alone_still_loads(tmp_path: Path) -> None:
    model = LanguageModel(dictionary_of(corpus_of(["ab"])), False, 3, 1)
    weights = model.state_dict()
    digest = hashlib.sha256(b"".join(weights[name].numpy().tobytes() for name in sorted(weights))).hexdigest()
    names = ("is_forward_lm", "hidden_size", "nlayers", "embedding_size", "nout", "document_delimiter", "dropout")
    written = {
        "format": "flair-nas/character-model",
        "version": 1,
        "settings": {name: getattr(model, name) for name in names} | {"recurrent_type": "LSTM"},
        "characters": model.dictionary.get_items(),
        "sha256": digest,
    }
    save_file(weights, tmp_path / "old.safetensors", {"format": "pt", "flair_nas": json.dumps(written)})
    loaded = load_character_model(tmp_path / "old.safetensors")
    assert not loaded.is_forward_lm and torch.equal(loaded.encoder.weight, model.encoder.weight)


def test_the_suffix_may_be_in_capitals(tmp_path: Path) -> None:
    model = LanguageModel(dictionary_of(corpus_of(["ab"])), True, 3, 1)
    save_character_model(model, tmp_path)
    path = (tmp_path / "model.safetensors").rename(tmp_path / "M.SAFETENSORS")
    for loaded in (load_character_model(path), FlairEmbeddings(path).lm, FlairEmbeddings(str(path)).lm):
        assert torch.equal(loaded.encoder.weight.cpu(), model.encoder.weight)


@pytest.mark.parametrize("error", [RuntimeError("can't allocate memory"), PermissionError(13, "no")])
def test_a_good_file_that_cannot_be_read_now_is_not_called_damaged(error: Exception, tmp_path: Path) -> None:
    save_character_model(LanguageModel(dictionary_of(corpus_of(["ab"])), True, 3, 1), tmp_path)
    with mock.patch("torch.load", side_effect=error), pytest.raises(type(error)) as raised:
        load_character_model(tmp_path / "model.pt")
    assert raised.value is error


def test_a_model_keeps_its_mode_when_its_evaluation_is_stopped() -> None:
    corpus = corpus_of(["ab", "ba"])
    model = LanguageModel(dictionary_of(corpus), True, 3, 1).train()
    with mock.patch.object(model, "forward", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        evaluate_columns(model, torch.zeros(3, 2), 2)
    assert model.training


def test_a_file_of_data_opens_nothing_and_makes_nothing_larger(tmp_path: Path) -> None:
    from flair.models import LanguageModel

    model = LanguageModel(Dictionary(), True, 4, 1, embedding_size=3)
    for name, value, message in (
        ("recurrent_type", "https://127.0.0.1:9/x.json", "is a name or an address"),
        ("hidden_size", 200_000, "want more than the"),
    ):
        held = getattr(model, name)
        setattr(model, name, value)
        save_character_model(model, tmp_path)
        setattr(model, name, held)
        with pytest.raises(FlairNasError, match=message):
            load_character_model(tmp_path / "model.safetensors")


def test_a_dictionary_without_an_id_for_unknown_characters() -> None:
    dictionary = Dictionary(add_unk=False)
    for character in "\nab":
        dictionary.add_item(character)
    corpus = corpus_of(["ab", "ba"])
    config = CharacterModelConfig(text="t", batch_size=1, random_case=False)
    assert sorted(read(Splits(corpus, dictionary, config), 0, 0).split()) == ["ab", "ba"]
    with pytest.raises(FlairNasError, match="has neither 'c' nor an id for unknown characters"):
        Splits(corpus_of(["abc"]), dictionary, config).columns(0, 0, True)
