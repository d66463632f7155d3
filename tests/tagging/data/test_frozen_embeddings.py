"""Frozen embeddings: the vectors that Flair gives, computed once, in little memory or in a file to be shared."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from flair.data import Corpus, Sentence
from flair.datasets import FlairDatapointDataset
from flair.embeddings import FlairEmbeddings, StackedEmbeddings, TokenEmbeddings, WordEmbeddings
from full_disk import full_disk
from gensim.models import KeyedVectors
from small_tagging import write_character_model, write_corpus, write_word_vectors
from small_transformer import write_transformer

from flair_nas.errors import FlairNasError
from flair_nas.experiments import tagging_task
from flair_nas.search.flair_config import TaggingSearchConfig
from flair_nas.search.trainer import search_genotype
from flair_nas.settings.fields import make_settings
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.data.corpora import TaggingCorpus, load_corpus, sentences_of
from flair_nas.tagging.data.embeddings import build_embeddings
from flair_nas.tagging.data.frozen_embeddings import changing_names, frozen_members, is_kept, keep_frozen
from flair_nas.tagging.training import train_taggers
from flair_nas.tune.config import TuneConfig

pytestmark = pytest.mark.slow

PARTS = ("train", "dev", "test")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Small word vectors and two small character language models, real and seeded."""
    folder = tmp_path_factory.mktemp("embeddings")
    write_word_vectors(folder / "words.gensim")
    for seed, name in enumerate(("forward", "backward")):
        write_character_model(folder / f"{name}.pt", seed)
    return {path.name: str(path) for path in folder.iterdir()}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "columns")  # native ones would be compiled anew for that cache
    return tmp_path / "cache"


def specs_of(files: dict[str, str], *further: str) -> list[str]:
    return [f"word:{files['words.gensim']}", f"flair:{files['forward.pt']}", f"flair:{files['backward.pt']}", *further]


def words_of(corpus: TaggingCorpus) -> list[Any]:
    return [token for part in PARTS for s in sentences_of(getattr(corpus.corpus, part)) for token in s]


def kept(files: dict[str, str], *further: str, on_disk: bool) -> tuple[StackedEmbeddings, TaggingCorpus]:
    corpus = load_corpus("demo")
    embeddings = build_embeddings(specs_of(files, *further), corpus.corpus)
    keep_frozen(embeddings, corpus, on_disk=on_disk)
    return embeddings, corpus


@pytest.fixture
def no_computing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The language models may embed the one sentence that tells how long vectors are, and no more."""
    compute = FlairEmbeddings._add_embeddings_internal

    def one_alone(self: FlairEmbeddings, sentences: list[Sentence]) -> Any:
        assert len(sentences) == 1, "computed again"
        return compute(self, sentences)

    monkeypatch.setattr(FlairEmbeddings, "_add_embeddings_internal", one_alone)


# --- the vectors ---


@pytest.mark.parametrize("on_disk", [False, True])
def test_words_get_the_vectors_that_flair_gives_them(files: dict[str, str], on_disk: bool) -> None:
    embeddings, corpus = kept(files, on_disk=on_disk)
    plain = load_corpus("demo")
    for part in PARTS:
        for sentence in sentences_of(getattr(plain.corpus, part)):
            embeddings.embed([sentence])
    names = embeddings.get_names()
    for word, same in zip(words_of(corpus), words_of(plain), strict=True):
        torch.testing.assert_close(word.get_embedding(names), same.get_embedding(names))
        assert not word.get_embedding(names).requires_grad


@pytest.mark.parametrize("on_disk", [False, True])
def test_all_vectors_of_an_embedding_are_views_on_one_array(files: dict[str, str], on_disk: bool) -> None:
    embeddings, corpus = kept(files, on_disk=on_disk)
    words = words_of(corpus)
    for name, width in zip(embeddings.get_names(), (7, 6, 6), strict=True):
        (storage,) = {token._embeddings[name].untyped_storage() for token in words}
        assert storage.nbytes() == 4 * len(words) * width


def test_stacks_that_share_an_embedding_share_its_file(
    files: dict[str, str], cache: Path, request: pytest.FixtureRequest
) -> None:
    kept(files, on_disk=True)
    request.getfixturevalue("no_computing")
    corpus = load_corpus("demo")
    keep_frozen(build_embeddings([*specs_of(files)[:0:-1], "char"], corpus.corpus), corpus, on_disk=True)
    assert len(list((cache / "embeddings").glob("*/vectors.bin"))) == 3


def test_a_long_sentence_is_embedded_alone(files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A character model reads all sentences of a batch as far as the longest."""
    texts = ["Ada saw London", "x " * 2600, "Oslo"]
    sentences = FlairDatapointDataset([Sentence(text.split()) for text in texts])
    corpus = Corpus(sentences, sample_missing_splits=False)
    embeddings = FlairEmbeddings(files["forward.pt"])
    embed, batches = FlairEmbeddings.embed, list[list[int]]()

    def listen(self: FlairEmbeddings, sentences: Any) -> Any:
        batches.append([len(sentence) for sentence in sentences])
        return embed(self, sentences)

    monkeypatch.setattr(FlairEmbeddings, "embed", listen)
    keep_frozen(embeddings, TaggingCorpus(corpus, "ner", "small", ""), on_disk=False)
    assert batches == [[1, 3], [2600]]
    assert [embeddings.name in sentence[0]._embeddings for sentence in sentences_of(sentences)] == [True] * 3


