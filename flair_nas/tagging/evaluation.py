"""Evaluation of taggers by entity F1, which seqeval and Flair must agree on, or by accuracy."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from flair.data import Sentence, Token
from flair.models import SequenceTagger
from flair.training_utils import EmbeddingStorageMode

from flair_nas.errors import FlairNasError, NotFiniteError, brief, listed
from flair_nas.storage.files import write_text
from flair_nas.storage.paths import user_path
from flair_nas.tagging.data.column_files import PREDICTED
from flair_nas.tagging.data.corpora import is_token_level, labels_of
from flair_nas.tagging.data.frozen_embeddings import changing_names
from flair_nas.tagging.quiet import no_flair_bars

log = logging.getLogger("flair_nas")

NO_TAGS = ("<START>", "<STOP>", "<unk>")
"""Tags that no word has."""


class TaggerEvaluation(NamedTuple):
    """Metrics of a tagger on labelled sentences.

    Args:
        f1: micro-averaged F1 in percent, as Flair counts it. For labels of tokens: accuracy in percent, the share of
            tokens with the right label; a token without a label counts as O.
        loss: loss per token; 0 if the tagger does not know a gold label.
        report: metrics by type, and the label set, as JSON data.
        text: the report as a table.
    """

    f1: float
    loss: float
    report: dict[str, Any]
    text: str


def check_is_tagger(tagger: object) -> None:
    """Refuse an object that is no tagger of Flair's."""
    if not isinstance(tagger, SequenceTagger):
        raise FlairNasError(f"tagger must be what load_tagger returns, got {brief(tagger)}")


def evaluate_tagger(
    tagger: SequenceTagger,
    sentences: Sequence[Sentence],
    label_type: str | None = None,
    *,
    batch_size: int = 32,
    storage: EmbeddingStorageMode = "none",
    predictions: str | Path | None = None,
    compare: bool = True,
) -> TaggerEvaluation:
    """Evaluate a tagger by strict entity F1: an entity is right if both borders and the type are.

    A gold label counts as missed if training had no example of it.

    Args:
        tagger: a trained tagger.
        sentences: labelled sentences; they keep the predictions under the label ``predicted``.
        label_type: the gold label. Default: the tagger's own.
        batch_size: sentences per batch.
        storage: Flair's embeddings_storage_mode.
        predictions: a file for the predictions, a row per token: token, gold tag and predicted tag, separated by tabs.
        compare: also count by seqeval, and check that both agree.

    Raises:
        FlairNasError: there are no sentences or no gold labels, or the two counts differ. Or gold labels are of tokens
            and the tagger's of spans, or the reverse.
        NotFiniteError: the loss is NaN or infinite.

    Example:
        The folder is that of the example of `train_taggers`.

        >>> from flair_nas import evaluate_tagger, load_corpus, load_tagger
        >>> sentences = list(load_corpus("demo").corpus.dev)
        >>> evaluation = evaluate_tagger(load_tagger("runs/first"), sentences)
        >>> 0 <= evaluation.f1 <= 100
        True
    """
    check_is_tagger(tagger)
    label_type = label_type or tagger.label_type
    labels = check_labels(tagger, sentences, label_type, warn=compare)
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
        rows = (zip(sentence, *tags) for sentence, *tags in zip(sentences, gold, predicted))
        blocks = ("".join(f"{token.text}\t{a}\t{b}\n" for token, a, b in block) for block in rows)
        write_text(user_path(predictions).resolve(), "".join(f"{block}\n" for block in blocks))
    loss = float(result.scores["loss"])
    if not math.isfinite(loss):
        raise NotFiniteError(f"the loss is not finite: {describe_fault(tagger, sentences)}")
    base = {"label_set": labels, "sentences": len(sentences)}
    if not tagger.predict_spans:
        right = [a == b for tags in zip(gold, predicted) for a, b in zip(*tags)]
        accuracy = 100 * sum(right) / len(right)  # Flair's leaves out tokens that are O and predicted as O
        figures = _in_percent(result.classification_report)
        table = _table({name: row for name, row in figures.items() if name in labels})
        text = f"label set: {', '.join(labels)}\n{table}\naccuracy: {accuracy:.2f}\n"
        return TaggerEvaluation(accuracy, loss, base | {"accuracy": accuracy}, text)
    f1 = 100 * float(result.main_score)
    if not compare:
        return TaggerEvaluation(f1, loss, base, "")
    report, text = _report_f1(gold, predicted, f1)
    if not any(sentence.get_labels(PREDICTED) for sentence in sentences):
        text += "The tagger found nothing in these sentences.\n"
    return TaggerEvaluation(f1, loss, base | report, f"label set: {', '.join(labels)}\n{text}")


