"""The recurrent layer over characters: its equation, words apart from one another, training, saving and devices."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import flair
import numpy as np
import pytest
import torch
from flair.data import Corpus, Sentence
from flair.embeddings import CharacterEmbeddings, StackedEmbeddings
from flair.embeddings.base import load_embeddings
from flair.models import SequenceTagger
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_tagging import write_corpus
from torch import Tensor

from flair_nas import (
    CharacterRNNEmbeddings,
    FlairNasError,
    TaggerConfig,
    TaggingSearchConfig,
    load_corpus,
    load_tagger,
    search_genotype,
    train_taggers,
)
from flair_nas.tagging import training
from flair_nas.tagging.data.embeddings import FORMER_CHAR, build_embeddings

ALPHABET = "aelnstßé\U0001f600"
LETTERS = st.sampled_from(ALPHABET + "xy\0\u200b\U0001f601")
WORDS = st.lists(st.text(LETTERS, min_size=1, max_size=12), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def corpus() -> Corpus[Sentence]:
    return load_corpus("demo").corpus


def make(alphabet: str = ALPHABET, width: int = 6) -> CharacterRNNEmbeddings:
    flair.set_seed(3)
    return CharacterRNNEmbeddings(alphabet, width)


def embed(embeddings: CharacterRNNEmbeddings, *sentences: list[str]) -> list[Tensor]:
    """Return the vectors of sentences, [T, width] each."""
    made = [Sentence(words) for words in sentences]
    embeddings.embed(made)
    return [torch.stack([token.get_embedding([embeddings.name]) for token in sentence]) for sentence in made]


def read(embeddings: CharacterRNNEmbeddings, word: str) -> NDArray[np.float64]:
    """Compute the vector of a word by minGRU's equations, in float64; 0 is the number of an unknown character."""
    weights = {name: weight.detach().double().numpy() for name, weight in embeddings.state_dict().items()}
    alphabet = sorted(embeddings.alphabet)
    numbers = [alphabet.index(letter) + 1 if letter in alphabet else 0 for letter in word]
    ends = []
    for direction in range(2):
        weight, bias = (weights[f"layer.cells.{direction}.{name}"] for name in ("weight_input", "bias"))
        state = np.zeros(len(bias) // 2)
        for number in reversed(numbers) if direction else numbers:
            gate, candidate = np.split(weights["characters.weight"][number] @ weight + bias, 2)
            update = 1 / (1 + np.exp(-gate))
            state = (1 - update) * state + update * np.tanh(candidate)
        ends.append(state)
    return np.concatenate(ends)


@settings(max_examples=50, deadline=None)
@given(words=WORDS)
def test_the_vectors_follow_the_equations(words: list[str]) -> None:
    embeddings = make()
    (vectors,) = embed(embeddings.double(), words)
    np.testing.assert_allclose(vectors.detach(), [read(embeddings, word) for word in words], rtol=1e-12, atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(sentences=st.lists(WORDS, min_size=1, max_size=4), data=st.data())
def test_a_vector_depends_on_its_word_alone(sentences: list[list[str]], data: st.DataObject) -> None:
    """Neither order nor batches matter, nor words that come twice."""
    embeddings = make().double()
    alone = {word: embed(embeddings, [word])[0][0] for words in sentences for word in words}
    shuffled = [data.draw(st.permutations(words)) for words in data.draw(st.permutations(sentences))]
    for words, vectors in zip(shuffled, embed(embeddings, *shuffled), strict=True):
        expected = torch.stack([alone[word] for word in words])
        torch.testing.assert_close(vectors, expected, rtol=1e-13, atol=1e-13)


def test_each_occurrence_of_a_word_adds_to_the_gradient() -> None:
    embeddings, words = make().double(), ["seen", "lß", "seen", "x" * 9, "a"]
    weight = torch.randn(len(words), 6, dtype=torch.float64)
    gradients = []
    for parts in ([words], [[word] for word in words]):
        vectors = torch.cat([embed(embeddings, part)[0] for part in parts])
        gradients.append(torch.autograd.grad((vectors * weight).sum(), [*embeddings.parameters()]))
    for together, apart in zip(*gradients, strict=True):
        torch.testing.assert_close(together, apart, rtol=1e-12, atol=1e-12)
        assert together.any()


def test_a_long_word_takes_memory_for_itself_alone() -> None:
    """A padded batch would have 1.5 million characters."""
    embeddings, words = make(width=50), ["a" * 5000, *(f"word{number}" for number in range(300))]
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
        embed(embeddings, words)
    assert max(sizes) < 500_000 and sum(sizes) < 3_000_000


def test_no_word_is_cut() -> None:
    embeddings = make()
    for words in (["te" + "a" * 5000, "et" + "a" * 5000], ["a" * 5000 + "te", "a" * 5000 + "et"]):
        first, second = embed(embeddings, words)[0]
        assert (first - second).abs().max() > 1e-3


def test_an_odd_width_is_refused() -> None:
    with pytest.raises(FlairNasError, match="embedding_length must be an even number from 2 on, got 5"):
        CharacterRNNEmbeddings("ab", 5)


def test_rare_characters_train_the_unknown_one(corpus: Corpus[Sentence]) -> None:
    sentences = [Sentence(["ab", "a!"]), Sentence(["b?"])]
    embeddings = CharacterRNNEmbeddings.from_corpus(Corpus(sentences, sample_missing_splits=False))
    assert embeddings.alphabet == "ab"
    (vectors,) = embed(embeddings, ["!", "?", "a"])
    torch.testing.assert_close(vectors[0], vectors[1])
    assert (vectors[0] - vectors[2]).abs().max() > 0.01
    assert CharacterRNNEmbeddings.from_corpus(Corpus(sentences, sample_missing_splits=False), 1).alphabet == "!?ab"
    counts = [letter for sentence in corpus.train for token in sentence for letter in token.text]
    (built,) = build_embeddings(["char"], corpus).embeddings
    assert built.alphabet == "".join(sorted({letter for letter in counts if counts.count(letter) > 1}))


def test_an_empty_alphabet_embeds() -> None:
    (vectors,) = embed(make(""), ["a", "b", "aa"])
    torch.testing.assert_close(vectors[0], vectors[1])
    assert (vectors[0] - vectors[2]).abs().max() > 1e-3


def test_a_seed_decides_on_the_weights(corpus: Corpus[Sentence]) -> None:
    vectors = []
    for seed in (1, 1, 2):
        flair.set_seed(seed)
        vectors.append(embed(CharacterRNNEmbeddings.from_corpus(corpus), ["seen"])[0])
    assert torch.equal(vectors[0], vectors[1]) and not torch.equal(vectors[0], vectors[2])


@pytest.mark.parametrize(
    "copied",
    [
        copy.deepcopy,
        lambda embeddings: pickle.loads(pickle.dumps(embeddings)),
        lambda embeddings: load_embeddings(pickle.loads(pickle.dumps(embeddings.save_embeddings()))),
    ],
    ids=["deepcopy", "pickle", "parameters"],
)
def test_copies_are_equal(copied) -> None:
    embeddings = CharacterRNNEmbeddings(ALPHABET[::-1], 6, name="other")
    other = copied(embeddings)
    assert other.name == "other" and other.embedding_length == 6
    assert torch.equal(*embed(embeddings, ["lästern", "x"]), *embed(other, ["lästern", "x"]))


@pytest.mark.parametrize("rnn_type", ["LSTM", "small-tanh"])
def test_a_saved_tagger_loads_by_flair_alone(corpus: Corpus[Sentence], tmp_path: Path, rnn_type: str) -> None:
    dictionary = corpus.make_label_dictionary("ner", add_unk=False)
    tagger = SequenceTagger(build_embeddings(["char"], corpus), dictionary, "ner", rnn_type=rnn_type, hidden_size=4)
    tagger.save(tmp_path / "tagger.pt")
    script = f"from flair.models import SequenceTagger as T; print(T.load({str(tmp_path / 'tagger.pt')!r}).embeddings)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "CharacterRNN" in done.stdout


def build_former(specs: list[str], corpus: Corpus[Sentence]) -> StackedEmbeddings:
    """Build embeddings as version 0.1 did."""
    return build_embeddings([FORMER_CHAR if spec == "char" else spec for spec in specs], corpus)


@pytest.mark.slow
def test_a_run_that_began_with_the_lstm_of_flair_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in seeds that are added later."""
    sizes: dict[str, Any] = {"rnn": "small-tanh", "embeddings": ["one-hot", "char"], "hidden_size": 4, "batch_size": 64}
    config = TaggerConfig(corpus=write_corpus(tmp_path / "corpus"), **sizes, epochs=1, device="cpu")
    with monkeypatch.context() as patch:
        patch.setattr(training, "build_embeddings", build_former)
        train_taggers(config, tmp_path / "run", parts=(), progress=False)
        shutil.copytree(tmp_path / "run", tmp_path / "other")
        longer = dataclasses.replace(config, epochs=2, seeds=[1, 2])
        expected = train_taggers(longer, tmp_path / "run", parts=(), progress=False)
    found = train_taggers(longer, tmp_path / "other", parts=(), progress=False)
    for one, other in zip(found["seeds"], expected["seeds"], strict=True):
        assert (one["dev_f1"], one["parameters"]) == (other["dev_f1"], other["parameters"])
    for part in ("", "seed-2"):
        assert type(load_tagger(tmp_path / "other" / part).embeddings.embeddings[1]) is CharacterEmbeddings


def test_a_search_that_began_with_the_lstm_of_flair_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: dict[str, Any] = {"hidden_size": 4, "nodes": 1, "batch_size": 4, "epochs": 1, "device": "cpu"}
    config = TaggingSearchConfig(corpus=write_corpus(tmp_path / "corpus"), embeddings=["char"], **sizes)
    with monkeypatch.context() as patch:
        patch.setattr(training, "build_embeddings", build_former)
        search_genotype(config, tmp_path / "run", progress=False)
    with pytest.raises(FlairNasError, match="weights of Flair's CharacterEmbeddings, which `char` was up to version"):
        search_genotype(dataclasses.replace(config, epochs=2), tmp_path / "run", progress=False)
