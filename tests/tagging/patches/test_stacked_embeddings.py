"""Vectors of stacked embeddings are joined in one order, before a model is saved and after."""

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
from flair.models import SequenceTagger
from gensim.models import FastText

from flair_nas import DocumentRNNEmbeddings, FlairNasError
from flair_nas.tagging.data.corpora import load_corpus
from flair_nas.tagging.data.embedding_names import name_in_order
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


def fast_text(corpus: Corpus, folder: Path) -> TokenEmbeddings:
    words = [[token.text for token in sentence] for sentence in corpus.train]
    FastText(words, vector_size=4, min_count=1, bucket=100, epochs=1, workers=1).wv.save(str(folder / "vectors"))
    return FastTextEmbeddings(str(folder / "vectors"), use_local=True)


@pytest.mark.parametrize("stack", [*STACKS, "fastText last"])
def test_a_tagger_reads_the_same_when_it_is_loaded(corpus: Corpus, tmp_path: Path, stack: str) -> None:
    flair.set_seed(1)
    if stack in STACKS:
        members = STACKS[stack](corpus)
    else:
        members = [CharacterEmbeddings(_alphabet(corpus)), one_hot(corpus), fast_text(corpus, tmp_path)]
    name_in_order(members)
    tagger = SequenceTagger(
        StackedEmbeddings(members, overwrite_names=False),
        corpus.make_label_dictionary("ner", add_unk=False),
        "ner",
        rnn_type="tanh0-relu1",
        hidden_size=8,
    ).eval()
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
        name_in_order([one_hot(corpus), one_hot(corpus)])
