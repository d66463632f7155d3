"""Labels of an exported tagger beside those of the tagger itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
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

MUCH = 0.01
"""The share of labels above which a change is warned of."""

Found = set[tuple[int, int, int, str]]
"""Labels: sentence, first word, word after the last, label."""


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

    def measure(name: str, tag: Callable[[], Found], expected: Found | None = None, size: str = "-") -> Found:
        start = time.perf_counter()
        labels = tag()
        seconds, expected = time.perf_counter() - start, labels if expected is None else expected
        share = 100 * _share(expected, labels)
        f1 = 200 * len(labels & gold) / max(1, len(labels) + len(gold))
        lines.append(f"| {name} | {len(labels):,} | {share:.1f} % | {f1:.2f} | {seconds:.1f} | {size} |")
        return labels

    copies = [Sentence(texts) for texts in words]  # the sentences of the corpus keep their labels

    def tag_by_flair() -> Found:
        tagger.predict(copies, mini_batch_size=32)
        return _labels_of(copies, label_type)

    def tag_by_export(exported: Tagger, batch_size: int = 32) -> Found:
        spans = enumerate(exported.find_spans(words, batch_size=batch_size))
        return {(number, span.first, span.end, span.label) for number, found in spans for span in found}

    def measure_export(name: str) -> tuple[Found, Tagger]:
        exported = Tagger(folder, threads=torch.get_num_threads())
        size = f"{sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.1f} MB"
        return measure(name, lambda: tag_by_export(exported), before, size), exported

    before = measure("PyTorch", tag_by_flair)
    after, _ = measure_export("onnxruntime")
    if before != after:
        raise FlairNasError(f"{folder}: {_describe_first(sentences, before, after)}")
    if int8:
        quantize_tagger(folder)
        together, exported = measure_export("int8")
        if (share := _share(before, together)) > MUCH:
            log.warning("int8 changes %.1f %% of the labels; without --int8 they are the tagger's", 100 * share)
        alone = tag_by_export(exported, batch_size=1)
        lines.append(f"int8: {len(together ^ alone)} of {len(together | alone):,} labels depend on the batch (32 or 1)")
    return "\n".join(lines)


def _share(one: Found, other: Found) -> float:
    """Return the share of labels that one of two taggers alone finds."""
    return len(one ^ other) / max(1, len(one | other))


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
