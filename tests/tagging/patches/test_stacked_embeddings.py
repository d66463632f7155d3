"""A tagger reads a stack of embeddings in one order, before it is saved and after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import flair
import pytest
import torch
from flair.data import Corpus, Sentence
from flair.embeddings import (
    CharacterEmbeddings,
    FastTextEmbeddings,
    HashEmbeddings,
    OneHotEmbeddings,
    StackedEmbeddings,
    TokenEmbeddings,
)
from flair.embeddings.document import DocumentRNNEmbeddings
from flair.models import SequenceTagger
from gensim.models import FastText

import flair_nas  # noqa: F401  # registers
from flair_nas import FlairNasError
from flair_nas.tagging.data.corpora import load_corpus
from flair_nas.tagging.data.embeddings import _alphabet

SENTENCE = "Dr Helen Marsh opened the Harvest Festival in Leeds ."
Make = Callable[[Corpus], list[TokenEmbeddings]]


def one_hot(corpus: Corpus) -> TokenEmbeddings:
    embeddings: TokenEmbeddings = OneHotEmbeddings.from_corpus(corpus, min_freq=2, embedding_length=8)
    return embeddings


STACKS: dict[str, Make] = {
    "one-hot first": lambda corpus: [one_hot(corpus), CharacterEmbeddings(_alphabet(corpus))],
    "one-hot last": lambda corpus: [CharacterEmbeddings(_alphabet(corpus)), one_hot(corpus)],
    "two without names": lambda corpus: [
        one_hot(corpus),
        CharacterEmbeddings(_alphabet(corpus)),
        HashEmbeddings(100, 8),
    ],
}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load_corpus("demo").corpus


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("rnn_type", ["darts-v2", "tanh0-relu1", "LSTM"])
def test_a_tagger_of_flairs_own_scripts_reads_the_same_when_it_is_loaded(
    corpus: Corpus, tmp_path: Path, stack: str, rnn_type: str
) -> None:
    flair.set_seed(1)
    tagger = SequenceTagger(
        StackedEmbeddings(STACKS[stack](corpus)),
        corpus.make_label_dictionary("ner", add_unk=False),
        "ner",
        rnn_type=rnn_type,
        hidden_size=8,
    ).eval()
    tagger.save(tmp_path / "model.pt")
    loaded = SequenceTagger.load(tmp_path / "model.pt").eval()
    with torch.no_grad():
        before, after = (model.forward(*model._prepare_tensors([Sentence(SENTENCE)]))[0] for model in (tagger, loaded))
    assert torch.equal(before, after)


def test_what_flair_alone_has_trained_is_read_as_it_was(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is renamed in a tagger that is loaded: it was trained with its input in that order."""
    words = [[token.text for token in sentence] for sentence in corpus.train]
    FastText(words, vector_size=4, min_count=1, bucket=100, epochs=1, workers=1).wv.save(str(tmp_path / "vectors"))
    stack = [CharacterEmbeddings(_alphabet(corpus)), FastTextEmbeddings(str(tmp_path / "vectors"), use_local=True)]
    dictionary = corpus.make_label_dictionary("ner", add_unk=False)
    flair.set_seed(1)
    with monkeypatch.context() as patch:
        patch.setattr("flair_nas.tagging.patches.stacked_embeddings.keep_order", lambda *_, **__: None)
        tagger = SequenceTagger(StackedEmbeddings(stack), dictionary, "ner", rnn_type="LSTM", hidden_size=8).eval()
    tagger.save(tmp_path / "model.pt")
    loaded = SequenceTagger.load(tmp_path / "model.pt").eval()
    with torch.no_grad():
        before, after = (model.forward(*model._prepare_tensors([Sentence(SENTENCE)]))[0] for model in (tagger, loaded))
    assert torch.equal(before, after)


def test_embeddings_of_documents_read_the_same_when_they_are_loaded(corpus: Corpus) -> None:
    flair.set_seed(1)
    made = DocumentRNNEmbeddings(STACKS["one-hot first"](corpus), hidden_size=8, rnn_type="darts-v2").eval()
    loaded = DocumentRNNEmbeddings.load_embedding(made.save_embeddings()).eval()
    vectors = []
    for embeddings in (made, loaded):
        sentence = Sentence(SENTENCE)
        embeddings.embed(sentence)
        vectors.append(sentence.embedding)
    assert torch.equal(*vectors)


def test_two_that_would_have_one_name_are_refused(corpus: Corpus) -> None:
    with pytest.raises(FlairNasError, match="2 embeddings of the stack would be called 'one-hot-text'"):
        SequenceTagger(
            StackedEmbeddings([one_hot(corpus), one_hot(corpus)]),
            corpus.make_label_dictionary("ner", add_unk=False),
            "ner",
            rnn_type="darts-v2",
        )


def test_flairs_own_layers_are_warned_of_what_cannot_be_mended(corpus: Corpus) -> None:
    dictionary = corpus.make_label_dictionary("ner", add_unk=False)
    with pytest.warns(UserWarning, match="2 embeddings of the stack would be called 'one-hot-text'"):
        SequenceTagger(StackedEmbeddings([one_hot(corpus), one_hot(corpus)]), dictionary, "ner", rnn_type="LSTM")
