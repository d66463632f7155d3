"""English word vectors of the package: the same everywhere, read without a cache, and refused if they are others."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import flair
import numpy as np
import pytest
import torch
from flair.data import Corpus, Dictionary, Sentence
from flair.datasets import FlairDatapointDataset
from flair.models import SequenceTagger

from flair_nas import EnglishEmbeddings, FlairNasError, SubwordEmbeddings, load_tagger, resource_path
from flair_nas.tagging.data import table_embeddings
from flair_nas.tagging.data.corpora import load_corpus
from flair_nas.tagging.data.embedding_folder import TABLE, write_about, write_table
from flair_nas.tagging.data.embeddings import build_embeddings
from flair_nas.tagging.data.frozen_embeddings import frozen_members, is_kept, keep_frozen
from flair_nas.tagging.data.table_embeddings import TableEmbeddings
from flair_nas.tagging.safe_file import read_safe, write_safe

WORDS = ["The", "the", "London", "london", "Kreeg", "kreeg", "Zzqxv", "é", "\U0001f600", "n't", "42"]
SUM = "40435e1dc077515a6307d02463d8cabcb97e6ef8081956f125d679f0dc0d665b"


def embed(embeddings: TableEmbeddings, words: list[str]) -> torch.Tensor:
    sentence = Sentence(words)
    embeddings.embed(sentence)
    return torch.stack([token.get_embedding() for token in sentence])


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the table, a copy."""
    folder = tmp_path / "english"
    shutil.copytree(resource_path("embeddings", "english"), folder)
    monkeypatch.setattr(table_embeddings, "resource_path", lambda *parts: folder)
    return folder


def make_tagger(rnn: str = "small-tanh", embeddings: str = "english") -> SequenceTagger:
    flair.set_seed(1)
    tags = Dictionary(add_unk=False)
    for tag in ("PER", "LOC"):
        tags.add_item(tag)
    tags.span_labels = True
    stack = build_embeddings([embeddings], load_corpus("demo").corpus)
    return SequenceTagger(stack, tags, "ner", hidden_size=4, rnn_type=rnn)


def emissions(tagger: SequenceTagger) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = tagger.eval().forward(*tagger._prepare_tensors([Sentence(WORDS)]))[0]
    return found


def test_words_have_vectors_in_all_their_spellings() -> None:
    vectors = embed(EnglishEmbeddings(), WORDS)
    the, small_the, london, small_london, odd, small_odd, unknown = vectors[:7]
    for word, small in ((the, small_the), (london, small_london), (odd, small_odd)):
        assert torch.equal(word, small) and word.any()
    assert not unknown.any()
    similarity = torch.cosine_similarity(london, embed(EnglishEmbeddings(), ["Paris", "banana"]))
    assert similarity[0] > similarity[1] + 0.2
    assert hashlib.sha256(vectors.numpy().tobytes()).hexdigest() == SUM  # on every machine


def test_vectors_are_frozen_and_copies_have_the_same() -> None:
    embeddings = EnglishEmbeddings()
    assert frozen_members(embeddings) == [embeddings] and embeddings.embedding_length == embeddings.table.width
    assert torch.equal(embed(copy.deepcopy(embeddings), WORDS), embed(embeddings, WORDS))


def test_a_known_part_of_an_english_corpus() -> None:
    corpus = load_corpus("demo").corpus
    words = [token.text for sentence in corpus.test for token in sentence]  # type: ignore[union-attr]
    known = embed(EnglishEmbeddings(), words).any(dim=1).float().mean()
    assert known > 0.95


