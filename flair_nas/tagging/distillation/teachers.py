"""Labels of teachers: the probability of each tag of each word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from flair.data import Sentence
from flair.models import SequenceTagger
from numpy.typing import NDArray

from flair_nas.runtime.decoding import Floats, find_marginals
from flair_nas.tagging.calibration import crf_of, emissions_of
from flair_nas.tagging.evaluation import NO_TAGS, labels_of_tags, tagger_labels, tags_of

TOP = 3
"""Tags that are kept of each word."""


class Targets(NamedTuple):
    """The likeliest tags of the words of a sentence, and their probabilities, which sum to 1: [T, TOP] each."""

    tags: NDArray[np.integer[Any]]
    chances: Floats


def pick_targets(marginals: Floats) -> Targets:
    """Return the likeliest tags from the probabilities of all, [T, tags]."""
    tags = np.argsort(-marginals, axis=1, kind="stable")[:, :TOP]
    chances = np.take_along_axis(marginals, tags, 1)
    return Targets(tags.astype(np.uint16), (chances / chances.sum(1, keepdims=True)).astype(np.float32))


def name_tags(tagger: SequenceTagger) -> list[str]:
    """Return the names of a tagger's tags, in their order."""
    names: list[str] = tagger.label_dictionary.get_items()
    return names


def is_soft(teacher: SequenceTagger, names: Sequence[str]) -> bool:
    """Return True if a teacher has the tags of a student."""
    return {*names} - {*NO_TAGS} == {*name_tags(teacher)} - {*NO_TAGS}


def describe_teacher(teacher: SequenceTagger, names: Sequence[str]) -> str:
    """Return how a teacher labels for a student with other tags or the same; the labels that both know."""
    if is_soft(teacher, names):
        return "has the labels of the corpus, and gives probabilities"
    own, wanted = tagger_labels(teacher), labels_of_tags(names, teacher.predict_spans)
    words = f"has other tags, and gives its best ones: {', '.join(sorted(own & wanted)) or 'none of the corpus'}"
    if unknown := sorted(own - wanted):
        words += f"; {', '.join(unknown)} is not in the corpus and counts as O"
    return words


def annotate(teachers: Sequence[SequenceTagger], sentences: Sequence[Sentence], names: Sequence[str]) -> list[Targets]:
    """Return the mean of what teachers say of each sentence.

    Args:
        teachers: taggers that `load_tagger` returned.
        sentences: sentences without labels.
        names: tags of the student. A teacher with others gives its best tags alone.
    """
    numbers = {name: number for number, name in enumerate(names)}
    totals = {id(sentence): np.zeros((len(sentence), len(names))) for sentence in sentences}
    for teacher in teachers:
        give = _find_probabilities if is_soft(teacher, names) else _find_best
        for sentence, own in give(teacher, sentences, numbers):
            totals[id(sentence)] += own
    return [pick_targets(totals[id(sentence)]) for sentence in sentences]


def _find_probabilities(
    teacher: SequenceTagger, sentences: Sequence[Sentence], numbers: dict[str, int]
) -> Iterator[tuple[Sentence, Floats]]:
    own = name_tags(teacher)
    kept = [number for number, name in enumerate(own) if name not in NO_TAGS]
    columns = [numbers[own[number]] for number in kept]
    for some, emissions, lengths in emissions_of(teacher, sentences):
        marginals = find_marginals(emissions, lengths, crf_of(teacher, 1.0))
        for sentence, row, length in zip(some, marginals, lengths):
            placed = np.zeros((length, len(numbers)))
            placed[:, columns] = row[:length, kept]
            yield sentence, placed / placed.sum(1, keepdims=True)


def _find_best(
    teacher: SequenceTagger, sentences: Sequence[Sentence], numbers: dict[str, int]
) -> Iterator[tuple[Sentence, Floats]]:
    teacher.predict([*sentences], label_name="teacher")
    for sentence in sentences:
        tags = to_bioes(tags_of(sentence, "teacher")) if teacher.predict_spans else tags_of(sentence, "teacher")
        placed = np.zeros((len(sentence), len(numbers)))
        placed[np.arange(len(tags)), [numbers.get(tag, numbers["O"]) for tag in tags]] = 1.0
        sentence.remove_labels("teacher")
        yield sentence, placed


def to_bioes(tags: Sequence[str]) -> list[str]:
    """Return IOB2 tags in the form of Flair's taggers."""
    found = []
    for tag, after in zip(tags, [*tags[1:], "O"]):
        goes_on = after == f"I-{tag[2:]}"
        found.append(tag if tag == "O" or goes_on else {"B": "S", "I": "E"}[tag[0]] + tag[1:])
    return found
