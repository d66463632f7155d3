"""Vectors of words: from a table, the characters of a word, a language model or a transformer, or given."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flair_nas.errors import FlairNasError
from flair_nas.runtime.decoding import Floats
from flair_nas.runtime.model import Model, batch_by_length
from flair_nas.runtime.transformer import Transformer
from flair_nas.runtime.word_table import WordTable
from flair_nas.runtime.words import Word

Lookup = Callable[[list[str]], Floats]
"""A user's function from the words of a sentence to their vectors, [T, width]."""
Codes = tuple[int, ...]
"""Numbers of a word's characters."""


class Table:
    """Vectors of a vocabulary, mapped from a file.

    Args:
        settings: ``keys`` and ``vectors``, names of the two files. If ``loose`` is true, a word is also looked up in
            lower case, and with its digits as # or 0. The last row is of unknown words.
        folder: the folder of the files.
    """

    def __init__(self, settings: Mapping[str, Any], folder: Path) -> None:
        keys = json.loads((folder / settings["keys"]).read_text(encoding="utf-8"))
        self.rows = {key: row for row, key in enumerate(keys)}
        self.vectors = np.load(folder / settings["vectors"], mmap_mode="r")
        self.is_loose = settings["loose"]

    def row_of(self, word: str) -> int:
        """Return the row of a word."""
        forms = [word]
        if self.is_loose:
            lower = word.lower()
            forms += [lower, re.sub(r"\d", "#", lower), re.sub(r"\d", "0", lower)]
        return next((self.rows[form] for form in forms if form in self.rows), len(self.vectors) - 1)

    def embed(self, sentences: Sequence[Sequence[Word]]) -> list[Floats]:
        """Return the vectors of each sentence, [T, width]."""
        return [self.vectors[[self.row_of(word.text) for word in words]] for words in sentences]


class WordCharacters:
    """Vectors from the characters of each word alone, by a bidirectional layer.

    Args:
        model: the layer.
        ids: number of each character. Others have 0.
        is_mixed: mix vectors up as Flair's `CharacterEmbeddings` do.
    """

    def __init__(self, model: Model, ids: Mapping[str, int], is_mixed: bool = True) -> None:
        self.model, self.ids, self.is_mixed = model, ids, is_mixed

    def embed(self, sentences: Sequence[Sequence[Word]]) -> list[Floats]:
        """Return the vectors of each sentence, [T, width]."""
        coded = [[tuple(self.ids.get(letter, 0) for letter in word.text) for word in words] for words in sentences]
        vectors = self._embed_words({codes for words in coded for codes in words})
        order = [mix_up(words) if self.is_mixed else words for words in coded]
        return [np.stack([vectors[codes] for codes in words]) for words in order]

    def _embed_words(self, words: set[Codes]) -> dict[Codes, Floats]:
        """Return the vector of each word, [width]; words of like length are read together, and few long ones."""
        vectors: dict[Codes, Floats] = {}
        for part in batch_by_length(words, len):
            lengths = np.array([*map(len, part)])
            ids = np.zeros((len(part), lengths[-1]), np.int64)
            for row, codes in zip(ids, part):
                row[: len(codes)] = codes
            vectors |= zip(part, self.model.run(["vectors"], {"ids": ids, "lengths": lengths})[0])
        return vectors


def mix_up(words: list[Codes]) -> list[Codes]:
    """Return for each word of a sentence the word whose vector Flair uses, which taggers have learned with.

    All but the last occurrence of a word get the vector of another one, by the order of lengths.
    """
    by_length = sorted(words, key=len, reverse=True)
    last = {codes: place for place, codes in enumerate(words)}
    return [codes if last[codes] == place else by_length[place] for place, codes in enumerate(words)]


