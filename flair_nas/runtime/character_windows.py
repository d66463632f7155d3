"""Vectors of words from windows over their characters, without padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flair_nas.runtime.decoding import Floats
from flair_nas.runtime.words import Word

WINDOW = 3
"""Characters of a window: each character of a word with its two neighbours."""
UNKNOWN, MARK = 0, 1
"""Numbers of an unknown character, and of the mark before and after each word. The alphabet follows."""
_END = 0x110000  # above all characters


class CharacterWindows:
    """Windows over the characters of words, as rows of a table.

    The table has `WINDOW` parts, one for each place in a window. Each part has `size` rows.

    Args:
        alphabet: the known characters, sorted.
    """

    def __init__(self, alphabet: str) -> None:
        self.size = len(alphabet) + 2
        self._known = np.array([*map(ord, alphabet), _END])

    def find_rows(self, words: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of all windows of all words, [windows, 3], and the first window of each word, [words]."""
        lengths = np.array([len(word) for word in words])
        ends = np.cumsum(lengths)
        text = "\0".join(["", *words, ""])  # one character for each mark
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")  # [characters and marks]
        places = np.searchsorted(self._known, codes)
        numbers = np.where(self._known[places] == codes, places + 2, UNKNOWN)
        numbers[np.append(0, ends + 1 + np.arange(len(words)))] = MARK
        center = np.arange(lengths.sum()) + 1 + np.repeat(np.arange(len(words)), lengths)  # [windows]
        windows = numbers[center[:, None] + np.arange(-1, 2)]  # [windows, 3]
        return windows + self.size * np.arange(WINDOW), ends - lengths


class CharacterConvolution:
    """Vectors from the characters of each word alone, by a convolution and its maximum.

    Args:
        settings: ``alphabet``, and ``vectors``, the name of the file of the table.
        folder: the folder of the file.
    """

    def __init__(self, settings: Mapping[str, Any], folder: Path) -> None:
        self.windows = CharacterWindows(settings["alphabet"])
        self.table = np.load(folder / settings["vectors"])

    def embed(self, sentences: Sequence[Sequence[Word]]) -> list[Floats]:
        """Return the vectors of each sentence, [T, width]."""
        numbers: dict[str, int] = {}
        places = [[numbers.setdefault(word.text, len(numbers)) for word in words] for words in sentences]
        rows, starts = self.windows.find_rows([*numbers])
        vectors = np.maximum.reduceat(self.table[rows].sum(axis=1), starts)  # [words, width]
        return [vectors[place] for place in places]
