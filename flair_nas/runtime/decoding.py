"""Tags of emissions and spans of tags, as Flair finds them, and their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Numbers = NDArray[np.integer[Any]]


class CRF(NamedTuple):
    """Scores of a tag after another one, [tag, previous tag], and the tags before the first word and after the last."""

    transitions: Floats
    start: int
    stop: int


class Span(NamedTuple):
    """Words of one label, from `first` to the one before `end`; `score` is the probability of their tags."""

    label: str
    first: int
    end: int
    score: float = 1.0


class Weights(NamedTuple):
    """Two logarithms for each word of some paths, [B, T]."""

    before: Floats
    after: Floats

    def probability(self, row: int, first: int, end: int) -> float:
        """Return the probability that words from `first` to the one before `end` have the tags of their path."""
        return float(np.minimum(np.exp(self.before[row, first] + self.after[row, end - 1]), 1.0))


def decode(
    emissions: Floats, lengths: Numbers, crf: CRF | None, names: Sequence[str], in_spans: bool
) -> list[list[Span]]:
    """Return the labels of sentences with their probabilities.

    Args:
        emissions: [B, T, tags].
        lengths: words of each sentence, [B].
        crf: the CRF; None if each word has its best tag.
        names: names of the tags.
        in_spans: tags are those of spans; otherwise each tag but O is a label.
    """
    if crf is None:
        numbers = emissions.argmax(2)
        path = weigh_best(1 / np.exp(emissions - emissions.max(2, keepdims=True)).sum(2))  # the largest softmax
    else:
        numbers = decode_viterbi(emissions, lengths, crf)
        path = weigh_crf(emissions, lengths, crf, numbers)
    found = []
    for row, (own, length) in enumerate(zip(numbers.tolist(), lengths)):
        spans = find_labels([names[number] for number in own[:length]], in_spans)
        found.append([span._replace(score=path.probability(row, span.first, span.end)) for span in spans])
    return found


def decode_viterbi(emissions: Floats, lengths: Numbers, crf: CRF) -> Numbers:
    """Return the best tags of sentences under a CRF, [B, T], from emissions [B, T, tags] and lengths [B]."""
    transitions, start, stop = crf
    batch, longest, tags = emissions.shape
    best = np.empty_like(emissions)  # score of the best path to each tag
    before = np.empty((longest, batch, tags), np.intp)  # the tag before it
    best[:, 0] = emissions[:, 0] + transitions[:, start]
    for place in range(1, longest):
        candidates = best[:, place - 1, None] + transitions  # [B, tag, previous tag]
        before[place] = candidates.argmax(2)
        best[:, place] = candidates.max(2) + emissions[:, place]
    found, rows = np.empty((batch, longest), np.intp), np.arange(batch)
    ends = (best[rows, lengths - 1] + transitions[stop]).argmax(1)
    tag = ends
    for place in range(longest - 1, -1, -1):
        tag = np.where(place < lengths - 1, tag, ends)
        found[:, place] = tag
        if place:
            tag = before[place, rows, tag]
    return found


def sum_paths(emissions: Floats, lengths: Numbers, crf: CRF) -> tuple[Floats, Floats, Floats]:
    """Return the logarithms of three sums over paths: forward-backward (Rabiner, 1989, section III.A).

    These are of paths that end in a tag at a word, [B, T, tags]; of the rest of paths behind it, [B, T, tags]; and of
    all paths, [B].
    """
    emissions, transitions = emissions.astype(np.float64), crf.transitions.astype(np.float64)
    start, stop = crf.start, crf.stop
    highest = transitions.max()
    weights = np.exp(transitions - highest)  # [tag, previous tag]

    def advance(logs: Floats, matrix: Floats) -> Floats:
        largest = logs.max(1, keepdims=True)
        sums: Floats = np.log(np.exp(logs - largest) @ matrix) + (largest + highest)
        return sums

    forward, backward = np.empty_like(emissions), np.empty_like(emissions)
    forward[:, 0] = emissions[:, 0] + transitions[:, start]
    backward[:, -1] = transitions[stop]
    longest, rows = emissions.shape[1], np.arange(len(emissions))
    with np.errstate(divide="ignore", invalid="ignore"):  # no path has a forbidden tag; emissions may be NaN
        for place in range(1, longest):
            forward[:, place] = emissions[:, place] + advance(forward[:, place - 1], weights.T)
        for place in range(longest - 2, -1, -1):
            sums = advance(emissions[:, place + 1] + backward[:, place + 1], weights)
            backward[:, place] = np.where((place < lengths - 1)[:, None], sums, transitions[stop])
        return forward, backward, np.logaddexp.reduce(forward[rows, lengths - 1] + transitions[stop], 1)


def find_marginals(emissions: Floats, lengths: Numbers, crf: CRF | None) -> Floats:
    """Return the probability of each tag of each word, [B, T, tags]."""
    if crf is None:
        chances = np.exp(emissions - emissions.max(2, keepdims=True))
        marginals: Floats = chances / chances.sum(2, keepdims=True)
        return marginals
    forward, backward, total = sum_paths(emissions, lengths, crf)
    return np.exp(forward + backward - total[:, None, None])


def weigh_crf(emissions: Floats, lengths: Numbers, crf: CRF, tags: Numbers) -> Weights:
    """Return the weights of paths under a CRF, given their tags, [B, T]."""
    forward, backward, total = sum_paths(emissions, lengths, crf)
    places = tags[..., None]
    steps = np.take_along_axis(emissions.astype(np.float64), places, 2)[..., 0]  # [B, T]
    steps[:, 0] = 0.0
    steps[:, 1:] += crf.transitions[tags[:, 1:], tags[:, :-1]]
    inside = steps.cumsum(1)  # score of the path from the first word to each
    before = np.take_along_axis(forward, places, 2)[..., 0] - inside
    return Weights(before, np.take_along_axis(backward, places, 2)[..., 0] + inside - total[:, None])


def weigh_best(probabilities: Floats) -> Weights:
    """Return the weights of paths without a CRF by the probabilities of their tags, [B, T]."""
    logs = np.log(probabilities.astype(np.float64))
    inside = logs.cumsum(1)
    return Weights(logs - inside, inside)


def find_labels(tags: Sequence[str], in_spans: bool) -> list[Span]:
    """Return the spans of tags, or each tag but O as a label of one word."""
    if in_spans:
        return find_spans(tags)
    return [Span(tag, place, place + 1) for place, tag in enumerate(tags) if tag not in ("O", "_")]


def find_spans(tags: Sequence[str]) -> list[Span]:
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
            spans.append(Span(label, first, place))
            votes = {}
        if inside:
            first = first if votes else place
            votes[tag[2:]] = votes.get(tag[2:], 0.0) + (1.1 if begins else 1.0)
        previous = tag
    return spans
