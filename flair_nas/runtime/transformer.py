"""Vectors of words from a transformer, as Flair's `TransformerWordEmbeddings` has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flair_nas.errors import FlairNasError, shown
from flair_nas.runtime.decoding import Floats
from flair_nas.runtime.model import Model, batch_by_length
from flair_nas.runtime.words import Word


class Transformer:
    """Vectors of the first piece of each word, and zeros for a word without pieces.

    Args:
        model: the transformer.
        tokenizer: the file of its tokenizer.
        settings: the width, the largest number of pieces that the model reads (None for any), and by how many pieces
            the windows of a longer sentence overlap (None to cut it).

    Raises:
        FlairNasError: the package tokenizers is missing, or cannot read the file.
    """

    def __init__(self, model: Model, tokenizer: Path, settings: Mapping[str, Any]) -> None:
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError:
            raise FlairNasError(
                "tokenizers, which transformers need, is not installed; pip install tokenizers"
            ) from None
        try:
            self.tokenizer = Tokenizer.from_file(str(tokenizer))
        except Exception as error:  # it raises plain exceptions
            raise FlairNasError(
                f"{tokenizer}: this tokenizers cannot read it ({shown(error)}); update tokenizers, or export once more"
            ) from None
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.model, self.settings, self.size = model, settings, settings["max_length"]
        if self.size is not None:
            side, stride = settings["truncation_side"], settings["stride"] or 0
            self.tokenizer.enable_truncation(max_length=self.size, stride=stride, direction=side)

    def embed(self, sentences: Sequence[Sequence[Word]]) -> list[Floats]:
        """Return the vectors of each sentence, [T, width]."""
        windows: list[Any] = []  # pieces that the model reads together, of one sentence each
        counts = []
        for words in sentences:
            encoding = self.tokenizer.encode([word.text for word in words], is_pretokenized=True)
            own = [encoding] if self.settings["stride"] is None else [encoding, *encoding.overflowing]
            windows += own
            counts.append(len(own))
        states = self._run([window.ids for window in windows])
        results, begin = [], 0
        for words, count in zip(sentences, counts):
            numbers = [[-1 if n is None else n for n in window.word_ids] for window in windows[begin : begin + count]]
            pieces = self._join(list(map(np.array, numbers)))  # [P]
            vectors = self._join(states[begin : begin + count])  # [P, width]
            first = (pieces >= 0) & (pieces != np.concatenate([[-1], pieces[:-1]]))  # [P]
            result = np.zeros((len(words), self.settings["width"]), np.float32)
            result[pieces[first]] = vectors[first]
            results.append(result)
            begin += count
        return results

    def _join(self, windows: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Join values of overlapping windows: each is read where its window has most of the context, as in Flair."""
        if len(windows) == 1:
            return windows[0]
        half = self.settings["stride"] // 2
        end = self.size - 1 - half
        return np.concatenate([windows[0][: half + 1], *(part[half + 1 : end] for part in windows), windows[-1][end:]])

    def _run(self, windows: Sequence[Sequence[int]]) -> list[Floats]:
        """Return the states of each window, [pieces, width]; windows of like length are read together."""
        states: dict[int, Floats] = {}
        for part in batch_by_length(range(len(windows)), lambda number: len(windows[number])):
            longest = max(1, len(windows[part[-1]]))
            ids = np.full((len(part), longest), self.settings["padding"], np.int64)
            mask = np.zeros_like(ids)
            for row, (number, used) in enumerate(zip(part, mask)):
                size = len(windows[number])
                ids[row, :size] = windows[number]
                used[:size] = 1
            (output,) = self.model.run(["states"], {"ids": ids, "mask": mask})
            states |= {number: rows[: len(windows[number])] for number, rows in zip(part, output)}
        return [states[number] for number in range(len(windows))]
