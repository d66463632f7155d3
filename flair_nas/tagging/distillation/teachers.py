"""What teachers say of sentences: the probability of each tag of each word."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from flair.data import Sentence
from flair.models import SequenceTagger

from flair_nas.runtime.decoding import Floats, find_marginals
from flair_nas.tagging.calibration import crf_of, emissions_of
from flair_nas.tagging.evaluation import tags_of

log = logging.getLogger("flair_nas")

TOP = 3
"""Tags that are kept of each word."""


class Targets:
    """The likeliest tags of the words of a sentence, and their probabilities, which sum to 1: [T, TOP] each."""

    def __init__(self, marginals: Floats) -> None:
        self.tags = np.argsort(-marginals, axis=1, kind="stable")[:, :TOP].astype(np.uint16)
        chances = np.take_along_axis(marginals, self.tags.astype(np.intp), 1)
        self.chances = (chances / chances.sum(1, keepdims=True)).astype(np.float32)


def is_soft(teacher: SequenceTagger, names: Sequence[str]) -> bool:
    """Return True if a teacher has the tags of a student."""
    return {*words_of(names)} == {*words_of(tag_names(teacher))}


def tag_names(tagger: SequenceTagger) -> list[str]:
    """Return the names of a tagger's tags, in their order."""
    return [name.decode() for name in tagger.label_dictionary.idx2item]


def words_of(names: Sequence[str]) -> list[str]:
    """Return the tags that words can have."""
    return [name for name in names if name not in ("<START>", "<STOP>", "<unk>")]


def annotate(
    teachers: Sequence[SequenceTagger], sentences: Sequence[Sentence], names: Sequence[str]
) -> Iterator[tuple[Sentence, Targets]]:
    """Yield sentences with what the mean of their teachers says, in batches of like length.

    Args:
        teachers: trained taggers.
        sentences: sentences without labels.
        names: tags of the student. A teacher with others gives hard labels.
    """
    numbers = {name: number for number, name in enumerate(names)}
    for some in _batches(sentences):
        found = [np.zeros((len(sentence), len(names))) for sentence in some]
        for teacher in teachers:
            own = soft_marginals(teacher, some, numbers) if is_soft(teacher, names) else hard(teacher, some, numbers)
            for total, one in zip(found, own):
                total += one
        for sentence, total in zip(some, found):
            yield sentence, Targets(total)


def _batches(sentences: Sequence[Sentence], size: int = 32, at_once: int = 16) -> Iterator[list[Sentence]]:
    for at in range(0, len(sentences), size * at_once):
        ordered = sorted(sentences[at : at + size * at_once], key=len, reverse=True)
        yield from (ordered[place : place + size] for place in range(0, len(ordered), size))


def soft_marginals(teacher: SequenceTagger, sentences: list[Sentence], numbers: dict[str, int]) -> Iterator[Floats]:
    own = tag_names(teacher)
    kept = [number for number, name in enumerate(own) if name in words_of(own)]
    columns = [numbers[own[number]] for number in kept]
    with torch.no_grad():
        for some, emissions, lengths in emissions_of(teacher, sentences):
            marginals = find_marginals(emissions, lengths, crf_of(teacher, 1.0))
            for row, length in zip(marginals, lengths):
                placed = np.zeros((length, len(numbers)))
                placed[:, columns] = row[:length, kept]
                yield placed / placed.sum(1, keepdims=True)


def hard(teacher: SequenceTagger, sentences: list[Sentence], numbers: dict[str, int]) -> Iterator[Floats]:
    teacher.predict(sentences, label_name="teacher")
    unknown = Counter[str]()
    for sentence in sentences:
        placed = np.zeros((len(sentence), len(numbers)))
        for place, tag in enumerate(to_bioes(tags_of(sentence, "teacher"))):
            unknown[tag] += tag not in numbers
            placed[place, numbers.get(tag, numbers["O"])] = 1.0
        yield placed


def to_bioes(tags: Sequence[str]) -> list[str]:
    """Return IOB2 tags in the form of Flair's taggers."""
    found = []
    for tag, after in zip(tags, [*tags[1:], "O"]):
        goes_on = after == f"I-{tag[2:]}"
        found.append(tag if tag == "O" or goes_on else {"B": "S", "I": "E"}[tag[0]] + tag[1:])
    return found
