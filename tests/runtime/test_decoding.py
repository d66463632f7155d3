"""Decoding without PyTorch against Flair's own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from flair.data import Dictionary, get_spans_from_bio
from flair.models.sequence_tagger_utils import crf as flair_crf
from flair.models.sequence_tagger_utils.viterbi import ViterbiDecoder
from hypothesis import example, given
from hypothesis import strategies as st

from flair_nas.runtime.decoding import CRF, Floats, decode_viterbi, find_spans, weigh_best, weigh_crf

TAGS = st.sampled_from(["O", "", "_", *("-".join(p) for p in itertools.product("BIES", ("PER", "LOC")))])


@given(st.lists(TAGS, max_size=12))
@example(["I-PER", "E-LOC", "I-LOC", "S-LOC", "I-PER"])
def test_spans_are_those_of_flair(tags: list[str]) -> None:
    expected = [(label, places[0], places[-1] + 1, 1.0) for places, _, label in get_spans_from_bio([*tags])]
    assert [tuple(span) for span in find_spans(tags)] == expected


def test_tags_of_the_crf_are_those_of_flair() -> None:
    torch.manual_seed(1)
    names = Dictionary(add_unk=False)
    for name in ("O", "B-PER", "E-PER", "<START>", "<STOP>"):
        names.add_item(name)
    crf = flair_crf.CRF(names, len(names), init_from_state_dict=False)
    transitions = crf.transitions.detach()
    lengths = torch.tensor([6, 3, 1])
    emissions = 2 * torch.randn(3, 6, len(names))
    decoder = ViterbiDecoder(names)
    found, _ = decoder.decode((crf(emissions).detach(), lengths, transitions), False, [])
    own = CRF(transitions.numpy(), decoder.start_tag, decoder.stop_tag)
    tags = decode_viterbi(emissions.numpy(), lengths.numpy(), own)
    for row, length, expected in zip(tags, lengths, found):
        assert [names.get_item_for_index(tag) for tag in row[:length]] == [tag for tag, _ in expected]


def path_score(emissions: Floats, transitions: Floats, path: Sequence[int]) -> float:
    """Return the score of a path from tag 2 to tag 3."""
    steps = sum(transitions[tag, before] for before, tag in itertools.pairwise((2, *path, 3)))
    return float(emissions[range(len(path)), list(path)].sum() + steps)


LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@given(st.integers(0, 2**32 - 1), LENGTHS)
def test_no_path_is_better_than_the_one_found(seed: int, lengths: list[int]) -> None:
    draw = np.random.default_rng(seed)
    emissions, transitions = draw.normal(size=(len(lengths), max(lengths), 4)), draw.normal(size=(4, 4))
    found = decode_viterbi(emissions, np.array(lengths), CRF(transitions, 2, 3))
    for own, row, length in zip(found.tolist(), emissions, lengths):
        best = max(path_score(row, transitions, path) for path in itertools.product(range(4), repeat=length))
        assert path_score(row, transitions, own[:length]) >= best - 1e-9


@given(st.integers(0, 2**32 - 1), LENGTHS, st.sampled_from([0.1, 1.0, 30.0]), st.booleans())
def test_a_probability_is_the_share_of_all_paths_that_have_the_tags(
    seed: int, lengths: list[int], spread: float, forbids: bool
) -> None:
    draw = np.random.default_rng(seed)
    emissions = spread * draw.normal(size=(len(lengths), max(lengths), 4))
    transitions = spread * draw.normal(size=(4, 4))
    if forbids:  # as Flair does
        transitions[2], transitions[:, 3] = -10_000, -10_000
    tags = draw.integers(0, 2, size=emissions.shape[:2])  # any path, not only the best one
    weights = weigh_crf(emissions, np.array(lengths), CRF(transitions, 2, 3), tags)
    for number, (row, length, path) in enumerate(zip(emissions, lengths, tags.tolist())):
        paths = [*itertools.product(range(4), repeat=length)]
        scores = np.array([path_score(row, transitions, other) for other in paths])
        chances = np.exp(scores - np.logaddexp.reduce(scores))
        for first, end in itertools.combinations(range(length + 1), 2):
            agrees = [list(other[first:end]) == path[first:end] for other in paths]
            assert abs(weights.probability(number, first, end) - chances[agrees].sum()) <= 1e-10


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=6))
def test_without_crf_a_probability_is_the_product_of_those_of_the_tags(chances: list[float]) -> None:
    weights = weigh_best(np.array([chances, chances]))
    for first, end in itertools.combinations(range(len(chances) + 1), 2):
        assert abs(weights.probability(1, first, end) - math.prod(chances[first:end])) <= 1e-12
