"""Exported taggers find what the taggers find."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flair
import numpy as np
import pytest
import torch
from flair.data import Dictionary, Sentence
from flair.embeddings import (
    CharacterEmbeddings,
    FlairEmbeddings,
    HashEmbeddings,
    OneHotEmbeddings,
    PooledFlairEmbeddings,
    StackedEmbeddings,
    TokenEmbeddings,
    WordEmbeddings,
)
from flair.models import LanguageModel, SequenceTagger
from hypothesis import given, settings
from hypothesis import strategies as st

from flair_nas import CharacterRNNEmbeddings, EnglishEmbeddings, FlairNasError, SubwordEmbeddings
from flair_nas.onnx import Tagger, export_tagger, quantize_tagger
from flair_nas.runtime.model import Model
from flair_nas.storage.files import hash_file
from flair_nas.tagging.data.embedding_folder import TABLE, write_about, write_table
from flair_nas.tagging.patches.span_scores import use_probabilities
from flair_nas.tagging.prediction import tag_lines, to_json_line

ROOT = Path(__file__).parents[2]
LINES = [
    "Ada Byron saw London in 1842 .",
    "",
    "the cat and the other cat , the CAT",
    "Don't pay\u200b €3.50  to Mr. Smith-Jones (62)!",
    " \t ",
    "İstanbul",
    "x" * 40 + " " + "y" * 30 + " Oslo",
]
CHARACTERS = "\n abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,'0123456789"


def dictionary(items: str | list[str]) -> Dictionary:
    made = Dictionary()
    for item in items:
        made.add_item(item)
    return made


def language_model(forward: bool, rnn: str = "lstm", **options: Any) -> LanguageModel:
    return LanguageModel(dictionary(CHARACTERS), forward, 6, 1, embedding_size=4, recurrent_type=rnn, **options)


def word_vectors(**options: Any) -> WordEmbeddings:
    vocabulary = {word: row for row, word in enumerate(["the", "cat", "Ada", "####", "00", "london", "€"])}
    vectors = WordEmbeddings(None, vocab=vocabulary, embedding_length=3, name="some/where/vectors", **options)
    torch.nn.init.normal_(vectors.embedding.weight)
    return vectors


def own_vectors() -> SubwordEmbeddings:
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as name:
        vectors, parts = (random.normal(size=(rows, 6), scale=3).astype(np.float32) for rows in (2, 50))
        figures = write_table(Path(name) / TABLE, {"the": 0, "cat": 1}, vectors, parts)
        write_about(Path(name), {"name": "own"} | figures)
        return SubwordEmbeddings(name)


def make_tagger(members: list[TokenEmbeddings], rnn: str = "tanh0", crf: bool = True, **options: Any) -> SequenceTagger:
    """An untrained tagger, which finds many things."""
    tags = Dictionary(add_unk=False)
    tags.span_labels = options.pop("spans", True)
    for tag in ("PER", "LOC") if tags.span_labels else ("O", "NOUN", "VERB"):
        tags.add_item(tag)
    embeddings = StackedEmbeddings(members) if len(members) > 1 else members[0]
    tagger = SequenceTagger(embeddings, tags, "ner", hidden_size=8, rnn_type=rnn, use_crf=crf, **options)
    with torch.no_grad():
        tagger.linear.weight.mul_(4)
    return use_probabilities(tagger)


def predictions(tagger: SequenceTagger, lines: list[str], tokenized: bool) -> list[dict[str, Any]]:
    tagged = tag_lines(tagger, lines, tokenized=tokenized, batch_size=3)
    return [json.loads(to_json_line(line, sentence, tagger.label_type)) for line, sentence in zip(lines, tagged)]


def assert_same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    for one, other in zip(found, expected, strict=True):
        scores, wanted = ([label.pop("score") for label in result["labels"]] for result in (one, other))
        assert one == other
        np.testing.assert_allclose(scores, wanted, atol=1e-5)


STACKS = {
    "words": lambda: [word_vectors()],
    "stable words": lambda: [word_vectors(stable=True)],
    "one-hot": lambda: [OneHotEmbeddings(dictionary(["the", "cat", "Ada"]), embedding_length=3)],
    "english": lambda: [EnglishEmbeddings(), word_vectors()],
    "own words": lambda: [own_vectors(), CharacterRNNEmbeddings(CHARACTERS, 6)],
    "characters of words": lambda: [CharacterEmbeddings(dictionary(CHARACTERS), 5, 4)],
    "characters by minGRU": lambda: [CharacterRNNEmbeddings(CHARACTERS, 6), word_vectors()],
    "both directions": lambda: [
        FlairEmbeddings(language_model(False), name="b"),
        word_vectors(),
        FlairEmbeddings(language_model(True, "ess-ptb"), name="a"),
    ],
    "pieces": lambda: [FlairEmbeddings(language_model(True, "small-tanh"), chars_per_chunk=7)],
    "projection": lambda: [FlairEmbeddings(language_model(False, "gru", nout=5), with_whitespace=False)],
    "plain text": lambda: [
        FlairEmbeddings(language_model(forward, "sru"), tokenized_lm=False, name=str(forward))
        for forward in (True, False)
    ],
    "lower case": lambda: [FlairEmbeddings(language_model(False, document_delimiter="a"), is_lower=True)],
}


@pytest.mark.parametrize("stack", STACKS)
def test_embeddings_are_those_of_flair(stack: str, tmp_path: Path) -> None:
    flair.set_seed(2)
    tagger = make_tagger(STACKS[stack]())
    assert export_tagger(tagger, tmp_path / "out") == []
    exported = Tagger(tmp_path / "out", threads=1)
    for tokenized in (False, True):
        expected = predictions(tagger, LINES, tokenized)
        assert sum(len(result["labels"]) for result in expected) > 5
        assert_same(exported.predict(LINES, tokenized=tokenized, batch_size=3), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"rnn": "LSTM", "rnn_layers": 2},
        {"rnn": "i-darts-ptb", "bidirectional": False},
        {"rnn": "minlstm", "crf": False},
        {"use_rnn": False, "spans": False, "crf": False, "reproject_embeddings": False},
        {"spans": False, "tag_format": "BIO", "reproject_embeddings": 5},
    ],
)
def test_taggers_of_all_forms(options: dict[str, Any], tmp_path: Path) -> None:
    flair.set_seed(2)
    tagger = make_tagger([word_vectors(), OneHotEmbeddings(dictionary(["cat"]), embedding_length=2)], **options)
    export_tagger(tagger, tmp_path)
    expected = predictions(tagger, LINES, False)
    assert sum(len(result["labels"]) for result in expected) > 3
    assert_same(Tagger(tmp_path).predict(iter(LINES)), expected)


def test_the_table_of_english_is_exported_as_it_is(tmp_path: Path) -> None:
    flair.set_seed(2)
    tagger = make_tagger([EnglishEmbeddings()])
    export_tagger(tagger, tmp_path)
    quantize_tagger(tmp_path)
    table = tmp_path / "embeddings-0.safetensors"
    assert hash_file(table) == EnglishEmbeddings().checksum
    assert json.loads((tmp_path / "tagger.json").read_text())["files"][table.name] == hash_file(table)
    Tagger(tmp_path)
    table.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(FlairNasError, match=f"{table.name}: is damaged, or of another export"):
        Tagger(tmp_path)


@functools.cache
def both_directions() -> tuple[SequenceTagger, Tagger]:
    flair.set_seed(2)
    tagger = make_tagger(STACKS["both directions"]())
    with tempfile.TemporaryDirectory() as folder:
        export_tagger(tagger, folder)
        return tagger, Tagger(folder, threads=1)


@settings(max_examples=30)
@given(line=st.text(st.sampled_from("aB .,'’-1€\u200b\xa0İ") | st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_line(line: str) -> None:
    tagger, exported = both_directions()
    line = line.replace("\n", " ")
    assert_same(exported.predict([line]), predictions(tagger, [line], False))


def test_vectors_that_cannot_be_exported_are_given(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flair.set_seed(2)
    tagger = make_tagger([HashEmbeddings(50, 4), word_vectors()])
    assert export_tagger(tagger, tmp_path / "out") == ["0-hash"]
    assert "HashEmbeddings 0-hash cannot be exported; give vectors to Tagger as '0-hash'" in caplog.text

    def look_up(words: list[str]) -> Any:
        sentence = Sentence(words)
        tagger.embeddings.embeddings[0].embed(sentence)
        return torch.stack([token.get_embedding() for token in sentence]).detach().numpy()

    exported = Tagger(tmp_path / "out", {"0-hash": look_up})
    assert exported.given == {"0-hash": 4}
    assert_same(exported.predict(LINES), predictions(tagger, LINES, False))
    with pytest.raises(FlairNasError, match=r"0-hash could not be exported; .*Tagger\(folder, vectors=\{'0-hash'"):
        Tagger(tmp_path / "out")
    faulty = Tagger(tmp_path / "out", {"0-hash": lambda words: np.zeros((1, 4))})
    with pytest.raises(FlairNasError, match=r"vectors of 0-hash: 2 words must get vectors \[2, 4\], got \[1, 4\]"):
        faulty.predict(["a b"])
    two = [
        PooledFlairEmbeddings(FlairEmbeddings(language_model(True), name=name)) for name in ("a/model.pt", "b/model.pt")
    ]
    names = ["model.pt-context", "model.pt-context, 2"]
    assert export_tagger(make_tagger(two), tmp_path / "pooled") == names
    assert [*Tagger(tmp_path / "pooled", dict.fromkeys(names, look_up)).given] == names
    assert (
        "PooledFlairEmbeddings 1-b/model.pt-context cannot be exported; give vectors to Tagger as 'model.pt"
        in caplog.text
    )


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda tagger: pickle.loads(pickle.dumps(tagger))])
def test_a_copy_loads_the_folder_again(
    copied: Callable[[Tagger], Tagger], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_tagger(make_tagger([HashEmbeddings(50, 4), word_vectors()]), tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    tagger = Tagger("out", {"0-hash": zeros})
    expected = tagger.predict(LINES)
    monkeypatch.chdir("/")
    assert copied(tagger).predict(LINES) == expected


def zeros(words: list[str]) -> Any:
    return np.zeros((len(words), 4))


def test_a_long_sentence_and_a_long_word_are_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A padded batch takes as much memory as its longest sentence for each of the others."""
    flair.set_seed(2)
    tagger = make_tagger(STACKS["characters of words"]())
    export_tagger(tagger, tmp_path)
    exported, shapes, run = Tagger(tmp_path), list[tuple[str, tuple[int, ...]]](), Model.run

    def listen(self: Model, outputs: Any, inputs: Any) -> Any:
        shapes.append((self.path.name, next(iter(inputs.values())).shape[:2]))
        return run(self, outputs, inputs)

    monkeypatch.setattr(Model, "run", listen)
    lines = ["Ada saw London", "x " * 2600, "", "Oslo " * 3, "the cat " + "y" * 9000]
    assert_same(exported.predict(lines, tokenized=True), predictions(tagger, lines, True))
    assert [shape for name, shape in shapes if name == "tagger.onnx"] == [(1, 2600), (1, 3), (2, 3)]
    assert [shape for name, shape in shapes if name != "tagger.onnx"] == [(1, 1), (1, 9000), (2, 3), (4, 6)]


