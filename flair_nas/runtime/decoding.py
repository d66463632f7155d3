"""Tags of emissions, and spans of tags, as Flair finds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Tags = tuple[list[int], list[float]]
"""Tags of a sentence and their scores."""


class Span(NamedTuple):
    """Words of one label, from `first` to the one before `end`."""

    label: str
    first: int
    end: int
    score: float


def decode_viterbi(emissions: Floats, transitions: Floats, start: int, stop: int) -> Tags:
    """Return the best tags of a sentence under a CRF, and their scores.

    As in Flair, a score is the largest softmax of the best path's scores up to that word.

    Args:
        emissions: [T, tags].
        transitions: scores of a tag after another one, [tag, previous tag].
        start: the tag before the first word.
        stop: the tag after the last word.
    """
    best = emissions[0] + transitions[:, start]  # [tags]
    paths, scores = [], [best]
    for row in emissions[1:]:
        candidates = row[:, None] + transitions + best  # [tag, previous tag]
        paths.append(candidates.argmax(1))
        best = candidates.max(1)
        scores.append(best)
    tags = [int((best + transitions[stop]).argmax())]
    for path in reversed(paths):
        tags.append(int(path[tags[-1]]))
    return tags[::-1], _max_softmax(np.stack(scores))


def decode_best(emissions: Floats) -> Tags:
    """Return the best tag of each word, and its probability, from emissions [T, tags]."""
    return emissions.argmax(1).tolist(), _max_softmax(emissions)


def _max_softmax(scores: Floats) -> list[float]:
    """Return the largest softmax of each row."""
    largest: list[float] = (1 / np.exp(scores - scores.max(1, keepdims=True)).sum(1)).tolist()
    return largest


def find_spans(tags: Sequence[str], scores: Sequence[float]) -> list[Span]:
    """Return the spans of tags with the prefixes B, I, E and S, whatever their order.

    A span begins with B or S, with any tag after a word without label, and with I where the label changes. It has the
    label of most of its words; the first one counts a tenth more if it says that a span begins.
    """
    spans: list[Span] = []
    first, votes = 0, dict[str, float]()
    previous = "O-"
    for place, tag in enumerate([*tags, "O"]):
        tag = "O-" if tag in ("", "O", "_") else tag
        inside = tag != "O-"
        changes = inside and tag[2:] != previous[2:] and tag[:2] == "I-"
        begins = tag[:2] in ("B-", "S-") or changes
        if votes and (begins or not inside):
            label = max(votes, key=votes.__getitem__)
            spans.append(Span(label, first, place, sum(scores[first:place]) / (place - first)))
            votes = {}
        if inside:
            first = first if votes else place
            votes[tag[2:]] = votes.get(tag[2:], 0.0) + (1.1 if begins else 1.0)
        previous = tag
    return spans
