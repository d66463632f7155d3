"""Decoding without PyTorch against Flair's own."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from flair.data import Dictionary, get_spans_from_bio
from flair.models.sequence_tagger_utils.crf import CRF
from flair.models.sequence_tagger_utils.viterbi import ViterbiDecoder
from hypothesis import example, given
from hypothesis import strategies as st

from flair_nas.runtime.decoding import decode_best, decode_viterbi, find_spans

TAGS = st.sampled_from(["O", "", "_", *("-".join(p) for p in itertools.product("BIES", ("PER", "LOC")))])


@given(st.lists(TAGS, max_size=12))
@example(["I-PER", "E-LOC", "I-LOC", "S-LOC", "I-PER"])
def test_spans_are_those_of_flair(tags: list[str]) -> None:
    scores = [0.9 - number / 20 for number in range(len(tags))]
    expected = [
        (label, places[0], places[-1] + 1, score) for places, score, label in get_spans_from_bio([*tags], scores)
    ]
    assert [tuple(span) for span in find_spans(tags, scores)] == expected


def test_tags_and_scores_of_the_crf_are_those_of_flair() -> None:
    torch.manual_seed(1)
    names = Dictionary(add_unk=False)
    for name in ("O", "B-PER", "E-PER", "<START>", "<STOP>"):
        names.add_item(name)
    crf = CRF(names, len(names), init_from_state_dict=False)
    transitions = crf.transitions.detach()
    lengths = torch.tensor([6, 3, 1])
    emissions = 2 * torch.randn(3, 6, len(names))
    decoder = ViterbiDecoder(names)
    found, _ = decoder.decode((crf(emissions).detach(), lengths, transitions), False, [])
    for row, length, expected in zip(emissions, lengths, found):
        tags, scores = decode_viterbi(row[:length].numpy(), transitions.numpy(), decoder.start_tag, decoder.stop_tag)
        assert [names.get_item_for_index(tag) for tag in tags] == [tag for tag, _ in expected]
        np.testing.assert_allclose(scores, [score for _, score in expected], atol=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_no_path_is_better_than_the_one_found(seed: int, length: int) -> None:
    draw = np.random.default_rng(seed)
    emissions, transitions = draw.normal(size=(length, 4)), draw.normal(size=(4, 4))

    def score(path: tuple[int, ...]) -> float:
        steps = sum(transitions[tag, before] for before, tag in itertools.pairwise((2, *path, 3)))
        return float(emissions[range(length), path].sum() + steps)

    tags, _ = decode_viterbi(emissions, transitions, 2, 3)
    assert score(tuple(tags)) >= max(map(score, itertools.product(range(4), repeat=length))) - 1e-9


def test_without_crf_a_score_is_the_probability_of_the_tag() -> None:
    emissions = torch.randn(5, 3)
    tags, scores = decode_best(emissions.numpy())
    best = emissions.softmax(1).max(1)
    assert tags == best.indices.tolist()
    np.testing.assert_allclose(scores, best.values, atol=1e-6)
