"""Exported taggers with a transformer find what the taggers find."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import flair
import numpy as np
import pytest
import torch
from flair.data import Sentence
from flair.embeddings import TokenEmbeddings, TransformerWordEmbeddings
from flair.models import SequenceTagger
from hypothesis import given, settings
from hypothesis import strategies as st
from small_transformer import write_transformer

from flair_nas import FlairNasError, load_corpus
from flair_nas.onnx import Tagger, check_export, export_tagger
from flair_nas.tagging.data.embeddings import build_embeddings
from tests.onnx.test_tagger import LINES, assert_same, make_tagger, predictions, word_vectors

STRANGE = st.sampled_from("aBé .,'’-1€\u200b\u200d\ufeff\xad\xa0İ\ue000漢😀\x00") | st.characters(
    exclude_categories=["Cs"]
)
LONG = ["the cat saw " * 25 + "London", "a" * 60 + " cat", "漢字 the " * 30, "Oslo"]


@functools.cache
def folder_of(kind: str, max_length: int | None = 24) -> Path:
    folder = Path(tempfile.mkdtemp()) / "model"
    write_transformer(folder, kind, max_length=max_length)
    return folder


def transformer(kind: str = "bert", max_length: int | None = 24, **options: Any) -> TransformerWordEmbeddings:
    options = {"fine_tune": False, "layers": "all", "use_context_separator": False, **options}
    return TransformerWordEmbeddings(str(folder_of(kind, max_length)), name="some/where/model", **options)


def vectors_of(exported: Tagger, tokens: list[str]) -> Any:
    """The vectors of the only embeddings of an export."""
    from flair_nas.runtime.words import Word

    return exported._embeddings[0].embed([[Word(token, 0, 1) for token in tokens]])[0]


OPTIONS: dict[str, dict[str, Any]] = {
    "bert": {"kind": "bert"},
    "roberta": {"kind": "roberta"},
    "last layer": {"layers": "-1", "use_context_separator": True},
    "joined layers": {"layers": "0,-1", "layer_mean": False},
    "odd overlap": {"kind": "roberta", "max_length": 23},
    "no overlap": {"kind": "bert", "max_length": 5},
    "cut off": {"allow_long_sentences": False},
    "fine-tuned, also of documents": {"fine_tune": True, "is_document_embedding": True, "layers": "-1"},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_labels_and_vectors_are_those_of_flair(options: str, tmp_path: Path) -> None:
    flair.set_seed(2)
    member = transformer(**OPTIONS[options])
    tagger = make_tagger([member])
    assert export_tagger(tagger, tmp_path / "out") == []
    exported = Tagger(tmp_path / "out")
    for tokenized in (False, True):
        expected = predictions(tagger, LINES + LONG, tokenized)
        assert sum(len(result["labels"]) for result in expected) > 5
        assert_same(exported.predict(LINES + LONG, tokenized=tokenized, batch_size=3), expected)
    for line in LONG:
        sentence = Sentence(line.split())
        tagger.embeddings.embed(sentence)
        expected_vectors = torch.stack([token.get_embedding([member.name]) for token in sentence]).detach().numpy()
        np.testing.assert_allclose(vectors_of(exported, line.split()), expected_vectors, atol=1e-5)


@pytest.mark.parametrize("stack", ["beside word vectors", "two", "without a layer", "of a spec"])
def test_taggers_of_other_forms(stack: str, tmp_path: Path) -> None:
    flair.set_seed(2)
    options: dict[str, Any] = {}
    members: list[TokenEmbeddings] = [transformer(), word_vectors()]
    if stack == "two":
        members = [transformer("roberta"), transformer()]
        for number, member in enumerate(members):
            member.name = f"{number}-model"
    elif stack == "without a layer":
        members = [transformer(fine_tune=True, layers="-1")]
        options = {"use_rnn": False, "crf": False, "reproject_embeddings": False}
    elif stack == "of a spec":
        corpus = load_corpus("demo").corpus
        specs = [f"transformer:{folder_of('bert')}{option}" for option in ("", ",layers=last")]
        members = [*build_embeddings(specs, corpus).embeddings]
    tagger = make_tagger(members, **options)
    assert export_tagger(tagger, tmp_path / "out") == []
    tagger.save(tmp_path / "tagger.pt")
    assert all(str(folder_of("bert")).encode() not in file.read_bytes() for file in (tmp_path / "out").iterdir())
    assert_same(Tagger(tmp_path / "out").predict(LINES + LONG), predictions(tagger, LINES + LONG, False))
    loaded = SequenceTagger.load(tmp_path / "tagger.pt")
    export_tagger(loaded, tmp_path / "out")
    assert_same(Tagger(tmp_path / "out").predict(LINES + LONG), predictions(tagger, LINES + LONG, False))


@functools.cache
def exported_of(kind: str) -> tuple[SequenceTagger, Tagger]:
    flair.set_seed(2)
    tagger = make_tagger([transformer(kind)])
    with tempfile.TemporaryDirectory() as folder:
        export_tagger(tagger, folder)
        return tagger, Tagger(folder)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@settings(max_examples=60)
@given(lines=st.lists(st.text(STRANGE, max_size=40), min_size=1, max_size=3), tokenized=st.booleans())
def test_any_lines(kind: str, lines: list[str], tokenized: bool) -> None:
    tagger, exported = exported_of(kind)
    lines = [line.replace("\n", " ") for line in lines]
    assert_same(exported.predict(lines, tokenized=tokenized), predictions(tagger, lines, tokenized))


@settings(max_examples=60)
@given(words=st.lists(st.text(STRANGE, min_size=1, max_size=12), min_size=1, max_size=60))
def test_vectors_of_any_words(words: list[str]) -> None:
    words = [word for word in words if not any(character.isspace() for character in word)] or ["a"]
    for kind in ("bert", "roberta"):
        tagger, exported = exported_of(kind)
        sentence = Sentence(words)
        if [token.text for token in sentence] != words:  # Flair deletes some characters
            continue
        tagger.embeddings.embed(sentence)
        expected = torch.stack([token.embedding for token in sentence]).detach().numpy()
        np.testing.assert_allclose(vectors_of(exported, words), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"use_context": True}, r"read neighbouring sentences \(use_context\)"),
        ({"subtoken_pooling": "mean"}, r"pool pieces of words by mean \(subtoken_pooling\)"),
    ],
)
def test_options_that_are_not_exported_are_named(
    options: dict[str, Any], reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tagger = make_tagger([transformer(**options)])
    assert export_tagger(tagger, tmp_path / "out") == ["model"]
    assert f"embeddings some/where/model {reason}".replace("\\", "") in caplog.text
    assert "cannot be exported; give vectors to Tagger as 'model'" in caplog.text
    assert not [*(tmp_path / "out").glob("embeddings*")]


def test_a_model_that_pytorch_cannot_export_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = transformer()
    export = torch.onnx.export
    flair.set_seed(2)
    tagger = make_tagger([member])

    @functools.wraps(export)
    def export_another(states: Any, *args: Any, **kwargs: Any) -> None:
        states.layers = [1]
        export(states, *args, **kwargs)
        states.layers = [0, 1, 2]

    monkeypatch.setattr(torch.onnx, "export", export_another)
    assert export_tagger(tagger, tmp_path / "out") == ["model"]
    assert "PyTorch exports a BertModel that differs by" in caplog.text
    assert not [*(tmp_path / "out").glob("embeddings*")]
    monkeypatch.setattr(torch.onnx, "export", functools.wraps(export)(lambda *_, **__: 1 / 0))
    assert export_tagger(tagger, tmp_path / "out") == ["model"]
    assert "PyTorch cannot export a BertModel (ZeroDivisionError" in caplog.text


def test_a_damaged_export_is_refused(tmp_path: Path) -> None:
    flair.set_seed(2)
    export_tagger(make_tagger([transformer()]), tmp_path)
    tokenizer = tmp_path / "embeddings-0-tokenizer.json"
    before = tokenizer.read_text()
    tokenizer.write_text(before.replace("##a", "##A", 1))
    with pytest.raises(FlairNasError, match=r"tokenizer\.json: is damaged, or of another export"):
        Tagger(tmp_path)
    tokenizer.write_text(before)
    settings = json.loads((tmp_path / "tagger.json").read_text())
    (entry,) = settings["embeddings"]
    for name, fault in (("stride", "a setting is missing"), ("tokenizer", "a setting is missing")):
        changed = {**settings, "embeddings": [{key: value for key, value in entry.items() if key != name}]}
        (tmp_path / "tagger.json").write_text(json.dumps(changed))
        with pytest.raises(FlairNasError, match=fault):
            Tagger(tmp_path)
    changed = {**settings, "embeddings": [{**entry, "tokenizer": "../other.json"}]}
    (tmp_path / "tagger.json").write_text(json.dumps(changed))
    with pytest.raises(FlairNasError, match="is not one of the files of this folder"):
        Tagger(tmp_path)


def test_the_tokenizer_is_needed_and_nothing_else(tmp_path: Path) -> None:
    flair.set_seed(2)
    tagger = make_tagger([transformer()])
    export_tagger(tagger, tmp_path)
    code = (
        "import json, sys\nsys.modules.update(dict.fromkeys(('torch', 'flair', 'onnx', 'transformers', {})))\n"
        "from flair_nas.runtime import Tagger\nprint(json.dumps(Tagger(sys.argv[1]).predict(json.loads(sys.argv[2]))))"
    )

    def run(blocked: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code.format(blocked), str(tmp_path), json.dumps(LINES + LONG)]
        return subprocess.run(command, text=True, capture_output=True)

    assert_same(json.loads(run("'scipy'").stdout), predictions(tagger, LINES + LONG, False))
    assert "tokenizers, which transformers need, is not installed; pip install tokenizers" in run("'tokenizers'").stderr


def test_8_bits(tmp_path: Path) -> None:
    flair.set_seed(2)
    corpus = load_corpus("demo").corpus
    tagger = make_tagger([transformer()])
    export_tagger(tagger, tmp_path)
    before = (tmp_path / "embeddings-0.onnx").read_bytes()
    table = check_export(tagger, tmp_path, [*corpus.dev][:20], int8=True)
    assert "| int8 |" in table and "labels depend on the batch" in table
    assert (tmp_path / "embeddings-0.onnx").read_bytes() != before