def test_half_of_a_character_is_refused_as_by_the_command(tmp_path: Path) -> None:
    export_tagger(make_tagger([word_vectors()]), tmp_path)
    tagger = Tagger(tmp_path)
    for call in (lambda: tagger.predict(["a", "\ud800"]), lambda: tagger.find_spans([["a"], ["\ud800"]])):
        with pytest.raises(FlairNasError, match=r"^sentence 2, '\\ud800': not UTF-8"):
            call()


def test_the_small_distribution_runs_without_torch_and_flair_and_beside_flair_nas(tmp_path: Path) -> None:
    flair.set_seed(2)
    tagger = make_tagger([*STACKS["both directions"](), EnglishEmbeddings()])
    export_tagger(tagger, tmp_path / "out")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), ROOT / "runtime"]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("flair_nas_runtime-*.whl")
    with zipfile.ZipFile(wheel) as files:
        assert {name.partition("/")[0].partition("-")[0] for name in files.namelist()} == {"flair_nas_runtime"}
    script = (
        f"import sys, json, pickle; sys.path.insert(0, {str(wheel)!r})\n"
        "sys.modules.update(dict.fromkeys(('torch', 'flair', 'onnx', 'gensim', 'scipy', 'transformers')))\n"
        "from flair_nas_runtime import *\n"
        f"tagger = pickle.loads(pickle.dumps(Tagger({str(tmp_path / 'out')!r})))\n"
        "assert 'flair_nas' not in sys.modules and FlairNasError.__module__ == 'flair_nas_runtime'\n"
        "print(json.dumps(tagger.predict(json.loads(sys.stdin.read()))))\n"
        "import flair_nas\n"
        "assert flair_nas.FlairNasError is not FlairNasError"
    )
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, input=json.dumps(LINES), text=True, capture_output=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert_same(json.loads(run.stdout), predictions(tagger, LINES, False))