def test_what_learns_or_pools_is_told_apart(files: dict[str, str]) -> None:
    corpus = load_corpus("demo")
    pooled = f"pooled-flair:{files['forward.pt']}"
    embeddings = build_embeddings([f"word:{files['words.gensim']}", pooled, "char", "one-hot"], corpus.corpus)
    word, context = frozen_members(embeddings)
    assert word is embeddings.embeddings[0] and context is embeddings.embeddings[1].context_embeddings
    assert set(changing_names(embeddings)) == set(embeddings.get_names()) - {word.name, context.name}
    keep_frozen(embeddings, corpus, on_disk=False)
    assert set(words_of(corpus)[0]._embeddings) == {word.name, context.name}


def test_the_tokenizer_of_a_transformer_tells_its_vectors_apart(tmp_path: Path) -> None:
    write_transformer(tmp_path / "bert")
    shutil.copytree(tmp_path / "bert", tmp_path / "cased" / "bert")
    for file in (tmp_path / "cased" / "bert").glob("tokenizer*.json"):
        file.write_text(re.sub(r'("(do_lower_case|lowercase)": )true', r"\1false", file.read_text()))
    corpus = load_corpus("demo")
    keep_frozen(build_embeddings([f"transformer:{tmp_path}/bert"], corpus.corpus), corpus, on_disk=True)
    for folder, expected in (("bert", True), ("cased/bert", False), ("bert,layers=last", False)):
        embeddings = build_embeddings([f"transformer:{tmp_path}/{folder}"], corpus.corpus)
        assert is_kept(embeddings, corpus) == expected


def test_nothing_frozen_nothing_kept(cache: Path) -> None:
    corpus = load_corpus("demo")
    keep_frozen(build_embeddings(["char"], corpus.corpus), corpus, on_disk=True)
    assert not cache.exists() and not words_of(corpus)[0]._embeddings


# --- the file ---


@pytest.mark.usefixtures("no_computing")
def test_another_process_computes_nothing(files: dict[str, str]) -> None:
    script = f"""
from flair_nas.tagging.data.corpora import load_corpus
from flair_nas.tagging.data.embeddings import build_embeddings
from flair_nas.tagging.data.frozen_embeddings import keep_frozen
corpus = load_corpus("demo")
keep_frozen(build_embeddings({specs_of(files)!r}, corpus.corpus), corpus, on_disk=True)
"""
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    kept(files, on_disk=True)


