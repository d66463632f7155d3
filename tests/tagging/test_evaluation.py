"""Evaluating taggers: an entity is right when both borders and its type are, and two counts agree on that."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from flair.data import Dictionary, Sentence
from flair.embeddings import WordEmbeddings
from flair.models import SequenceTagger
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from small_tagging import settings, write_corpus

from flair_nas.errors import FlairNasError
from flair_nas.tagging.data.corpora import load_corpus
from flair_nas.tagging.evaluation import TaggerEvaluation, evaluate_tagger, tags_of
from flair_nas.tagging.training import build_tagger

Entity = tuple[int, int, str]  # first token, token after the last, type
TYPES = ("PER", "LOC", "B", "corporate-body", "I_1")


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> SequenceTagger:
    """An untrained tagger that calls nothing an entity."""
    corpus = write_corpus(tmp_path_factory.mktemp("corpus"))
    torch.manual_seed(0)
    tagger = build_tagger(settings(corpus, crf=False), load_corpus(corpus))
    with torch.no_grad():
        tagger.linear.bias[tagger.label_dictionary.get_idx_for_item("O")] = 1e6
    for kind in TYPES:  # known, so that what is counted here is the counting alone
        tagger.label_dictionary.add_item(f"S-{kind}")
    return tagger


def sentences_of(gold: Sequence[Sequence[Entity]], length: int = 8) -> list[Sentence]:
    sentences = [Sentence([f"w{n}" for n in range(length)]) for _ in gold]
    for sentence, entities in zip(sentences, gold, strict=True):
        label(sentence, "ner", entities)
    return sentences


def label(sentence: Sentence, label_type: str, entities: Sequence[Entity]) -> None:
    for start, end, kind in entities:
        sentence[start:end].add_label(label_type, kind)


@contextmanager
def predicting(sentences: Sequence[Sentence], predicted: Sequence[Sequence[Entity]]) -> Iterator[None]:
    """Puts given entities where a tagger would put its own; all that counts them stays as it is."""
    wanted = {id(sentence): entities for sentence, entities in zip(sentences, predicted, strict=True)}

    def predict(self: SequenceTagger, batch: list[Sentence], **_: Any) -> tuple[torch.Tensor, int]:
        for sentence in batch:
            label(sentence, "predicted", wanted[id(sentence)])
        return torch.zeros(1), 1

    with mock.patch.object(SequenceTagger, "predict", predict):
        yield


def evaluate(
    tagger: SequenceTagger, gold: Sequence[Sequence[Entity]], predicted: Sequence[Sequence[Entity]]
) -> TaggerEvaluation:
    sentences = sentences_of(gold)
    with predicting(sentences, predicted):
        return evaluate_tagger(tagger, sentences, "ner", batch_size=2)


@st.composite
def entities(draw: st.DrawFn, length: int = 8) -> list[Entity]:
    """Entities of one sentence, none over another; touching ones too, which column format must keep apart."""
    found: list[Entity] = []
    start = 0
    while start < length:
        size = draw(st.integers(0, 3))
        if size:
            end = min(start + size, length)
            found.append((start, end, draw(st.sampled_from(TYPES))))
            start = end
        else:
            start += 1
    return found


# Counting.


@pytest.mark.slow
@given(st.lists(st.tuples(entities(), entities()), min_size=1, max_size=4).filter(lambda s: any(g for g, _ in s)))
@hypothesis_settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_both_counts_are_those_of_sets_of_entities(
    tagger: SequenceTagger, corpus: list[tuple[list[Entity], list[Entity]]]
) -> None:
    gold = {(n, *entity) for n, (entities, _) in enumerate(corpus) for entity in entities}
    predicted = {(n, *entity) for n, (_, entities) in enumerate(corpus) for entity in entities}
    evaluation = evaluate(tagger, [g for g, _ in corpus], [p for _, p in corpus])
    f1 = 200 * len(gold & predicted) / (len(gold) + len(predicted))
    assert evaluation.f1 == pytest.approx(f1) == evaluation.report["flair"]["micro_f1"]
    figures = evaluation.report["seqeval"]
    assert figures["micro avg"]["f1-score"] == pytest.approx(f1)
    kinds = {entity[-1] for entity in gold}
    assert evaluation.report["label_set"] == sorted(kinds)
    for kind in kinds:
        of_gold, of_predicted = ({e for e in found if e[-1] == kind} for found in (gold, predicted))
        right = len(of_gold & of_predicted)
        assert figures[kind]["support"] == len(of_gold)
        assert figures[kind]["recall"] == pytest.approx(100 * right / len(of_gold))
        assert figures[kind]["precision"] == pytest.approx(100 * right / len(of_predicted) if of_predicted else 0)


@pytest.mark.parametrize(
    ("predicted", "f1"),
    [
        ([(1, 4, "PER")], 100),
        ([(1, 3, "PER")], 0),  # a border
        ([(0, 4, "PER")], 0),
        ([(1, 4, "LOC")], 0),  # the type
        ([(1, 2, "PER"), (2, 4, "PER")], 0),  # two for one
        ([(1, 4, "PER"), (5, 6, "PER")], 200 / 3),  # one too many
        ([], 0),
    ],
)
def test_only_the_same_borders_and_type_are_right(tagger: SequenceTagger, predicted: list[Entity], f1: float) -> None:
    evaluation = evaluate(tagger, [[(1, 4, "PER")]], [predicted])
    assert evaluation.f1 == pytest.approx(f1)
    assert evaluation.report["seqeval"]["PER"]["f1-score"] == pytest.approx(f1)


def test_neighbouring_entities_of_one_type_stay_two(tagger: SequenceTagger) -> None:
    gold = [(0, 2, "LOC"), (2, 3, "LOC"), (4, 5, "PER")]
    (sentence,) = sentences_of([gold])
    assert tags_of(sentence, "ner") == ["B-LOC", "I-LOC", "B-LOC", "O", "B-PER", "O", "O", "O"]
    assert tags_of(sentence, "predicted") == ["O"] * 8
    evaluation = evaluate(tagger, [gold], [[(0, 3, "LOC"), (4, 5, "PER")]])
    assert evaluation.f1 == pytest.approx(200 * 1 / (3 + 2))


def test_the_report_is_json_and_the_table_tells_the_label_set(tagger: SequenceTagger) -> None:
    gold = [[(0, 2, "PER")], [(3, 4, "LOC")], []]
    evaluation = evaluate(tagger, gold, [[(0, 2, "PER")], [(3, 4, "ORG")], [(0, 1, "PER")]])
    report = json.loads(json.dumps(evaluation.report))
    assert report["label_set"] == ["LOC", "PER"] and report["sentences"] == 3
    assert {name for name in report["seqeval"] if "avg" not in name} == {"LOC", "PER", "ORG"}
    assert "label set: LOC, PER" in evaluation.text and "by seqeval (strict) and by Flair: 40.00" in evaluation.text
    (per,) = (line.split() for line in evaluation.text.splitlines() if line.split()[:1] == ["PER"])
    assert per == ["PER", "50.00", "100.00", "66.67", "1"]


def test_overlapping_gold_spans_are_not_counted_two_ways_in_silence(tagger: SequenceTagger) -> None:
    with pytest.raises(FlairNasError, match="seqeval and Flair disagree.*overlapping spans"):
        evaluate(tagger, [[(0, 4, "ORG"), (1, 2, "LOC")]], [[(0, 4, "ORG")]])


# What a tagger really says.


def test_a_tagger_that_finds_nothing_scores_nothing_without_warnings(tagger: SequenceTagger, tmp_path: Path) -> None:
    gold = [[(0, 2, "PER")], [(3, 4, "LOC"), (6, 8, "PER")]]
    sentences, file = sentences_of(gold), tmp_path / "predictions.txt"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluation = evaluate_tagger(tagger, sentences, predictions=file)
    assert (evaluation.f1, evaluation.report["seqeval"]["micro avg"]["recall"]) == (0, 0)
    assert evaluation.report["seqeval"]["PER"]["support"] == 2 and evaluation.loss > 0
    assert not any(sentence.get_labels("predicted") for sentence in sentences)
    assert evaluation.text.endswith(": 0.00\nThe tagger found nothing in these sentences.\n")
    rows = [row.split("\t") for row in file.read_text().splitlines()]
    assert rows[:9] == [["w0", "B-PER", "O"], ["w1", "I-PER", "O"], *([f"w{n}", "O", "O"] for n in range(2, 8)), [""]]
    assert [row[1] for row in rows[9:17]] == tags_of(sentences[1], "ner")


def test_earlier_predictions_are_forgotten(tagger: SequenceTagger) -> None:
    (sentence,) = sentences_of([[(0, 2, "PER")]])
    label(sentence, "predicted", [(0, 2, "PER")])
    assert evaluate_tagger(tagger, [sentence]).f1 == 0


def test_nothing_to_count_is_an_error(tagger: SequenceTagger) -> None:
    with pytest.raises(FlairNasError, match="no sentences to evaluate on"):
        evaluate_tagger(tagger, [])
    with pytest.raises(FlairNasError, match=r"no sentence has the label type 'ner'; there are: none"):
        evaluate_tagger(tagger, sentences_of([[], []]))
    named = sentences_of([[(0, 1, "PER")]])
    label(named[0], "predicted", [(0, 1, "PER")])
    with pytest.raises(FlairNasError, match=r"no sentence has the label type 'np'; there are: \['ner'\]"):
        evaluate_tagger(tagger, named, "np")


# Labels that the tagger does not know.


def test_a_label_that_the_tagger_does_not_know_counts_as_missed(
    tagger: SequenceTagger, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="flair_nas")
    gold = [[(0, 2, "PER")], [(1, 2, "CUTLERY")]]
    assert evaluate(tagger, gold, [[(0, 2, "PER")], [(1, 2, "PER")]]).f1 == pytest.approx(50.0)
    assert re.search("the tagger knows .*LOC.*PER.*; CUTLERY is none of these", caplog.text)
    found = evaluate_tagger(tagger, sentences_of(gold), "ner")  # by the tagger itself, which has no loss for it
    assert (found.f1, found.loss) == (0.0, 0.0) and "CUTLERY" in found.text


def test_labels_of_tokens_do_not_fit_a_tagger_of_spans(tagger: SequenceTagger) -> None:
    sentence = Sentence(["a", "b"])
    for token in sentence:
        token.add_label("ner", "NOUN")
    with pytest.raises(FlairNasError, match="are of tokens, such as 'NOUN', and the tagger gives labels of spans"):
        evaluate_tagger(tagger, [sentence], "ner")


def test_a_tagger_may_have_word_vectors_alone() -> None:
    """Flair's `WordEmbeddings` has an attribute of the name under which a stack has its members."""
    tags = Dictionary(add_unk=False)
    tags.span_labels = True
    tags.add_item("PER")
    embeddings = WordEmbeddings(None, vocab={"w0": 0}, embedding_length=2, name="vectors")
    tagger = SequenceTagger(embeddings, tags, "ner", hidden_size=4, use_rnn=False)
    sentences = sentences_of([[(0, 1, "PER")]])
    assert len(evaluate_tagger(tagger, sentences).report) > 1