def test_a_folder_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    flair.set_seed(2)
    for name in ("one", "other"):
        export_tagger(make_tagger([word_vectors(), FlairEmbeddings(language_model(True))]), tmp_path / name)
    folder = tmp_path / "one"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert all(b"some/where" not in data and str(tmp_path).encode() not in data for data in before.values())
    table = next(file for file in folder.iterdir() if file.suffix == ".npy" and file.name.startswith("emb"))
    table.write_bytes((tmp_path / "other" / table.name).read_bytes())
    with pytest.raises(FlairNasError, match=f"{table.name}: is damaged, or of another export"):
        Tagger(folder)
    table.unlink()
    with pytest.raises(FlairNasError, match=f"{table.name}: no such file; copy the whole folder"):
        Tagger(folder)
    table.write_bytes(before[table.name])
    assert Tagger(folder).predict("Ada saw London")[0]["tokens"] == ["Ada", "saw", "London"]
    for call, message in (
        (lambda tagger: tagger.predict("a", batch_size=0), "batch_size must be at least 1, got 0"),
        (lambda tagger: tagger.predict([["Ada", "saw"]]), "find_spans takes sentences that are split"),
        (lambda tagger: tagger.find_spans(["Ada", "saw"]), "predict takes texts"),
        (lambda tagger: tagger.find_spans([["Ada", "", "saw"]]), "words that are not empty; leave the empty ones out"),
    ):
        with pytest.raises(FlairNasError, match=message):
            call(Tagger(folder))
    settings = folder / "tagger.json"
    settings.write_bytes(before["tagger.json"][:100])
    with pytest.raises(FlairNasError, match="is no exported tagger, or it is cut short"):
        Tagger(folder)
    settings.write_bytes(before["tagger.json"].replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(FlairNasError, match="version 2 is not known here; update flair-nas"):
        Tagger(folder)
    settings.unlink()
    with pytest.raises(FlairNasError, match=r"has no tagger.json; flair-nas tag export writes it at the end"):
        Tagger(folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.startswith(".")}


def test_another_export_leaves_nothing_of_the_earlier_one(tmp_path: Path) -> None:
    export_tagger(make_tagger(STACKS["both directions"]()), tmp_path)
    (tmp_path / ".tagger.onnx.abcdefgh.flair-nas.part").write_text("of a process that was killed")
    export_tagger(make_tagger([word_vectors()], crf=False), tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "embeddings-0.json",
        "embeddings-0.npy",
        "tagger.json",
        "tagger.onnx",
    ]


def test_files_that_no_export_wrote_stay(tmp_path: Path) -> None:
    mine = {"embeddings-of-mine.npy": "a table", "tagger.onnx": "a model", "transitions.npy": "scores"}
    mine |= {"tagger.json": '{"files": {"tagger.onnx": ""}}'}
    for name, text in mine.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(text)
        with pytest.raises(FlairNasError, match="holds other files"):
            export_tagger(make_tagger([word_vectors()]), tmp_path / name)
        assert contents(tmp_path / name) == {name: text.encode()}
    export_tagger(make_tagger([word_vectors()]), tmp_path / "out")
    (tmp_path / "out" / "embeddings-5.npy").write_text("a table")
    before = contents(tmp_path / "out")
    with pytest.raises(FlairNasError, match=r"holds other files \(embeddings-5.npy\); name a new folder"):
        export_tagger(make_tagger([word_vectors()]), tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_a_killed_export_leaves_the_earlier_one(tmp_path: Path) -> None:
    def export_until(tagger: SequenceTagger, calls: int) -> None:
        replace, numbers = os.replace, itertools.count(1)

        def die(source: Path, target: Path) -> None:
            if next(numbers) == calls:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)

        os.replace = die  # type: ignore[assignment]
        export_tagger(tagger, tmp_path)

    flair.set_seed(2)
    export_tagger(make_tagger(STACKS["both directions"]()), tmp_path)
    before, other = contents(tmp_path), make_tagger([word_vectors()])
    for calls in range(1, 7):  # five files are written, each beside its name; then the first of them moves
        process = multiprocessing.get_context("fork").Process(target=export_until, args=(other, calls))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert contents(tmp_path) == before
        assert Tagger(tmp_path).predict("Ada")[0]["tokens"] == ["Ada"]
    export_tagger(other, tmp_path)
    assert len([*tmp_path.iterdir()]) == 5
    assert_same(Tagger(tmp_path).predict(LINES), predictions(other, LINES, False))
