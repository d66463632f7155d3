"""Counts of each sentence, and the metrics computed from them: F1 and perplexity."""

from __future__ import annotations

import base64
import io
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
from seqeval.scheme import IOB2, Entities

Counts = npt.NDArray[np.number]
"""Counts of each sentence from which a metric is computed, [sentences, K]."""


def count_file(path: Path, spans: bool) -> Counts:
    """Count the right, predicted and gold entities of a file of predictions, [sentences, 3].

    Without `spans`, count tokens.
    """
    sentences = path.read_text(encoding="utf-8").strip("\n").split("\n\n")
    # [3, sentences, tokens]: tokens, gold tags, predicted tags
    _, gold, predicted = zip(*(zip(*(line.rsplit("\t", 2) for line in text.split("\n"))) for text in sentences))
    if spans:
        entities = (map(set, Entities(tags, IOB2).entities) for tags in (gold, predicted))
        counts = [[len(right & found), len(found), len(right)] for right, found in zip(*entities)]
    else:
        counts = [[sum(a == b for a, b in zip(*tags)), *map(len, tags)] for tags in zip(gold, predicted)]
    return np.array(counts, dtype=np.int32)


def pack_counts(counts: Counts) -> str:
    """Return counts as a short text, for a ledger."""
    stream = io.BytesIO()
    np.save(stream, counts, allow_pickle=False)
    return base64.b64encode(zlib.compress(stream.getvalue())).decode()


def unpack_counts(text: str) -> Counts:
    """Return the counts of a text of `pack_counts`."""
    counts: Counts = np.load(io.BytesIO(zlib.decompress(base64.b64decode(text))), allow_pickle=False)
    return counts


def f1(counts: npt.NDArray[np.number]) -> npt.NDArray[np.float64]:
    """Compute F1 in percent from right, predicted and gold entities, [..., 3] -> [...]; 0 if there are none."""
    right, predicted, gold = np.moveaxis(counts.astype(np.float64), -1, 0)
    total = predicted + gold
    score: npt.NDArray[np.float64] = np.divide(200 * right, total, out=np.zeros_like(total), where=total > 0)
    return score


def perplexity(counts: npt.NDArray[np.number]) -> npt.NDArray[np.float64]:
    """Compute perplexity from losses in nats and numbers of tokens, [..., 2] -> [...]; 1 if there are no tokens."""
    loss, tokens = np.moveaxis(counts.astype(np.float64), -1, 0)
    value: npt.NDArray[np.float64] = np.exp(loss / np.maximum(tokens, 1))
    return value
