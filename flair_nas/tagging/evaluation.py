"""Entity F1 of a tagger, by seqeval and by Flair, which must agree."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from flair.data import Sentence, Token
from flair.models import SequenceTagger
from flair.training_utils import EmbeddingStorageMode

from flair_nas.errors import FlairNasError
from flair_nas.storage.files import write_text
from flair_nas.storage.paths import user_path
from flair_nas.tagging.data.column_files import PREDICTED
from flair_nas.tagging.data.corpora import TaggingCorpus, is_token_level, labels_of, sentences_of
from flair_nas.tagging.data.frozen_embeddings import changing_names
from flair_nas.tagging.quiet import no_flair_bars

log = logging.getLogger("flair_nas")


class LossNotFinite(FlairNasError):
    """The weights of a tagger, or the embeddings of a word, have no finite loss."""


class Evaluation(NamedTuple):
    """Figures of a tagger on labelled sentences.

    Args:
        f1: micro-averaged F1 in percent, as Flair counts it. Where labels are of tokens: accuracy in percent, the share
            of tokens whose label is right; a token without a label counts as O.
        loss: loss per token; 0 where a gold label is none of the tagger's, as there is no loss then.
        report: figures by type, and the label set, as JSON data.
        text: the same as a table.
    """

    f1: float
    loss: float
    report: dict[str, Any]
    text: str


def evaluate_tagger(
    tagger: SequenceTagger,
    sentences: Sequence[Sentence],
    label_type: str | None = None,
    *,
    batch_size: int = 32,
    storage: EmbeddingStorageMode = "none",
    predictions: str | Path | None = None,
    compare: bool = True,
) -> Evaluation:
    """Evaluate a tagger: strict entity F1, an entity being right when both borders and the type are.

    A gold label that the tagger does not know, one that training had no example of, counts as missed.

    Args:
        tagger: a trained tagger.
        sentences: labelled sentences; they keep the predictions under the label ``predicted``.
        label_type: the gold label; the tagger's own when None.
        batch_size: sentences per batch.
        storage: Flair's embeddings_storage_mode.
        predictions: a file for the predictions, a row per token: token, gold tag, predicted tag, with tabs between.
        compare: count by seqeval as well, and check that the two agree.

    Raises:
        FlairNasError: no sentences, no gold labels of that type, labels of tokens where the tagger knows spans or the
            reverse, or the two counts differ.
        LossNotFinite: what it says.
    """
    label_type = label_type or tagger.label_type
    if not sentences:
        raise FlairNasError("there are no sentences to evaluate on")
    labels = sorted(labels_of(sentences, label_type))
    if not labels:
        present = sorted({name for sentence in sentences for name in sentence.annotation_layers} - {PREDICTED})
        raise FlairNasError(
            f"no sentence has the label type {label_type!r}; label types there are: {present or 'none'}"
        )
    unknown = _unknown_labels(tagger, sentences, label_type, labels)
    if unknown and compare:
        log.warning(
            "the tagger knows %s; %s is none of these and counts as missed",
            *(", ".join(sorted(tagger_labels(tagger))), ", ".join(unknown)),
        )
    with no_flair_bars():
        result = tagger.evaluate(
            list(sentences),
            gold_label_type=label_type,
            mini_batch_size=batch_size,
            embedding_storage_mode=storage,
            return_loss=not any(labels_without_loss(tagger, sentences, label_type)),
        )
    forget_changing_embeddings(tagger, sentences)
    gold, predicted = ([tags_of(sentence, name) for sentence in sentences] for name in (label_type, PREDICTED))
    if predictions:
        blocks = (
            "".join(f"{token.text}\t{a}\t{b}\n" for token, a, b in zip(sentence, *tags))
            for sentence, *tags in zip(sentences, gold, predicted)
        )
        write_text(user_path(predictions).resolve(), "".join(f"{block}\n" for block in blocks))
    if not math.isfinite(result.scores["loss"]):
        raise LossNotFinite(f"the loss is not finite: {describe_fault(tagger, sentences)}")
    report: dict[str, Any] = {"label_set": labels, "sentences": len(sentences)}
    if not tagger.predict_spans:
        right = [a == b for tags in zip(gold, predicted) for a, b in zip(*tags)]
        accuracy = 100 * sum(right) / len(right)  # Flair's leaves out words that are O and found to be O
        report["accuracy"] = accuracy
        figures = {name: row for name, row in _in_percent(result.classification_report).items() if name in labels}
        text = f"label set: {', '.join(labels)}\n{_table(figures)}\naccuracy: {accuracy:.2f}\n"
        return Evaluation(accuracy, float(result.scores["loss"]), report, text)
    f1 = 100 * float(result.main_score)
    text = ""
    if compare:
        seqeval_report = _seqeval(gold, predicted)
        report["seqeval"] = seqeval_report
        report["flair"] = {"micro_f1": f1}
        if abs(seqeval_report["micro avg"]["f1-score"] - f1) > 1e-6:
            raise FlairNasError(
                f"seqeval and Flair disagree on micro F1: {seqeval_report['micro avg']['f1-score']:.4f} and {f1:.4f}; "
                "the sentences probably hold overlapping spans, which column format cannot express"
            )
        text = f"label set: {', '.join(labels)}\n{_table(seqeval_report)}\n"
        text += f"micro F1 by seqeval (strict) and by Flair: {f1:.2f}\n"
        if not any(sentence.get_labels(PREDICTED) for sentence in sentences):
            text += "The tagger found nothing in these sentences.\n"
    return Evaluation(f1, float(result.scores["loss"]), report, text)


def forget_changing_embeddings(tagger: SequenceTagger, sentences: Sequence[Sentence]) -> None:
    """Deletes stored vectors that are not the same the next time, which Flair would otherwise take for final.

    Flair tells them by their gradient: there is none in evaluation, and none of pooled embeddings.
    """
    if names := changing_names(tagger.embeddings):
        for sentence in sentences:
            sentence.clear_embeddings(names)


def describe_fault(tagger: SequenceTagger, sentences: Sequence[Sentence]) -> str:
    """Says which word's embedding is not finite, if one is; to explain a loss or gradient that is not."""
    for sentence in sentences:
        tagger.embeddings.embed([sentence])
        for token in sentence:
            for name, vector in token._embeddings.items():
                if not torch.isfinite(vector).all():
                    return (
                        f"the embedding {name!r} of the word {token.text!r} in {sentence.to_plain_string()[:80]!r} "
                        "holds NaN or infinity; mend the embeddings."
                    )
    first = sentences[0].to_plain_string()[:80]
    return f"the embeddings are, so the weights are at fault, on sentences from {first!r}; try a lower learning rate."


