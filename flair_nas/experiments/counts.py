"""Counts of each sentence, and the metrics that they come to: F1 and perplexity."""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from seqeval.scheme import IOB2, Entities

Counts = npt.NDArray[np.number]
"""Of each sentence what a figure is made of, [sentences, K]."""


def counts_in(path: Path, spans: bool) -> Counts:
    """What was found in each sentence of a file of predictions (token, gold tag, predicted tag).

    Args:
        path: the file.
        spans: entities are counted, strictly; otherwise tokens.

    Returns:
        Right, predicted and gold ones, [sentences, 3].
    """
    found = []
    for rows in _sentences(path):
        gold, predicted = [row[1] for row in rows], [row[2] for row in rows]
        if spans:
            of_gold, of_predicted = (_entities(tags) for tags in (gold, predicted))
            found.append([len(of_gold & of_predicted), len(of_predicted), len(of_gold)])
        else:
            found.append([sum(a == b for a, b in zip(gold, predicted)), len(rows), len(rows)])
    return np.array(found, dtype=np.int32)


def packed(counts: Counts) -> str:
    """Counts as a short text, for a ledger."""
    stream = io.BytesIO()
    np.save(stream, counts, allow_pickle=False)
    return base64.b64encode(zlib.compress(stream.getvalue(), 9)).decode()


def unpacked(text: str) -> Counts:
    """What `packed` was given."""
    data = zlib.decompress(base64.b64decode(text))
    if not data.startswith(b"\x93NUMPY"):  # as older ledgers have those of tags
        return np.frombuffer(data, "<i4").reshape(-1, 3)
    found: Counts = np.load(io.BytesIO(data), allow_pickle=False)
    return found


def unseen_in(path: Path, seen: Collection[str]) -> tuple[int, int]:
    """How many entities with words that training had no entity of are right, and how many there are.

    Args:
        path: a file of predictions (token, gold tag, predicted tag).
        seen: the words of the entities of training, in lower case, joined by blanks.
    """
    right = gold = 0
    for rows in _sentences(path):
        predicted = _entities([row[2] for row in rows])
        for start, end, tag in _entities([row[1] for row in rows]):
            if " ".join(row[0] for row in rows[start:end]).lower() not in seen:
                gold += 1
                right += (start, end, tag) in predicted
    return right, gold


def _sentences(path: Path) -> Iterator[list[list[str]]]:
    """Yield the rows of each sentence: token, gold tag, predicted tag."""
    for block in path.read_text(encoding="utf-8").strip("\n").split("\n\n"):
        # older runs have blanks between columns, and none in labels
        yield [line.rsplit("\t", 2) if "\t" in line else line.rsplit(" ", 2) for line in block.split("\n")]


def _entities(tags: list[str]) -> set[tuple[int, int, str]]:
    (entities,) = Entities([tags], IOB2).entities
    return {(entity.start, entity.end, entity.tag) for entity in entities}


def f1(counts: npt.NDArray[np.number]) -> npt.NDArray[np.float64]:
    """F1 in percent of right, predicted and gold ones, [..., 3]; 0 where there are none."""
    right, predicted, gold = np.moveaxis(counts.astype(np.float64), -1, 0)
    total = predicted + gold
    score: npt.NDArray[np.float64] = np.divide(200 * right, total, out=np.zeros_like(total), where=total > 0)
    return score


def perplexity(counts: npt.NDArray[np.number]) -> npt.NDArray[np.float64]:
    """Return the perplexity of losses in nats and numbers of tokens, [..., 2]; 1 where there are no tokens."""
    loss, tokens = np.moveaxis(counts.astype(np.float64), -1, 0)
    found: npt.NDArray[np.float64] = np.exp(loss / np.maximum(tokens, 1))
    return found