def test_the_file_stays_good_where_the_embeddings_are_moved(
    files: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kept(files, on_disk=True)
    request.getfixturevalue("no_computing")
    moved = {name: shutil.copy(path, tmp_path / name) for name, path in files.items()}
    kept({name: str(path) for name, path in moved.items()}, on_disk=True)


@pytest.mark.parametrize("change", ["weights", "words"])
def test_other_embeddings_have_a_file_of_their_own(
    files: dict[str, str], cache: Path, tmp_path: Path, change: str
) -> None:
    kept(files, on_disk=True)
    changed = {name: str(shutil.copy(path, tmp_path / name)) for name, path in files.items()}
    if change == "weights":
        write_character_model(tmp_path / "forward.pt", seed=7)
    else:
        vectors = KeyedVectors.load(changed["words.gensim"])
        vectors.vectors[3, 2] += 0.5
        vectors.save(changed["words.gensim"])
    kept(changed, on_disk=True)
    assert len([path for path in (cache / "embeddings").iterdir() if path.is_dir()]) == 4  # three, and a changed one


def test_options_and_labels_that_embeddings_read_have_a_file_of_their_own(files: dict[str, str], cache: Path) -> None:
    def small(label: str, boundary: bool, word: str) -> TaggingCorpus:
        sentences = [Sentence(["Dr", "in", word]) for _ in PARTS]
        sentences[0].is_document_boundary = boundary
        if label:
            sentences[0][0].add_label("pos", label)
        parts = [FlairDatapointDataset([sentence]) for sentence in sentences]
        return TaggingCorpus(Corpus(*parts), "pos", "small", "")

    def vectors_of(embeddings: TokenEmbeddings, label: str = "", boundary: bool = False, word: str = "Leeds") -> int:
        """The number of files, when the one of these embeddings is there."""
        corpus, plain = small(label, boundary, word), small(label, boundary, word)
        keep_frozen(StackedEmbeddings([embeddings]), corpus, on_disk=True)
        embeddings.embed([s for part in PARTS for s in sentences_of(getattr(plain.corpus, part))])
        for word, same in zip(words_of(corpus), words_of(plain)):
            torch.testing.assert_close(word.get_embedding(), same.get_embedding())
        return len([path for path in (cache / "embeddings").iterdir() if path.is_dir()])

    forward = files["forward.pt"]
    assert vectors_of(FlairEmbeddings(forward)) == vectors_of(FlairEmbeddings(forward)) == 1
    assert vectors_of(FlairEmbeddings(forward, with_whitespace=False)) == 2
    assert vectors_of(FlairEmbeddings(forward, tokenized_lm=False)) == 3
    assert vectors_of(FlairEmbeddings(forward), boundary=True) == 4  # which embeddings with context heed
    words = WordEmbeddings(files["words.gensim"], field="pos")
    assert vectors_of(words, "the") == vectors_of(words, "the") == 5
    assert vectors_of(words, "in") == 6
    assert vectors_of(WordEmbeddings(files["words.gensim"]), "in") == 7
    assert vectors_of(FlairEmbeddings(forward), word="York") == 8


DAMAGE = {
    "cut short": lambda path: os.truncate(path, path.stat().st_size // 2),
    "one byte": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\x7f"),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_made_again(
    files: dict[str, str], cache: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    _, before = kept(files, on_disk=True)
    expected = [{name: vector.clone() for name, vector in token._embeddings.items()} for token in words_of(before)]
    path = next((cache / "embeddings").glob("*/vectors.bin"))
    del before
    DAMAGE[damage](path)
    with caplog.at_level(logging.WARNING):
        _, after = kept(files, on_disk=True)
    assert "cache of vectors of embeddings is damaged" in caplog.text and "made again" in caplog.text
    for token, vectors in zip(words_of(after), expected, strict=True):
        assert all(torch.equal(token._embeddings[name], vectors[name]) for name in vectors)


def test_a_full_disk_is_told_and_nothing_stays(files: dict[str, str], cache: Path) -> None:
    with full_disk(10_000), pytest.raises(OSError, match="no room for the vectors of embeddings") as caught:
        kept(files, on_disk=True)
    assert caught.value.errno == errno.ENOSPC
    assert not list(cache.rglob("*.bin"))


def test_a_cache_that_cannot_be_written_is_named(files: dict[str, str], cache: Path) -> None:
    cache.write_text("a file")
    with pytest.raises(FlairNasError, match=f"{cache}.*FLAIR_NAS_CACHE"):
        kept(files, on_disk=True)


# --- searches ---


def file_of(vector: torch.Tensor) -> str:
    """The name of the file that a vector is mapped from; empty if it is in memory of its own."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(address, 16) for address in line.split()[0].split("-"))
        if start <= vector.data_ptr() < end:
            return line.rpartition("/")[2] if "/" in line else ""
    return ""


def search_settings(files: dict[str, str], **changes: Any) -> dict[str, Any]:
    small = {"hidden_size": 4, "nodes": 1, "batch_size": 8, "epochs": 1, "samples": 1, "device": "cpu"}
    return {"corpus": "demo", "embeddings": specs_of(files), **small, **changes}


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="maps of memory are read from /proc")
def test_a_training_of_a_tuning_reads_the_files_that_were_prepared(
    files: dict[str, str], cache: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    embeddings = [name.replace("flair:", "pooled-flair:") for name in specs_of(files)]
    small: dict[str, Any] = {"hidden_size": 4, "batch_size": 8, "epochs": 1, "device": "cpu"}
    config = TuneConfig(corpus=write_corpus(tmp_path / "corpus"), embeddings=embeddings, **small)
    settings = config.run_settings({}) | tagging_task.seeded(1)
    tagging_task.prepare(settings, tagging_task.read(settings), progress=False)
    request.getfixturevalue("no_computing")
    tagging_task._read_once.cache_clear()
    tagging_task.train(settings, str(tmp_path / "run"), False)
    assert len(list((cache / "embeddings").glob("*/vectors.bin"))) == 3
    words = words_of(tagging_task._corpus(settings))  # which later trainings of this process read, too
    assert {file_of(vector) for token in words for vector in token._embeddings.values()} == {"vectors.bin"}


@pytest.mark.parametrize(("storage", "is_file"), [(None, False), ("disk", True)])
def test_a_search_keeps_vectors_where_it_is_told_and_finds_the_same(
    files: dict[str, str], cache: Path, tmp_path: Path, storage: str | None, is_file: bool
) -> None:
    settings = search_settings(files, strategy="random-shared", samples=1, epochs=1)
    found = search_genotype(
        make_settings(TaggingSearchConfig, {**settings, "storage": storage}), tmp_path / "run", progress=False
    )
    assert (cache / "embeddings").exists() == is_file and "storage" not in found.genotype.origin["settings"]
    again = search_genotype(
        make_settings(TaggingSearchConfig, settings), tmp_path / "run", progress=False
    )  # it may change
    assert again.genotype == found.genotype


# --- what is not kept is told ---


def test_what_is_embedded_anew_is_told_once(files: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    specs = [f"word:{files['words.gensim']}", f"pooled-flair:{files['forward.pt']}", "char"]
    said = "demo: embedded anew for each batch, as vectors change: "
    config, corpus = TuneConfig(embeddings=specs, hidden_size=4, device="cpu"), load_corpus("demo")
    with caplog.at_level(logging.INFO, logger="flair_nas"):
        tagging_task.prepare(config.run_settings({}), corpus, progress=False)
        assert caplog.text.count(said) == 1
        assert f"{said}{files['forward.pt']}-context, 2-CharacterRNN\n" in caplog.text
        caplog.clear()
        kept(files, on_disk=False)
    assert said not in caplog.text


# --- taggers ---


def learned(files: dict[str, str], out: Path, storage: str | None, embeddings: list[str]) -> tuple[list[float], float]:
    """The losses of a tagger's epochs, and its F1 on test."""
    config = TaggerConfig(
        corpus="demo", rnn="tanh0-relu1", embeddings=embeddings, hidden_size=4, epochs=2, storage=storage,
        batch_size=16, learning_rate=0.5, device="cpu",
    )  # fmt: skip
    (result,) = train_taggers(config, out, progress=False)["seeds"]
    lines = (out / "seed-1" / "history.jsonl").read_text().splitlines()
    return [json.loads(line)["train_loss"] for line in lines], result["test_f1"]


def test_where_vectors_are_kept_changes_no_figure(files: dict[str, str], tmp_path: Path) -> None:
    specs = specs_of(files, "one-hot")
    in_memory = learned(files, tmp_path / "memory", None, specs)
    assert in_memory == learned(files, tmp_path / "disk", "disk", specs)
    losses, _ = learned(files, tmp_path / "none", "none", specs)
    assert in_memory[0] == pytest.approx(losses, rel=1e-4)  # in batches of other lengths LSTMs round differently


def test_pooled_embeddings_pool_anew_what_is_kept(files: dict[str, str], tmp_path: Path) -> None:
    """They learn the same as where every vector is computed again, and their language model reads a sentence once."""
    specs = [f"word:{files['words.gensim']}", f"pooled-flair:{files['forward.pt']}"]
    read = 0
    compute = FlairEmbeddings._add_embeddings_internal

    def counted(self: FlairEmbeddings, sentences: list[Sentence]) -> Any:
        nonlocal read
        read += len(sentences)
        return compute(self, sentences)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FlairEmbeddings, "_add_embeddings_internal", counted)
        kept_once, _ = learned(files, tmp_path / "kept", None, specs)
    count = sum(len(sentences_of(getattr(load_corpus("demo").corpus, part))) for part in PARTS)
    assert count <= read < count + 10  # the other few tell how long a vector is
    assert kept_once == pytest.approx(learned(files, tmp_path / "none", "none", specs)[0], rel=1e-4)
