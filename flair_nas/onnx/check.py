"""Labels of an exported tagger beside those of the tagger itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from flair.data import Sentence, Token
from flair.models import SequenceTagger

from flair_nas.errors import FlairNasError
from flair_nas.onnx.int8 import quantize_tagger
from flair_nas.runtime.tagger import Tagger
from flair_nas.storage.paths import user_path
from flair_nas.tagging.evaluation import check_labels

log = logging.getLogger("flair_nas")

Labels = set[tuple[int, int, int, str]]
"""Sentence, first word, word after the last, and text of each label."""


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
    folder, label_type = user_path(folder), tagger.label_type
    check_labels(tagger, sentences, label_type, warn=True)
    gold, words = _labels_of(sentences, label_type), [[token.text for token in sentence] for sentence in sentences]
    lines = [f"| {len(sentences):,} sentences | labels | changed | F1 | seconds | size |", "| --- |" + " --- |" * 5]

    copies = [Sentence(texts) for texts in words]  # the sentences of the corpus keep their labels

    def tag(exported: Tagger | None, batch_size: int = 32) -> Labels:
        if exported is None:
            tagger.predict(copies, mini_batch_size=batch_size)
            return _labels_of(copies, label_type)
        spans = enumerate(exported.find_spans(words, batch_size=batch_size))
        return {(number, span.first, span.end, span.label) for number, several in spans for span in several}

    def measure(name: str, exported: Tagger | None, expected: Labels | None = None) -> Labels:
        start = time.perf_counter()
        labels = tag(exported)
        seconds = time.perf_counter() - start
        share = 100 * _share(labels if expected is None else expected, labels)
        f1 = 200 * len(labels & gold) / max(1, len(labels) + len(gold))
        size = f"{sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.1f} MB" if exported else "-"
        lines.append(f"| {name} | {len(labels):,} | {share:.1f} % | {f1:.2f} | {seconds:.1f} | {size} |")
        return labels

    before = measure("PyTorch", None)
    after = measure("onnxruntime", Tagger(folder, threads=torch.get_num_threads()), before)
    if before != after:
        number, first, end, label = min(before ^ after)
        who = "the tagger" if (number, first, end, label) in before else "the export"
        fault = f"{who} alone finds {label} {' '.join(words[number][first:end])}"
        raise FlairNasError(f'{folder}: sentence {number + 1}, "{" ".join(words[number])}": {fault}')
    if int8:
        quantize_tagger(folder)
        exported = Tagger(folder, threads=torch.get_num_threads())
        together = measure("int8", exported, before)
        if (share := _share(before, together)) > 0.01:
            log.warning("int8 changes %.1f %% of the labels; without --int8 they are the tagger's", 100 * share)
        alone = tag(exported, batch_size=1)
        lines.append(f"int8: {len(together ^ alone)} of {len(together | alone):,} labels depend on the batch (32 or 1)")
    return "\n".join(lines)


def _share(one: Labels, other: Labels) -> float:
    """Return the share of labels that one of two taggers alone finds."""
    return len(one ^ other) / max(1, len(one | other))


def _labels_of(sentences: Sequence[Sentence], label_type: str) -> Labels:
    found = set()
    for number, sentence in enumerate(sentences):
        for label in sentence.get_labels(label_type):
            tokens = [label.data_point] if isinstance(label.data_point, Token) else label.data_point.tokens
            found.add((number, tokens[0].idx - 1, tokens[-1].idx, label.value))
    return found
