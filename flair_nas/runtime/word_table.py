"""Vectors of many words in one file. If it is mapped, loading copies nothing, and processes share its memory."""

from __future__ import annotations

import functools
import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flair_nas.runtime.decoding import Floats

Bytes = NDArray[np.uint8]

_TYPES = {"U8": "u1", "I8": "i1", "U16": "<u2", "F32": "<f4"}  # of safetensors, in NumPy's names
_NEWLINE = 10
_REMEMBERED = 1 << 14  # words; most of a text are among the last so many
_SHORTEST, _LONGEST = 3, 6  # characters of a part of a word


class WordTable:
    """Vectors of words in 8 bits, mapped from a file or in memory.

    A vector is a row of 8-bit integers times one float32 number, so it is the same to the bit on every machine. If the
    file has rows of parts of words, a word that is not in the table has the mean of the rows of its parts. Without
    them, it has the vector of its lower case, or zeros.

    Args:
        source: a file of safetensors, or its bytes. It holds ``words`` (UTF-8, a line each, in the order of their
            bytes), ``rows`` (of each word), ``vectors`` [rows, width] and ``scales`` [rows, 1]. With parts, it holds
            ``part_vectors`` [part rows, width] and ``part_scales`` [part rows, 1], too.

    Attributes:
        data: the bytes of the file.
        width: numbers of a vector.
    """

    def __init__(self, source: Path | Bytes) -> None:
        self._source = source
        self.data: Bytes = np.memmap(source, np.uint8, "r") if isinstance(source, Path) else source
        tensors = read_tensors(self.data)
        self._rows, self._vectors, self._scales = (tensors[name] for name in ("rows", "vectors", "scales"))
        self._words = tensors["words"].data
        self._ends = np.flatnonzero(tensors["words"] == _NEWLINE).astype(np.uint32).data
        self._parts = (tensors["part_vectors"], tensors["part_scales"]) if "part_vectors" in tensors else None
        self.width: int = self._vectors.shape[1]
        self._find = functools.lru_cache(_REMEMBERED)(self._search)
        self._compose = functools.lru_cache(_REMEMBERED)(self._average_parts)

    def __reduce__(self) -> tuple[type[WordTable], tuple[Path | Bytes]]:
        """Pickle the path: a copy, or another process, maps the file again."""
        return type(self), (self._source,)

    def __contains__(self, word: str) -> bool:
        """Return True if a word has a row."""
        return self._find(word) is not None

    def embed(self, words: Sequence[str]) -> Floats:
        """Return the vectors of words, [T, width]."""
        rows = [self._find(word) for word in words]
        places = [place for place, row in enumerate(rows) if row is not None]
        known = [row for row in rows if row is not None]
        vectors = np.zeros((len(words), self.width), np.float32)
        vectors[places] = self._vectors[known] * self._scales[known]
        if self._parts is not None:
            for place, row in enumerate(rows):
                if row is None:
                    vectors[place] = self._compose(words[place])
        return vectors

    def _search(self, word: str) -> int | None:
        """Return the row of a word."""
        for form in (word, word.lower()) if self._parts is None else (word,):
            key = form.encode("utf-8", "surrogatepass")
            number = bisect_left(range(len(self._ends)), key, key=self._read)
            if number < len(self._ends) and self._read(number) == key:
                return int(self._rows[number])
        return None

    def _read(self, number: int) -> bytes:
        """Return the word of a number."""
        return bytes(self._words[self._ends[number - 1] + 1 if number else 0 : self._ends[number]])

    def _average_parts(self, word: str) -> Floats:
        """Return the mean of the rows of a word's parts, [width]."""
        assert self._parts is not None
        vectors, scales = self._parts
        rows = [number % len(vectors) for number in hash_parts(word)]
        # rows are added one by one, so the sum is the same everywhere
        mean: Floats = (vectors[rows] * scales[rows]).sum(axis=0) / np.float32(max(1, len(rows)))
        return mean


def hash_parts(word: str) -> Iterator[int]:
    """Yield a 32-bit number for each part of a word, as fastText numbers them.

    Parts are runs of 3 to 6 characters of the word between ``<`` and ``>``. The number is the FNV-1a hash of the part's
    UTF-8, whose bytes are signed (Bojanowski et al., TACL 2017, and the code of fastText).
    """
    letters = [letter.encode("utf-8", "surrogatepass") for letter in f"<{word}>"]
    for start in range(len(letters) - _SHORTEST + 1):
        number = 2166136261
        for size, letter in enumerate(letters[start : start + _LONGEST], 1):
            for byte in letter:
                number = ((number ^ (byte | 0xFFFFFF00 if byte > 127 else byte)) * 16777619) & 0xFFFFFFFF
            if size >= _SHORTEST:
                yield number


def read_tensors(data: Bytes) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file of safetensors: 8 bytes of length, JSON of that length, and the data."""
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:start].tobytes())
    return {
        name: data[start:][slice(*entry["data_offsets"])].view(_TYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    }
