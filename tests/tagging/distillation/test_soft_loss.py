"""The loss of targets that are probabilities, against the mean over all tag sequences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from flair.data import Dictionary, Sentence
from flair.embeddings import HashEmbeddings
from flair.models import SequenceTagger
from hypothesis import given, settings
from hypothesis import strategies as st

from flair_nas.tagging.distillation.soft_loss import ATTRIBUTE, dense, use_soft_loss
from flair_nas.tagging.distillation.teachers import Targets
from flair_nas.tagging.patches.span_scores import use_probabilities


def make_tagger(crf: bool, seed: int = 1) -> SequenceTagger:
    tags = Dictionary(add_unk=False)
    for tag in ("O", "NOUN", "VERB"):
        tags.add_item(tag)
    torch.manual_seed(seed)
    tagger = SequenceTagger(HashEmbeddings(100, 6), tags, "pos", hidden_size=4, use_crf=crf).eval()
    return use_probabilities(tagger)


def make_sentences(tagger: SequenceTagger, lengths: list[int], draw: np.random.Generator) -> list[Sentence]:
    """Return sentences with gold labels, every other one with targets of a teacher."""
    sentences = []
    for number, length in enumerate(lengths):
        sentence = Sentence([f"w{draw.integers(300)}" for _ in range(length)])
        for token in sentence:
            token.add_label("pos", ("O", "NOUN", "VERB")[draw.integers(3)])
        if number % 2:
            marginals = np.zeros((length, len(tagger.label_dictionary)))
            marginals[:, :3] = draw.dirichlet(np.ones(3), size=length)
            setattr(sentence, ATTRIBUTE, Targets(marginals))
        sentences.append(sentence)
    return sentences


@settings(max_examples=20)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 1000), st.booleans())
def test_the_loss_is_the_mean_over_tag_sequences(lengths: list[int], seed: int, crf: bool) -> None:
    tagger = make_tagger(crf, seed)
    sentences = make_sentences(tagger, lengths, np.random.default_rng(seed))
    expected = 0.0
    for sentence in sentences:
        weight = 0.5 if hasattr(sentence, ATTRIBUTE) else 1.0
        gold = tagger._prepare_label_tensor([sentence]).tolist()
        (targets,) = dense(tagger, [sentence], gold)
        for path in itertools.product(range(3), repeat=len(sentence)):
            chance = float(targets[range(len(path)), list(path)].prod())
            labels = torch.tensor(path)
            with torch.no_grad():
                scores = tagger.forward(*tagger._prepare_tensors([sentence]))
                expected += weight * chance * float(tagger._calculate_loss(scores, labels)[0])
    with torch.no_grad():
        loss, words = use_soft_loss(tagger, 0.5).forward_loss(sentences)
    assert words == sum(lengths)
    assert float(loss) == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_targets_keep_the_likeliest_tags() -> None:
    targets = Targets(np.array([[0.1, 0.5, 0.02, 0.38], [0.0, 0.0, 1.0, 0.0]]))
    assert targets.tags[0].tolist() == [1, 3, 0] and targets.tags[1][0] == 2
    np.testing.assert_allclose(targets.chances, [[0.5 / 0.98, 0.38 / 0.98, 0.1 / 0.98], [1, 0, 0]], atol=1e-6)
