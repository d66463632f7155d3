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

from flair_nas.tagging.distillation.soft_loss import compute_loss
from flair_nas.tagging.distillation.teachers import Targets, annotate, is_soft, name_tags, pick_targets, to_bioes
from flair_nas.tagging.patches.span_scores import use_probabilities


def make_tagger(crf: bool, seed: int = 1) -> SequenceTagger:
    tags = Dictionary(add_unk=False)
    for tag in ("O", "NOUN", "VERB"):
        tags.add_item(tag)
    torch.manual_seed(seed)
    tagger = SequenceTagger(HashEmbeddings(100, 6), tags, "pos", hidden_size=4, use_crf=crf).eval()
    return use_probabilities(tagger)


def make_sentences(lengths: list[int], draw: np.random.Generator) -> tuple[list[Sentence], dict[int, Targets]]:
    """Return sentences with gold labels, and targets of every other one by its id."""
    sentences, targets = [], {}
    for number, length in enumerate(lengths):
        sentence = Sentence([f"w{draw.integers(300)}" for _ in range(length)])
        for token in sentence:
            token.add_label("pos", ("O", "NOUN", "VERB")[draw.integers(3)])
        if number % 2:
            targets[id(sentence)] = pick_targets(draw.dirichlet(np.ones(3), size=length))
        sentences.append(sentence)
    return sentences, targets


@settings(max_examples=20)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 1000), st.booleans())
def test_the_loss_is_the_mean_over_tag_sequences(lengths: list[int], seed: int, crf: bool) -> None:
    tagger = make_tagger(crf, seed)
    sentences, targets = make_sentences(lengths, np.random.default_rng(seed))
    expected = 0.0
    for sentence in sentences:
        own = targets.get(id(sentence))
        weight = 1.0 if own is None else 0.5
        gold = tagger._prepare_label_tensor([sentence]).tolist()
        for path in itertools.product(range(3), repeat=len(sentence)):
            chance = float([*path] == gold)
            if own is not None:
                chance = float(np.prod([own.chances[n][own.tags[n] == tag].sum() for n, tag in enumerate(path)]))
            labels = torch.tensor(path)
            with torch.no_grad():
                scores = tagger.forward(*tagger._prepare_tensors([sentence]))
                expected += weight * chance * float(tagger._calculate_loss(scores, labels)[0])
    with torch.no_grad():
        loss, words = compute_loss(tagger, sentences, targets, 0.5)
    assert words == sum(lengths)
    assert float(loss) == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_targets_keep_the_likeliest_tags() -> None:
    targets = pick_targets(np.array([[0.1, 0.5, 0.02, 0.38], [0.0, 0.0, 1.0, 0.0]]))
    assert targets.tags[0].tolist() == [1, 3, 0] and targets.tags[1][0] == 2
    np.testing.assert_allclose(targets.chances, [[0.5 / 0.98, 0.38 / 0.98, 0.1 / 0.98], [1, 0, 0]], atol=1e-6)


@pytest.mark.parametrize("crf", [True, False])
def test_teachers_with_the_same_tags_give_the_mean_of_their_probabilities(crf: bool) -> None:
    teachers = [make_tagger(crf, seed) for seed in (1, 2)]
    names = ["VERB", "NOUN", "O", "<STOP>"]  # in another order
    sentences, _ = make_sentences([3, 1, 2], np.random.default_rng(0))
    assert all(is_soft(teacher, names) for teacher in teachers)
    for sentence, targets in zip(sentences, annotate(teachers, sentences, names), strict=True):
        for place in range(len(sentence)):
            mean = np.zeros(3)
            for teacher in teachers:
                sentence.clear_embeddings()  # those of the other have the same name
                with torch.no_grad():
                    features = teacher.forward(*teacher._prepare_tensors([sentence]))
                scores = {}
                for path in itertools.product(range(3), repeat=len(sentence)):
                    with torch.no_grad():
                        loss = float(teacher._calculate_loss(features, torch.tensor(path))[0])
                    scores[path] = np.exp(-loss)
                for path, chance in scores.items():
                    mean[names.index(name_tags(teacher)[path[place]])] += chance / len(teachers)
        found = np.zeros(4)
        found[targets.tags[-1]] = targets.chances[-1]
        np.testing.assert_allclose(found[:3], mean, atol=1e-4)


def test_words_that_all_have_labels_need_no_o() -> None:
    tags = Dictionary(add_unk=False)
    for tag in ("NOUN", "VERB"):
        tags.add_item(tag)
    tagger = use_probabilities(SequenceTagger(HashEmbeddings(100, 6), tags, "pos", hidden_size=4))
    sentence = Sentence(["w1", "w2"])  # without gold labels
    targets = {id(sentence): pick_targets(np.array([[0.9, 0.1], [0.2, 0.8]]))}
    loss, words = compute_loss(tagger, [sentence], targets, 1.0)
    assert words == 2 and float(loss) > 0


def test_a_teacher_with_other_tags_gives_its_best_ones_and_others_count_as_o() -> None:
    assert to_bioes(["B-A", "I-A", "B-A", "O", "B-C", "I-C", "I-C"]) == ["B-A", "E-A", "S-A", "O", "B-C", "I-C", "E-C"]
    tagger = make_tagger(crf=True)
    sentences, _ = make_sentences([4, 2], np.random.default_rng(0))
    names = ["O", "NOUN"]
    assert not is_soft(tagger, names)
    for sentence, targets in zip(sentences, annotate([tagger], sentences, names), strict=True):
        copy = Sentence([token.text for token in sentence])
        tagger.predict(copy)
        wanted = [token.get_label("pos").value for token in copy]
        assert [names[tag] for tag in targets.tags[:, 0]] == [name if name in names else "O" for name in wanted]
