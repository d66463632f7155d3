"""Scores of labels as probabilities, against a sum over all paths."""

from __future__ import annotations

import copy
import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from flair.data import Dictionary, Sentence
from flair.embeddings import HashEmbeddings
from flair.models import SequenceTagger
from hypothesis import given, settings
from hypothesis import strategies as st

from flair_nas.tagging.patches.span_scores import use_probabilities
from flair_nas.tagging.prediction import load_tagger


def make_tagger(*labels: str, seed: int = 1, **options: object) -> SequenceTagger:
    """Return an untrained tagger of spans whose emissions are large."""
    torch.manual_seed(seed)
    tags = Dictionary(add_unk=False)
    tags.span_labels = True
    for label in labels:
        tags.add_item(label)
    tagger = SequenceTagger(HashEmbeddings(50, 6), tags, "ner", hidden_size=4, **options)  # type: ignore[arg-type]
    with torch.no_grad():
        tagger.linear.weight.mul_(8)
    return tagger.eval()


def make_sentences(lengths: list[int]) -> list[Sentence]:
    return [Sentence([f"w{place}{row}" for place in range(length)]) for row, length in enumerate(lengths)]


def emissions_of(tagger: SequenceTagger, sentence: Sentence) -> np.ndarray:
    """Return the emissions of one sentence alone, [T, tags]."""
    with torch.no_grad():
        features = tagger.forward(*tagger._prepare_tensors([sentence]))
    if not tagger.use_crf:
        return features.double().numpy()
    start = tagger.crf.transitions[:, 0]  # of a tag after tag 0
    return (features[0][0, :, :, 0] - start).double().detach().numpy()


def share_of_paths(tagger: SequenceTagger, emissions: np.ndarray, first: int, tags: list[int]) -> float:
    """Return the probability that words from the first have these tags, by a sum over all paths."""
    transitions = tagger.crf.transitions.double().detach().numpy()
    decoder = tagger.viterbi_decoder
    words = [number for number in range(len(transitions)) if number not in (decoder.start_tag, decoder.stop_tag)]
    total, agreeing = [], []
    for path in itertools.product(words, repeat=len(emissions)):
        whole = (decoder.start_tag, *path, decoder.stop_tag)
        score = emissions[range(len(path)), path].sum()
        score += sum(transitions[tag, before] for before, tag in itertools.pairwise(whole))
        total.append(score)
        if list(path[first : first + len(tags)]) == tags:
            agreeing.append(score)
    return float(np.exp(np.logaddexp.reduce(agreeing) - np.logaddexp.reduce(total)))


@settings(max_examples=15)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 1000))
def test_the_score_of_a_span_is_its_probability_in_a_ragged_batch(lengths: list[int], seed: int) -> None:
    tagger, sentences = use_probabilities(make_tagger("PER", seed=seed)), make_sentences(lengths)
    tagger.predict(sentences, mini_batch_size=4)
    number = tagger.label_dictionary.get_idx_for_item
    for sentence in sentences:
        emissions = emissions_of(tagger, sentence)
        again = Sentence([token.text for token in sentence])
        tagger.predict(again, force_token_predictions=True)
        tags = {label.data_point.idx - 1: label.value for label in again.get_labels("ner")}
        for label in sentence.get_labels("ner"):
            places = [token.idx - 1 for token in label.data_point]
            numbers = [number(tags[place]) for place in places]
            assert label.score == pytest.approx(share_of_paths(tagger, emissions, places[0], numbers), abs=1e-5)


def test_labels_are_those_of_flair_and_a_copy_has_the_same_scores(tmp_path: Path) -> None:
    for options in ({}, {"use_crf": False}, {"rnn_type": "small-relu-tanh"}, {"tag_format": "BIO"}):
        tagger, sentences = make_tagger("PER", "LOC", **options), make_sentences([7, 3, 5])
        tagger.predict(sentences, label_name="flair")
        use_probabilities(tagger)
        tagger.save(tmp_path / "model.pt")
        copies = {"own": tagger, "copy": copy.deepcopy(tagger), "file": load_tagger(tmp_path)}
        for name, one in [*copies.items(), ("pickle", pickle.loads(pickle.dumps(tagger)))]:
            one.predict(sentences, label_name=name)
        for sentence in sentences:
            of_flair, *others = (sentence.get_labels(name) for name in ("flair", *copies, "pickle"))
            for labels in others:
                assert [(one.value, one.data_point) for one in labels] == [(o.value, o.data_point) for o in of_flair]
                assert [one.score for one in labels] == pytest.approx([one.score for one in others[0]], abs=1e-7)
        assert any(sentence.get_labels("own") for sentence in sentences)


def test_without_crf_the_score_of_a_span_is_the_product_over_its_words() -> None:
    tagger, sentences = use_probabilities(make_tagger("PER", use_crf=False)), make_sentences([6, 2, 6, 5])
    tagger.predict(sentences)
    lengths = set[int]()
    for sentence in sentences:
        best = torch.tensor(emissions_of(tagger, sentence)).softmax(1).amax(1)
        for label in sentence.get_labels("ner"):
            places = [token.idx - 1 for token in label.data_point]
            lengths.add(len(places))
            assert label.score == pytest.approx(float(best[places].prod()), abs=1e-6)
    assert max(lengths) > 1


def test_a_label_of_a_token_has_the_probability_of_its_tag() -> None:
    tags = Dictionary(add_unk=False)
    for tag in ("O", "NOUN", "VERB"):
        tags.add_item(tag)
    torch.manual_seed(1)
    tagger = use_probabilities(SequenceTagger(HashEmbeddings(50, 6), tags, "pos", hidden_size=4)).eval()
    with torch.no_grad():
        tagger.linear.weight.mul_(8)
    (sentence,) = make_sentences([5])
    tagger.predict(sentence, return_probabilities_for_all_classes=True)
    emissions, number = emissions_of(tagger, sentence), tags.get_idx_for_item
    assert sentence.get_labels("pos") and len(sentence[0].get_tags_proba_dist("pos")) == len(tags)
    for label in sentence.get_labels("pos"):
        expected = share_of_paths(tagger, emissions, label.data_point.idx - 1, [number(label.value)])
        assert label.score == pytest.approx(expected, abs=1e-5)