@pytest.mark.parametrize(
    ("text", "is_warned"),
    [("Der Bundestag beschloss am Donnerstag ein Gesetz", True), ("The council passed a law on Thursday", False)],
)
def test_a_corpus_of_another_language_is_told(text: str, is_warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    dataset = FlairDatapointDataset([Sentence(text)])
    build_embeddings(["english"], Corpus(dataset, dataset, dataset))
    assert ("different words of the corpus; are they of its language?" in caplog.text) == is_warned


@pytest.mark.parametrize("rnn", ["small-tanh", "LSTM"])
def test_a_saved_tagger_refers_to_the_vectors(rnn: str, tmp_path: Path) -> None:
    tagger = make_tagger(rnn)
    tagger.save(tmp_path / "model.pt")
    write_safe(tagger, tmp_path)
    expected = emissions(tagger)
    for loaded in (read_safe(tmp_path), load_tagger(tmp_path / "model.pt")):
        assert torch.equal(emissions(loaded), expected)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 3_000_000
    (saved,) = json.loads((tmp_path / "config.json").read_text())["embeddings"]["embeddings"]
    checksum = json.loads(resource_path("embeddings", "english", "embedding.json").read_text())["files"]
    assert saved == {"__cls__": "EnglishEmbeddings", "name": "0-english", "checksum": checksum["table.safetensors"]}


@pytest.mark.slow
def test_flair_alone_loads_a_saved_tagger(tmp_path: Path) -> None:
    make_tagger("LSTM").save(tmp_path / "model.pt")
    script = (
        "import sys; from flair.models import SequenceTagger; assert 'flair_nas' not in sys.modules; "
        f"print(SequenceTagger.load({str(tmp_path / 'model.pt')!r}).embeddings.embeddings[0].name)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout.splitlines()[-1:] == ["0-english"], run.stderr


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of word vectors with parts of words."""
    random, folder = np.random.default_rng(1), tmp_path / "own"
    folder.mkdir()
    rows, vectors, parts = {"the": 0, "London": 1}, random.normal(size=(2, 6)), random.normal(size=(32, 6))
    write_about(
        folder,
        {"name": "own"} | write_table(folder / TABLE, rows, vectors.astype(np.float32), parts.astype(np.float32)),
    )
    return folder


@pytest.mark.parametrize("rnn", ["small-tanh", "LSTM"])
def test_a_saved_tagger_holds_the_vectors_of_ones_own_text(rnn: str, tmp_path: Path, own: Path) -> None:
    tagger = make_tagger(rnn, str(own))
    tagger.save(tmp_path / "model.pt")
    write_safe(tagger, tmp_path)
    expected, vectors = emissions(tagger), embed(SubwordEmbeddings(own), WORDS)
    assert vectors.any(dim=1).all()
    shutil.rmtree(own)
    for loaded in (read_safe(tmp_path), load_tagger(tmp_path / "model.pt")):
        assert torch.equal(emissions(loaded), expected)
        assert torch.equal(emissions(copy.deepcopy(loaded)), expected)
        (member,) = loaded.embeddings.embeddings
        assert member.name == "0-own" and torch.equal(embed(member, WORDS), vectors)


def test_other_vectors_of_ones_own_are_not_those_in_the_cache(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path))
    embeddings, corpus = SubwordEmbeddings(own), load_corpus("demo")
    keep_frozen(embeddings, corpus, on_disk=True)
    assert is_kept(SubwordEmbeddings(own), corpus)
    embeddings.data[-1] ^= 1
    assert not is_kept(embeddings, corpus)


def test_other_vectors_are_not_those_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path))
    embeddings, corpus = EnglishEmbeddings(), load_corpus("demo")
    keep_frozen(embeddings, corpus, on_disk=True)
    assert is_kept(embeddings, corpus)
    embeddings.checksum = "0" * 64
    assert not is_kept(embeddings, corpus)


def test_a_tagger_of_other_vectors_is_refused(tmp_path: Path, table: Path) -> None:
    tagger = make_tagger()
    tagger.save(tmp_path / "model.pt")
    write_safe(tagger, tmp_path)
    about = table / "embedding.json"
    before = tagger.embeddings.embeddings[0].checksum
    data = (table / "table.safetensors").read_bytes()
    (table / "table.safetensors").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))  # another version, with its checksum
    after = hashlib.sha256((table / "table.safetensors").read_bytes()).hexdigest()
    about.write_text(about.read_text().replace(before, after))
    for load in (lambda: read_safe(tmp_path), lambda: load_tagger(tmp_path / "model.pt")):
        with pytest.raises(
            FlairNasError,
            match=f"another version of the English word vectors \\({before[:8]}, here {after[:8]}\\); "
            "install the version of flair-nas that trained it",
        ):
            load()


def test_a_damaged_table_is_refused(table: Path) -> None:
    file, about = table / "table.safetensors", table / "embedding.json"
    data, text = file.read_bytes(), about.read_text()
    for damaged in (data[:-1], data[: len(data) // 2], b"", data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]):
        file.write_bytes(damaged)
        with pytest.raises(FlairNasError, match=r"table.safetensors: is damaged, or of another version .*reinstall"):
            EnglishEmbeddings()
    file.unlink()
    with pytest.raises(FlairNasError, match=r"table.safetensors: cannot be read .*; reinstall flair-nas"):
        EnglishEmbeddings()
    file.write_bytes(data)
    for damaged_text in (text[:50], "", "[]", "{}"):
        about.write_text(damaged_text)
        with pytest.raises(FlairNasError, match=r"embedding.json: is missing or damaged .*; reinstall flair-nas"):
            EnglishEmbeddings()
    about.write_text(text.replace('"version": 1', '"version": 2'))
    with pytest.raises(FlairNasError, match=r"embedding.json: version 2 is not known here; update flair-nas"):
        EnglishEmbeddings()
    about.unlink()
    with pytest.raises(FlairNasError, match=r"embedding.json: is missing or damaged .*; reinstall flair-nas"):
        EnglishEmbeddings()
    about.write_text(text)
    assert embed(EnglishEmbeddings(), ["the"]).any()


@pytest.mark.slow
def test_two_processes_read_them_at_once_without_a_home() -> None:
    """Nothing is unpacked: there is no cache that could be full, locked or half-written."""
    script = (
        "import hashlib, sys; from flair.data import Sentence; from flair_nas import EnglishEmbeddings\n"
        f"s = Sentence({WORDS!r}); EnglishEmbeddings().embed(s)\n"
        "print(hashlib.sha256(b''.join(t.get_embedding().numpy().tobytes() for t in s)).hexdigest())"
    )
    nowhere = dict.fromkeys(("HOME", "FLAIR_NAS_CACHE", "FLAIR_CACHE_ROOT", "XDG_CACHE_HOME"), "/dev/null/none")
    command = [sys.executable, "-c", script]
    processes = [
        subprocess.Popen(command, env=os.environ | nowhere, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [process.communicate()[0].strip() for process in processes] == [SUM, SUM]