class LanguageModel:
    """Vectors from the states of a character language model, as Flair's `FlairEmbeddings` has them.

    Args:
        model: the language model.
        ids: number of each character.
        settings: the width, and the options of `FlairEmbeddings`.
    """

    def __init__(self, model: Model, ids: Mapping[str, int], settings: Mapping[str, Any]) -> None:
        self.model, self.ids, self.settings = model, ids, settings

    def embed(self, sentences: Sequence[Sequence[Word]]) -> list[Floats]:
        """Return the vectors of each sentence, [T, width]."""
        texts, places = zip(*(self._read(words) for words in sentences))
        size = max(map(len, texts))
        ids = np.full((len(texts), size), self.ids.get(" ", 0), np.int64)
        for row, text in zip(ids, texts):
            row[: len(text)] = [self.ids.get(character, 0) for character in text]
        vectors: list[Floats] = [np.empty((len(words), self.settings["width"]), np.float32) for words in sentences]
        for begin, states in self._run(ids):
            for row, wanted, result in zip(states, places, vectors):
                here = (wanted >= begin) & (wanted < begin + len(row))  # [T]
                result[here] = row[wanted[here] - begin]
        return vectors

    def _read(self, words: Sequence[Word]) -> tuple[str, NDArray[np.intp]]:
        """Return the text of a sentence as the model reads it, and the place of each word's state in it."""
        settings = self.settings
        is_joined, forward = settings["tokenized_lm"], settings["is_forward_lm"]
        text = " ".join(word.text for word in words)
        if not is_joined:
            text = "".join(word.text + word.blanks * " " for word in words).rstrip()
        size = len(text)
        if settings["is_lower"]:
            text = text.lower()
        start = len(settings["start_marker"])
        before, after, places = start, start + size, []
        for word in words:
            before += len(word.text)
            places.append((before if forward else after) - (not settings["with_whitespace"]))
            if is_joined or word.blanks:  # several blanks count as one, as in Flair
                before += 1
                after -= 1
            after -= len(word.text)
        return f"{settings['start_marker']}{text if forward else text[::-1]} ", np.array(places)

    def _run(self, ids: NDArray[np.int64]) -> Iterator[tuple[int, Floats]]:
        """Yield the states of a piece of the text after another, [B, T, H], with the place where it begins."""
        piece = self.settings["chars_per_chunk"]
        (names, sizes) = zip(*((part.name, part.shape) for part in self.model.session.get_inputs()[1:]))
        state = {name: np.zeros((first, len(ids), last), np.float32) for name, (first, _, last) in zip(names, sizes)}
        for begin in range(0, ids.shape[1], piece):
            states, *after = self.model.run(None, {"ids": ids[:, begin : begin + piece], **state})
            state = dict(zip(names, after))
            yield begin, states


class Given:
    """Vectors that a function of the user's gives.

    Args:
        name: name of the embeddings.
        width: width of a vector.
        lookup: the function.
    """

    def __init__(self, name: str, width: int, lookup: Lookup) -> None:
        self.name, self.width, self.lookup = name, width, lookup

    def embed(self, sentences: Sequence[Sequence[Word]]) -> list[Floats]:
        """Return the vectors of each sentence, [T, width]."""
        vectors = [np.asarray(self.lookup([word.text for word in words]), np.float32) for words in sentences]
        for words, rows in zip(sentences, vectors):
            if rows.shape != (len(words), self.width):
                expected = f"{len(words)} words must get vectors [{len(words)}, {self.width}]"
                raise FlairNasError(f"vectors of {self.name}: {expected}, got {list(rows.shape)}")
        return vectors


Embeddings = Table | WordCharacters | LanguageModel | Transformer | Given


class Kind(NamedTuple):
    """A kind of embeddings in a tagger's settings."""

    settings: tuple[str, ...]  # beside `name` and `width`
    load: Callable[[Mapping[str, Any], Path, int], Embeddings]  # from its entry, the folder and a number of threads


KINDS = {
    "table": Kind(("keys", "vectors", "loose"), lambda entry, folder, _: Table(entry, folder)),
    "words": Kind(
        ("words",),
        lambda entry, folder, _: Given(entry["name"], entry["width"], WordTable(folder / entry["words"]).embed),
    ),
    "characters": Kind(
        ("model", "characters"),
        lambda entry, folder, threads: WordCharacters(Model(folder / entry["model"], threads), entry["characters"]),
    ),
    "word characters": Kind(
        ("model", "characters"),
        lambda entry, folder, threads: WordCharacters(
            Model(folder / entry["model"], threads), entry["characters"], is_mixed=False
        ),
    ),
    "language model": Kind(
        (
            *("model", "characters", "is_forward_lm", "with_whitespace", "tokenized_lm", "is_lower"),
            *("start_marker", "chars_per_chunk"),
        ),
        lambda entry, folder, threads: LanguageModel(
            Model(folder / entry["model"], threads), entry["characters"], entry
        ),
    ),
    "transformer": Kind(
        ("model", "tokenizer", "max_length", "stride", "truncation_side", "padding"),
        lambda entry, folder, threads: Transformer(
            Model(folder / entry["model"], threads), folder / entry["tokenizer"], entry
        ),
    ),
}
"""Kinds of embeddings that an export holds. Those of the kind ``given`` are functions of the user's."""
