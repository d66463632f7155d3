"""Vectors of many words in one file. It is mapped: loading copies nothing, and processes share its memory."""

from __future__ import annotations

import functools
import json
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flair_nas.runtime.decoding import Floats

_TYPES = {"U8": "u1", "I8": "i1", "U16": "<u2", "F32": "<f4"}  # of safetensors, in NumPy's names
_NEWLINE = 10
_REMEMBERED = 1 << 14  # words; most of a text are among the last so many


class WordTable:
    """Vectors of words in 8 bits, mapped from a file.

    A word is looked up as it is, then in lower case. Others have zeros. A vector is a row of 8-bit integers times one
    float32 number, so it is the same to the bit on every machine.

    Args:
        path: a file of safetensors with ``words`` (UTF-8, a line each, in the order of their bytes), ``rows`` (of each
            word), ``vectors`` [rows, width] and ``scales`` [rows, 1].

    Attributes:
        path: the file.
        width: numbers of a vector.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        tensors = map_tensors(path)
        self._rows, self._vectors, self._scales = (tensors[name] for name in ("rows", "vectors", "scales"))
        self._words = tensors["words"].data
        self._ends = np.flatnonzero(tensors["words"] == _NEWLINE).astype(np.uint32).data
        self.width: int = self._vectors.shape[1]
        self._find = functools.lru_cache(_REMEMBERED)(self._search)

    def __reduce__(self) -> tuple[type[WordTable], tuple[Path]]:
        """Pickle the path: a copy, or another process, maps the file again."""
        return type(self), (self.path,)

    def __contains__(self, word: str) -> bool:
        """Return True if a word is known, as it is or in lower case."""
        return self._find(word) is not None

    def embed(self, words: Sequence[str]) -> Floats:
        """Return the vectors of words, [T, width]."""
        rows = [self._find(word) for word in words]
        places = [place for place, row in enumerate(rows) if row is not None]
        known = [row for row in rows if row is not None]
        vectors = np.zeros((len(words), self.width), np.float32)
        vectors[places] = self._vectors[known] * self._scales[known]
        return vectors

    def _search(self, word: str) -> int | None:
        """Return the row of a word."""
        for form in (word, word.lower()):
            key = form.encode("utf-8", "surrogatepass")
            number = bisect_left(range(len(self._ends)), key, key=self._read)
            if number < len(self._ends) and self._read(number) == key:
                return int(self._rows[number])
        return None

    def _read(self, number: int) -> bytes:
        """Return the word of a number."""
        return bytes(self._words[self._ends[number - 1] + 1 if number else 0 : self._ends[number]])


def map_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file of safetensors, mapped: 8 bytes of length, JSON of that length, and the data."""
    with open(path, "rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(size))
    data = np.memmap(path, np.uint8, "r", offset=8 + size)
    return {
        name: data[slice(*entry["data_offsets"])].view(_TYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
        if name != "__metadata__"
    }
