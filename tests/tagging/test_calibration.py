"""Temperature scaling: taggers whose gold labels are drawn from their own probabilities are reliable as they are."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from flair.data import Dictionary, Sentence
from flair.embeddings import HashEmbeddings
from flair.models import SequenceTagger
from hypothesis import given
from hypothesis import strategies as st

from flair_nas.errors import FlairNasError
from flair_nas.onnx import Tagger, export_tagger
from flair_nas.runs.run import read_figures
from flair_nas.tagging.calibration import (
    FIGURES,
    calibrate_tagger,
    describe_calibration,
    divide_scores,
    fit_temperature,
    list_outcomes,
    measure_reliability,
    save_calibrated,
)
from flair_nas.tagging.patches.span_scores import use_probabilities
from flair_nas.tagging.prediction import load_tagger


def make_tagger(crf: bool) -> SequenceTagger:
    """Return an untrained tagger of words."""
    tags = Dictionary(add_unk=False)
    for tag in ("O", "NOUN", "VERB"):
        tags.add_item(tag)
    torch.manual_seed(3)
    tagger = SequenceTagger(HashEmbeddings(100, 6), tags, "pos", hidden_size=4, use_crf=crf).eval()
    with torch.no_grad():
        tagger.linear.weight.mul_(20)
    return use_probabilities(tagger)


def draw_sentences(tagger: SequenceTagger, count: int, seed: int) -> list[Sentence]:
    """Return sentences of one to three words with gold labels that are drawn from a tagger's probabilities."""
    draw, words = np.random.default_rng(seed), range(3)
    sentences = [Sentence([f"w{draw.integers(300)}" for _ in range(1 + n % 3)]) for n in range(count)]
    for sentence in sentences:
        with torch.no_grad():
            features = tagger.forward(*tagger._prepare_tensors([sentence]))
            emissions = features[0][0, :, :, 0] - tagger.crf.transitions[:, 0] if tagger.use_crf else features
        paths = [*itertools.product(words, repeat=len(sentence))]
        scores = np.array([float(emissions[range(len(path)), list(path)].sum()) for path in paths])
        if tagger.use_crf:
            decoder, weights = tagger.viterbi_decoder, tagger.crf.transitions.detach().double()
            ends = [(decoder.start_tag, *path, decoder.stop_tag) for path in paths]
            scores += [sum(float(weights[tag, before]) for before, tag in itertools.pairwise(path)) for path in ends]
        chances = np.exp(scores - np.logaddexp.reduce(scores))
        for token, tag in zip(sentence, paths[draw.choice(len(paths), p=chances)]):
            token.add_label("pos", tagger.label_dictionary.get_item_for_index(tag))
        sentence.clear_embeddings()
    return sentences


@pytest.mark.parametrize("crf", [True, False])
def test_the_temperature_makes_up_for_scores_that_are_too_sure(crf: bool) -> None:
    tagger = make_tagger(crf)
    dev, test = draw_sentences(tagger, 500, 1), draw_sentences(tagger, 500, 2)
    exact = fit_temperature(tagger, dev, "pos")
    assert exact == pytest.approx(1.0, abs=0.15)
    tagger.predict(test, label_name="before")
    divide_scores(tagger, 0.25)
    found = calibrate_tagger(tagger, dev, test, "pos")
    assert found["temperature"] == pytest.approx(4 * exact, rel=2e-3)
    assert found["before"]["error"] > 2 * found["before"]["by_chance"]
    assert found["after"]["error"] < 1.6 * found["after"]["by_chance"]
    tagger.predict(test, label_name="after")
    for sentence in test:
        labels = [[(one.value, one.data_point) for one in sentence.get_labels(name)] for name in ("before", "after")]
        assert labels[0] == labels[1]
    assert f"temperature {found['temperature']:.2f}, fitted on dev; expected calibration" in describe_calibration(found)


def test_a_calibrated_tagger_is_stored_with_its_figures_and_exported(tmp_path: Path) -> None:
    tagger = make_tagger(crf=True)
    dev = draw_sentences(tagger, 300, 1)
    tagger.save(tmp_path / "model.pt")
    divide_scores(tagger, 0.5)
    found = calibrate_tagger(tagger, dev, dev, "pos")
    save_calibrated(tagger, tmp_path, found)
    assert sorted(file.name for file in tmp_path.iterdir()) == [FIGURES, "model.pt"]
    assert read_figures(tmp_path / FIGURES)["temperature"] == found["temperature"]
    again, sentence = load_tagger(tmp_path), Sentence(["w1", "w2", "w3"])
    export_tagger(again, tmp_path / "exported")
    hashed = {"hash": lambda words: np.array(vectors_of(again, words))}
    (spans,) = Tagger(tmp_path / "exported", vectors=hashed).find_spans([["w1", "w2", "w3"]])
    for one in (tagger, again):
        one.predict(sentence)
        scores = [label.score for label in sentence.get_labels("pos")]
        assert scores and scores == pytest.approx([span.score for span in spans], abs=1e-5)


def vectors_of(tagger: SequenceTagger, words: list[str]) -> list[list[float]]:
    sentence = Sentence(words)
    tagger.embeddings.embed(sentence)
    return [token.embedding.tolist() for token in sentence]


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40))
def test_the_error_is_between_the_whole_difference_and_all_single_ones(outcomes: list[tuple[float, bool]]) -> None:
    found = measure_reliability([score for score, _ in outcomes], [right for _, right in outcomes])
    whole = abs(sum(score - right for score, right in outcomes)) / len(outcomes)
    single = sum(abs(score - right) for score, right in outcomes) / len(outcomes)
    assert 100 * whole - 1e-9 <= found.error <= 100 * single + 1e-9
    assert found.labels == len(outcomes) and len(found.bins) == min(15, len(outcomes))


def test_the_error_of_scores_that_are_right_half_the_time_is_known() -> None:
    half = [True, False] * 30
    for score, error in ((0.5, 0), (0.75, 25), (1.0, 50)):
        assert measure_reliability([score] * 60, half).error == pytest.approx(error)
    assert measure_reliability([1.0] * 30, [True] * 30).by_chance == 0


def test_a_tagger_that_finds_nothing_or_little_is_told(caplog: pytest.LogCaptureFixture) -> None:
    tagger = make_tagger(crf=False)
    dev = draw_sentences(tagger, 12, 1)
    with caplog.at_level(logging.WARNING, "flair_nas"):
        fit_temperature(tagger, dev, "pos")
    assert "fitted on so few is mostly chance" in caplog.text
    with torch.no_grad():
        tagger.linear.bias[tagger.label_dictionary.get_idx_for_item("O")] += 1000
    with pytest.raises(FlairNasError, match="finds nothing in dev"):
        fit_temperature(tagger, dev, "pos")
    tagger.predict(dev, label_name="found")
    with pytest.raises(FlairNasError, match="finds nothing, so it has no scores"):
        measure_reliability(*list_outcomes(dev, "found", "pos"))
