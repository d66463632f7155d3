"""The convolution over characters: its equation, words apart from one another, training, saving and devices."""

from __future__ import annotations

import copy
import dataclasses
import functools
import pickle
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import flair
import numpy as np
import pytest
import torch
from flair.data import Corpus, Sentence
from flair.embeddings import CharacterEmbeddings
from flair.embeddings.base import load_embeddings
from flair.models import SequenceTagger
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from small_tagging import write_corpus
from torch import Tensor

from flair_nas import (
    CharacterCNNEmbeddings,
    FlairNasError,
    TaggerConfig,
    TaggingSearchConfig,
    load_corpus,
    load_tagger,
    search_genotype,
    train_taggers,
)
from flair_nas.tagging import training
from flair_nas.tagging.data.embeddings import build_embeddings

ALPHABET = "aelnstßé\U0001f600"
LETTERS = st.sampled_from(ALPHABET + "xy\0\u200b\U0001f601")
WORDS = st.lists(st.text(LETTERS, min_size=1, max_size=12), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def corpus() -> Corpus[Sentence]:
    return load_corpus("demo").corpus


def make(alphabet: str = ALPHABET, width: int = 6) -> CharacterCNNEmbeddings:
    flair.set_seed(3)
    return CharacterCNNEmbeddings(alphabet, width)


def embed(embeddings: CharacterCNNEmbeddings, *sentences: list[str]) -> list[Tensor]:
    """Return the vectors of sentences, [T, width] each."""
    made = [Sentence(words) for words in sentences]
    embeddings.embed(made)
    return [torch.stack([token.get_embedding([embeddings.name]) for token in sentence]) for sentence in made]


def convolve(embeddings: CharacterCNNEmbeddings, word: str) -> NDArray[np.float64]:
    """Compute the vector of a word by its equation, in float64: 0 is unknown, 1 the mark at both ends."""
    weights = {name: weight.detach().double().numpy() for name, weight in embeddings.state_dict().items()}
    alphabet = sorted(embeddings.alphabet)
    numbers = [1, *(alphabet.index(letter) + 2 if letter in alphabet else 0 for letter in word), 1]
    vectors = weights["characters.weight"][numbers]  # [characters and marks, 25]
    kernel, bias = weights["convolution.weight"], weights["convolution.bias"]  # [width, 25, 3], [width]
    windows = [
        [bias[unit] + sum(kernel[unit, :, k] @ vectors[place + k] for k in range(3)) for unit in range(len(bias))]
        for place in range(len(word))
    ]
    return np.max(windows, axis=0)


@settings(max_examples=50, deadline=None)
@given(words=WORDS)
def test_the_vectors_follow_the_equation(words: list[str]) -> None:
    embeddings = make()
    (vectors,) = embed(embeddings.double(), words)
    np.testing.assert_allclose(vectors.detach(), [convolve(embeddings, word) for word in words], rtol=1e-12, atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(sentences=st.lists(WORDS, min_size=1, max_size=4), data=st.data())
def test_a_vector_depends_on_its_word_alone(sentences: list[list[str]], data: st.DataObject) -> None:
    """Order, batches and words that come twice change no bit."""
    embeddings = make()
    alone = {word: embed(embeddings, [word])[0][0] for words in sentences for word in words}
    shuffled = [data.draw(st.permutations(words)) for words in data.draw(st.permutations(sentences))]
    for words, vectors in zip(shuffled, embed(embeddings, *shuffled), strict=True):
        assert torch.equal(vectors, torch.stack([alone[word] for word in words]))


def test_the_gradient_is_that_of_a_convolution() -> None:
    """Each occurrence of a word adds to it."""
    embeddings, words = make().double(), ["seen", "lß", "seen", "x" * 9, "a"]
    weight = torch.randn(len(words), 6, dtype=torch.float64)
    (embed(embeddings, words)[0] * weight).sum().backward()
    found = [parameter.grad.clone() for parameter in embeddings.parameters() if parameter.grad is not None]
    embeddings.zero_grad()
    total = torch.zeros((), dtype=torch.float64)
    for word, row in zip(words, weight):
        numbers = torch.tensor([1, *(embeddings.alphabet.find(letter) + 2 or 1 for letter in word), 1])
        numbers = torch.where(torch.tensor([0, *(letter not in ALPHABET for letter in word), 0]).bool(), 0, numbers)
        states = embeddings.convolution(embeddings.characters(numbers).T[None])[0]  # [width, windows]
        total = total + (states.max(dim=1).values * row).sum()
    total.backward()
    for gradient, parameter in zip(found, embeddings.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-10, atol=1e-12)


def test_a_long_word_takes_memory_for_itself_alone() -> None:
    """A padded batch would take 300 MB."""
    embeddings, words = make(width=50), [f"word{number}" for number in range(300)]
    tracemalloc.start()
    embed(embeddings, ["a" * 5000, *words])
    assert tracemalloc.get_traced_memory()[1] < 10_000_000  # of NumPy
    tracemalloc.stop()
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
        embed(embeddings, ["a" * 5000, *words])
    assert max(sizes) < 400_000 and sum(sizes) < 2_000_000


def test_the_end_of_a_long_word_counts() -> None:
    first, second = embed(make(), ["a" * 5000 + "te", "a" * 5000 + "et"])[0]
    assert not torch.equal(first, second)


def test_rare_characters_train_the_unknown_one(corpus: Corpus[Sentence]) -> None:
    sentences = [Sentence(["ab", "a!"]), Sentence(["b?"])]
    embeddings = CharacterCNNEmbeddings.from_corpus(Corpus(sentences, sample_missing_splits=False))
    assert embeddings.alphabet == "ab"
    (vectors,) = embed(embeddings, ["!", "?", "a"])
    assert torch.equal(vectors[0], vectors[1]) and not torch.equal(vectors[0], vectors[2])
    assert CharacterCNNEmbeddings.from_corpus(Corpus(sentences, sample_missing_splits=False), 1).alphabet == "!?ab"
    counts = [letter for sentence in corpus.train for token in sentence for letter in token.text]
    (built,) = build_embeddings(["char"], corpus).embeddings
    assert built.alphabet == "".join(sorted({letter for letter in counts if counts.count(letter) > 1}))


def test_an_empty_alphabet_embeds() -> None:
    (vectors,) = embed(make(""), ["a", "b", "aa"])
    assert torch.equal(vectors[0], vectors[1]) and vectors.isfinite().all()


def test_a_seed_decides_on_the_weights(corpus: Corpus[Sentence]) -> None:
    vectors = []
    for seed in (1, 1, 2):
        flair.set_seed(seed)
        vectors.append(embed(CharacterCNNEmbeddings.from_corpus(corpus), ["seen"])[0])
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
    embeddings = CharacterCNNEmbeddings(ALPHABET[::-1], 6, name="other")
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
    assert "CharacterCNN" in done.stdout


FORMER = functools.partial(build_embeddings, former_char=True)  # as version 0.1 built them


@pytest.mark.slow
def test_a_run_that_began_with_the_lstm_of_flair_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in seeds that are added later."""
    sizes: dict[str, Any] = {"rnn": "small-tanh", "embeddings": ["one-hot", "char"], "hidden_size": 4, "batch_size": 64}
    config = TaggerConfig(corpus="demo", **sizes, epochs=1, device="cpu")
    with monkeypatch.context() as patch:
        patch.setattr(training, "build_embeddings", lambda specs, corpus, **_: FORMER(specs, corpus))
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
        patch.setattr(training, "build_embeddings", lambda specs, corpus, **_: FORMER(specs, corpus))
        search_genotype(config, tmp_path / "run", progress=False)
    with pytest.raises(FlairNasError, match="weights of Flair's CharacterEmbeddings, which `char` was up to version"):
        search_genotype(dataclasses.replace(config, epochs=2), tmp_path / "run", progress=False)
