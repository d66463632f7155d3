"""Text for Flair's character models: dictionaries, and splits with lines in a new order in each epoch.

A text is an array of token ids in a file (`flair_nas.language_model.text`). Only one split is in memory at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import numpy as np
from flair.data import Dictionary
from torch import Tensor

from flair_nas.embedding.character_model.config import CharacterModelConfig
from flair_nas.errors import FlairNasError, shown
from flair_nas.language_model.text.corpus import END, UNKNOWN, Ids, TextCorpus, batchify, load_text
from flair_nas.storage.paths import user_path
from flair_nas.tagging.data.character_models import load_character_model

DELIMITER = "\n"


def load_characters(config: CharacterModelConfig, progress: bool) -> tuple[TextCorpus, Dictionary]:
    """Load the text, and the dictionary of its characters, of Flair's common ones, or of a model."""
    if config.dictionary == "text":
        corpus = load_text(config.text, config, progress=progress)
        dictionary = Dictionary(add_unk=True)
        for item in (DELIMITER, *(word for word in corpus.vocabulary.words if word not in (END, UNKNOWN))):
            dictionary.add_item(item)
        return corpus, dictionary
    if config.dictionary == "common":
        try:
            dictionary = Dictionary.load("chars")
        except Exception as error:  # from the network
            raise FlairNasError(
                f"Flair's common characters cannot be downloaded ({shown(error)}); dictionary=text needs no download"
            ) from None
    elif user_path(config.dictionary).exists():
        dictionary = load_character_model(config.dictionary).dictionary
    else:
        raise FlairNasError(
            f"dictionary {config.dictionary!r}: there is no such model; text and common are the other choices"
        )
    corpus = load_text(config.text, config, words=characters_of(dictionary), progress=progress)
    lacking = [part for part, share in corpus.unknown_shares.items() if share]
    if lacking and not dictionary.add_unk:
        raise FlairNasError(
            f"{corpus.labels[lacking[0]]} has characters that are not in {config.dictionary}, which has no id for "
            "unknown ones; take dictionary=text, or take them out of the text"
        )
    return corpus, dictionary


def characters_of(dictionary: Dictionary) -> list[str]:
    """Return the characters of a dictionary without the end of a line."""
    return [item for item in dictionary.get_items() if item not in (DELIMITER, "<unk>")]


def encode_characters(ids: Ids, characters: tuple[str, ...], dictionary: Dictionary) -> Ids:
    """Convert ids of a vocabulary of these characters to ids of a dictionary, int32 [characters].

    Lines without characters are left out, as in Flair.
    """
    kept = _drop_empty_lines(ids, characters.index(END))
    table = np.zeros(len(characters), np.int32)
    for number in np.unique(kept):
        item = DELIMITER if characters[number] == END else characters[number]
        if not dictionary.add_unk and not dictionary.has_item(item):
            raise FlairNasError(f"the dictionary has neither {item!r} nor an id for unknown characters")
        table[number] = dictionary.get_idx_for_item(item)
    encoded: Ids = table[kept]
    return encoded


def _drop_empty_lines(ids: Ids, end: int) -> Ids:
    is_end = ids == end
    kept: Ids = ids[~(is_end & np.concatenate([[True], is_end[:-1]]))]
    return kept


class Splits:
    """The training part of a text in pieces of whole lines."""

    def __init__(self, corpus: TextCorpus, dictionary: Dictionary, config: CharacterModelConfig) -> None:
        self.corpus, self.dictionary, self.config = corpus, dictionary, config
        self.characters = corpus.vocabulary.words
        self.bounds = _find_bounds(corpus, config.split_size, 2 * config.batch_size)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def count_steps(self) -> int:
        """Count the steps of an epoch."""
        end, config = self.corpus.vocabulary.index(END), self.config
        pieces = (self.corpus.train[start:stop] for start, stop in zip(self.bounds, self.bounds[1:]))
        rows = (len(_drop_empty_lines(piece, end)) // config.batch_size for piece in pieces)
        return sum(math.ceil((count - 1) / config.bptt) for count in rows)

    def order(self, epoch: int) -> list[int]:
        """Return the numbers of the splits in the order of an epoch, from 0. The first epoch keeps their order."""
        if epoch == 0:
            return list(range(len(self)))
        return [int(n) for n in np.random.default_rng([self.config.seed, epoch]).permutation(len(self))]

    def columns(self, number: int, epoch: int, forward: bool) -> Tensor:
        """Return a split with its lines in a new order, [T, B] on the CPU.

        Split and epoch, both from 0, and the seed determine the random numbers.
        """
        random = np.random.default_rng([self.config.seed, epoch, number])
        ids = self.corpus.train[self.bounds[number] : self.bounds[number + 1]]
        lines = np.split(ids, np.flatnonzero(ids == self.corpus.vocabulary.index(END))[:-1] + 1)
        order = random.permutation(len(lines))
        if self.config.random_case:
            chances = random.integers(0, 100, len(lines))
            for chance, table in enumerate(self._cases):  # lower case, capitals
                for line in np.flatnonzero(chances == chance):
                    lines[line] = table[lines[line]]
        shuffled = np.concatenate([lines[line] for line in order])
        encoded = encode_characters(shuffled, self.characters, self.dictionary)
        return batchify(encoded[:: 1 if forward else -1], self.config.batch_size, self.corpus.labels["train"])

    @cached_property
    def _cases(self) -> tuple[Ids, Ids]:
        """The ids of each character in lower case and as a capital, [V] each; its own id if that case has none."""
        numbers = {character: number for number, character in enumerate(self.characters)}

        def change(case: Callable[[str], str]) -> Ids:
            changed = (number if c in (END, UNKNOWN) else numbers.get(case(c), number) for c, number in numbers.items())
            return np.fromiter(changed, np.int32)

        return change(str.lower), change(str.upper)


def _find_bounds(corpus: TextCorpus, size: int, minimum: int) -> list[int]:
    """Return the beginnings of the splits and the end of the last one.

    A split ends with the last line that ends within `size` characters. A short split is joined with the one before it,
    the first one with the second. A split is short below half the size, or below the minimum without empty lines.
    """
    ids, end = corpus.train, corpus.vocabulary.index(END)

    def is_short(start: int, stop: int) -> bool:
        return stop - start < size // 2 or len(_drop_empty_lines(ids[start:stop], end)) < minimum

    bounds, short = [0], False  # the split before is too short
    while bounds[-1] < len(ids):
        piece = ids[bounds[-1] : bounds[-1] + size]
        ends = np.flatnonzero(piece == end)
        if not len(ends):
            line = np.count_nonzero(ids[: bounds[-1]] == end) + 1
            place = f"{corpus.labels['train']}, line {line:,}"
            raise FlairNasError(f"{place}: longer than split_size = {size:,}; break it into lines, or set a larger one")
        bounds.append(bounds[-1] + int(ends[-1]) + 1)
        if short or (len(bounds) > 2 and is_short(*bounds[-2:])):
            del bounds[-2]
        short = is_short(*bounds[-2:])
    return bounds