def tags_of(sentence: Sentence, label_type: str) -> list[str]:
    """Return the tag of each token: its label or, where labels are of spans, its IOB2 tag; O without any."""
    tags = ["O"] * len(sentence)
    for label in sentence.get_labels(label_type):
        if isinstance(label.data_point, Token):
            tags[label.data_point.idx - 1] = label.value
        else:
            for index, token in enumerate(label.data_point):
                tags[token.idx - 1] = ("I-" if index else "B-") + label.value
    return tags


def has_unlabelled_tokens(corpus: TaggingCorpus) -> bool:
    """Return True if labels are of tokens and a token of dev or test has none, which accuracy once left out."""
    sentences = [s for part in (corpus.corpus.dev, corpus.corpus.test) for s in sentences_of(part)]
    labelled = {id(label.data_point) for sentence in sentences for label in sentence.get_labels(corpus.label_type)}
    return bool(is_token_level(sentences, corpus.label_type)) and len(labelled) < sum(map(len, sentences))


def fingerprint_of(corpus: TaggingCorpus) -> str:
    """Return the digest of a corpus, which is another one where accuracy was once counted in another way."""
    return corpus.sha256 + ", accuracy of all tokens" * has_unlabelled_tokens(corpus)


def tagger_labels(tagger: SequenceTagger) -> set[str]:
    """The labels that a tagger can give, without the prefixes B-, I-, E- and S- of spans."""
    items = set(tagger.label_dictionary.get_items()) - {"O", "<START>", "<STOP>", "<unk>"}
    return {item[2:] for item in items} if tagger.predict_spans else items


def labels_without_loss(tagger: SequenceTagger, sentences: Sequence[Sentence], label_type: str) -> list[set[str]]:
    """The gold labels of each sentence that training had no example of: Flair has no loss for these.

    Args:
        tagger: what they are none of.
        sentences: labelled; where labels are of tokens, one that has none counts as O, as in Flair.
        label_type: the gold label.
    """
    if tagger.label_dictionary.add_unk:  # which stands for what is unknown
        return [set() for _ in sentences]
    if tagger.predict_spans:
        known = tagger_labels(tagger) | {"O"}
        return [{label.value for label in sentence.get_labels(label_type)} - known for sentence in sentences]
    known = set(tagger.label_dictionary.get_items())
    return [{token.get_label(label_type, "O").value for token in sentence} - known for sentence in sentences]


def _unknown_labels(
    tagger: SequenceTagger, sentences: Sequence[Sentence], label_type: str, labels: Sequence[str]
) -> list[str]:
    """The gold labels that are none of the tagger's."""
    known = tagger_labels(tagger)
    of_tokens = is_token_level(sentences, label_type)
    if of_tokens == tagger.predict_spans:
        kinds = ("tokens", "spans") if of_tokens else ("spans", "tokens")
        raise FlairNasError(
            f"the labels of type {label_type!r} are of {kinds[0]}, such as {labels[0]!r}, and the tagger gives labels"
            f" of {kinds[1]}: {', '.join(sorted(known))}; choose the column or label type that it was trained on"
        )
    return [label for label in labels if label not in known and label != "O"]


def _seqeval(gold: list[list[str]], predicted: list[list[str]]) -> dict[str, Any]:
    from seqeval.metrics import classification_report
    from seqeval.scheme import IOB2

    figures = classification_report(gold, predicted, output_dict=True, mode="strict", scheme=IOB2, zero_division=0)
    return _in_percent(figures)


def _in_percent(figures: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {key: int(value) if key == "support" else 100 * float(value) for key, value in row.items()}
        for name, row in figures.items()
        if isinstance(row, dict)
    }


def _table(figures: dict[str, Any]) -> str:
    """Precision, recall, F1 (in percent) and support of each row."""
    width = max([12, *map(len, figures)])
    lines = [f"{'':>{width}} {'precision':>10} {'recall':>8} {'F1':>8} {'support':>8}"]
    for name, row in figures.items():
        precision, recall, f1, support = (row[key] for key in ("precision", "recall", "f1-score", "support"))
        lines.append(f"{name:>{width}} {precision:>10.2f} {recall:>8.2f} {f1:>8.2f} {support:>8}")
    return "\n".join(lines) + "\n"
