"""Labels of an exported tagger beside those of the tagger itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from flair.data import Sentence, Token
from flair.models import SequenceTagger

from flair_nas.errors import FlairNasError
from flair_nas.onnx.int8 import quantize_tagger
from flair_nas.runtime.tagger import Tagger
from flair_nas.storage.paths import user_path
from flair_nas.tagging.evaluation import check_labels

log = logging.getLogger("flair_nas")

MUCH = 0.01
"""The share of labels above which a change is warned of."""

Found = set[tuple[int, int, int, str]]
"""Labels: sentence, first word, word after the last, label."""


class Outcome(NamedTuple):
    """Labels of a tagger, how good they are, and how long they took."""

    labels: Found
    f1: float  # in percent, against the gold labels
    seconds: float


def check_export(tagger: SequenceTagger, folder: str | Path, sentences: Sequence[Sentence], int8: bool = False) -> str:
    """Compare an exported tagger with the tagger on labelled sentences.

    Args:
        tagger: the tagger.
        folder: its export.
        sentences: sentences with gold labels, which keep them.
        int8: turn the export into 8 bits after the comparison, and compare once more, in batches and one by one.

    Returns:
        A table in Markdown: labels, share of labels that one of both alone finds, F1, seconds, size. In 8 bits, a line
        follows on the labels that depend on the batch.

    Raises:
        FlairNasError: the tagger and its export find different labels, of which the error shows the first; or the
            sentences have no labels of the tagger's kind.
    """
    folder = user_path(folder)
    threads, label_type = torch.get_num_threads(), tagger.label_type
    check_labels(tagger, sentences, label_type, warn=True)
    before = _tag_by_flair(tagger, sentences, label_type)
    outcomes = {"PyTorch": (before, 0), "onnxruntime": _tag_by_export(folder, threads, sentences, label_type)}
    notes = []
    after = outcomes["onnxruntime"][0].labels
    if before.labels != after:
        raise FlairNasError(f"{folder}: {_describe_first(sentences, before.labels, after)}")
    if int8:
        quantize_tagger(folder)
        outcomes["int8"] = _tag_by_export(folder, threads, sentences, label_type)
        together, alone = (
            outcomes["int8"][0].labels,
            _tag_by_export(folder, threads, sentences, label_type, 1)[0].labels,
        )
        notes.append(f"int8: {len(together ^ alone)} of {len(together | alone):,} labels depend on the batch (32 or 1)")
    lines = [f"| {len(sentences):,} sentences | labels | changed | F1 | seconds | size |", "| --- |" + " --- |" * 5]
    for name, (outcome, size) in outcomes.items():
        share = len(before.labels ^ outcome.labels) / max(1, len(before.labels | outcome.labels))
        if share > MUCH:
            log.warning("int8 changes %.1f %% of the labels; without --int8 they are the tagger's", 100 * share)
        figures = f"{len(outcome.labels):,} | {100 * share:.1f} % | {outcome.f1:.2f} | {outcome.seconds:.1f}"
        lines.append(f"| {name} | {figures} | {f'{size / 1e6:.1f} MB' if size else '-'} |")
    return "\n".join([*lines, *notes])


def _tag_by_flair(tagger: SequenceTagger, sentences: Sequence[Sentence], label_type: str) -> Outcome:
    """Tag the sentences of a corpus, which keep their labels."""
    copies = [Sentence([token.text for token in sentence]) for sentence in sentences]

    def run() -> Found:
        tagger.predict(copies, mini_batch_size=32)
        return _labels_of(copies, tagger.label_type)

    return _judge(run, sentences, label_type)


def _tag_by_export(
    folder: Path, threads: int, sentences: Sequence[Sentence], label_type: str, batch_size: int = 32
) -> tuple[Outcome, int]:
    """Tag the sentences of a corpus by an exported tagger; return its size too, in bytes."""
    tagger = Tagger(folder, threads=threads)
    words = [[token.text for token in sentence] for sentence in sentences]

    def run() -> Found:
        spans = enumerate(tagger.find_spans(words, batch_size=batch_size))
        return {(number, span.first, span.end, span.label) for number, found in spans for span in found}

    return _judge(run, sentences, label_type), sum(file.stat().st_size for file in folder.iterdir())


def _judge(run: Callable[[], Found], sentences: Sequence[Sentence], label_type: str) -> Outcome:
    start = time.perf_counter()
    labels = run()
    seconds = time.perf_counter() - start
    gold = _labels_of(sentences, label_type)
    count = len(labels) + len(gold)
    return Outcome(labels, 200 * len(labels & gold) / count if count else 0.0, seconds)


def _labels_of(sentences: Sequence[Sentence], label_type: str) -> Found:
    found = set()
    for number, sentence in enumerate(sentences):
        for label in sentence.get_labels(label_type):
            tokens = [label.data_point] if isinstance(label.data_point, Token) else label.data_point.tokens
            found.add((number, tokens[0].idx - 1, tokens[-1].idx, label.value))
    return found


def _describe_first(sentences: Sequence[Sentence], before: Found, after: Found) -> str:
    """Return the first label that one of two taggers alone finds, with its sentence."""
    number, first, end, label = min(before ^ after)
    words = [token.text for token in sentences[number]]
    who = "the tagger" if (number, first, end, label) in before else "the export"
    return f'sentence {number + 1}, "{" ".join(words)}": {who} alone finds {label} {" ".join(words[first:end])}'