def check_labels(tagger: SequenceTagger, sentences: Sequence[Sentence], label_type: str, warn: bool) -> list[str]:
    """Return the gold labels, sorted. Refuse those of another kind than the tagger's; warn of unknown ones."""
    if not sentences:
        raise FlairNasError("there are no sentences to evaluate on")
    labels = sorted(labels_of(sentences, label_type))
    if not labels:
        present = sorted({name for sentence in sentences for name in sentence.annotation_layers} - {PREDICTED})
        raise FlairNasError(f"no sentence has the label type {label_type!r}; there are: {present or 'none'}")
    known = listed(sorted(tagger_labels(tagger)))
    token_level = is_token_level(sentences, label_type)
    if token_level == tagger.predict_spans:
        kinds = ("tokens", "spans") if token_level else ("spans", "tokens")
        raise FlairNasError(
            f"the labels of type {label_type!r} are of {kinds[0]}, such as {labels[0]!r}, and the tagger gives labels"
            f" of {kinds[1]}: {known}; choose the column or label type that it was trained on"
        )
    unknown = [label for label in labels if label not in {*tagger_labels(tagger), "O"}]
    if unknown and warn:
        log.warning("the tagger knows %s; %s is none of these and counts as missed", known, listed(unknown))
    return labels


def _report_f1(gold: list[list[str]], predicted: list[list[str]], f1: float) -> tuple[dict[str, Any], str]:
    """Return the report by seqeval and its text. Refuse a micro F1 that differs from Flair's."""
    from seqeval.metrics import classification_report
    from seqeval.scheme import IOB2

    counted = classification_report(gold, predicted, output_dict=True, mode="strict", scheme=IOB2, zero_division=0)
    figures = _in_percent(counted)
    by_seqeval = figures["micro avg"]["f1-score"]
    if abs(by_seqeval - f1) > 1e-6:
        fault = f"seqeval and Flair disagree on micro F1: {by_seqeval:.4f} and {f1:.4f}"
        raise FlairNasError(f"{fault}; the sentences probably hold overlapping spans")
    text = f"{_table(figures)}\nmicro F1 by seqeval (strict) and by Flair: {f1:.2f}\n"
    return {"seqeval": figures, "flair": {"micro_f1": f1}}, text


def forget_changing_embeddings(tagger: SequenceTagger, sentences: Sequence[Sentence]) -> None:
    """Delete the stored vectors that will differ next time.

    Flair deletes only vectors with a gradient. Pooled ones and those of an evaluation have none.
    """
    if names := changing_names(tagger.embeddings):
        for sentence in sentences:
            sentence.clear_embeddings(names)


def describe_fault(tagger: SequenceTagger, sentences: Sequence[Sentence]) -> str:
    """Name the cause of a loss or gradient that is not finite: a word's embedding, or the weights."""
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
    """Return the tag of each token: its label, the IOB2 tag of its span, or O."""
    tags = ["O"] * len(sentence)
    for label in sentence.get_labels(label_type):
        if isinstance(label.data_point, Token):
            tags[label.data_point.idx - 1] = label.value
        else:
            for index, token in enumerate(label.data_point):
                tags[token.idx - 1] = ("I-" if index else "B-") + label.value
    return tags


def tagger_labels(tagger: SequenceTagger) -> set[str]:
    """Return the labels that a tagger can give, without the prefixes B-, I-, E- and S- of spans."""
    return labels_of_tags(tagger.label_dictionary.get_items(), tagger.predict_spans)


def labels_of_tags(tags: Iterable[str], in_spans: bool) -> set[str]:
    """Return the labels of tags; those of spans have the prefixes B-, I-, E- and S-."""
    items = {*tags} - {"O", *NO_TAGS}
    return {item[2:] for item in items} if in_spans else items


def labels_without_loss(tagger: SequenceTagger, sentences: Sequence[Sentence], label_type: str) -> list[set[str]]:
    """Return the gold labels of each sentence that the tagger does not know. Flair computes no loss for them."""
    if tagger.label_dictionary.add_unk:  # stands for all unknown labels
        return [set() for _ in sentences]
    if tagger.predict_spans:
        known = tagger_labels(tagger) | {"O"}
        return [{label.value for label in sentence.get_labels(label_type)} - known for sentence in sentences]
    known = set(tagger.label_dictionary.get_items())  # a token without a label counts as O
    return [{token.get_label(label_type, "O").value for token in sentence} - known for sentence in sentences]


def _in_percent(report: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the rows of a classification report of scikit-learn, in percent. Support stays a count."""
    return {
        name: {key: int(value) if key == "support" else 100 * float(value) for key, value in row.items()}
        for name, row in report.items()
        if isinstance(row, dict)
    }


def _table(figures: Mapping[str, Mapping[str, float]]) -> str:
    """Return a table of precision, recall, F1 and support."""
    width = max([12, *map(len, figures)])
    lines = [f"{'':>{width}} {'precision':>10} {'recall':>8} {'F1':>8} {'support':>8}"]
    for name, row in figures.items():
        precision, recall, f1, support = (row[key] for key in ("precision", "recall", "f1-score", "support"))
        lines.append(f"{name:>{width}} {precision:>10.2f} {recall:>8.2f} {f1:>8.2f} {support:>8}")
    return "\n".join(lines) + "\n"
