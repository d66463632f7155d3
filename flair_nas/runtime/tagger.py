"""Taggers that need onnxruntime, NumPy and segtok alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flair_nas.errors import FlairNasError
from flair_nas.runtime.decoding import CRF, Floats, Numbers, Span, decode
from flair_nas.runtime.model import Model
from flair_nas.runtime.settings import MODEL, TRANSITIONS, read_settings
from flair_nas.runtime.vectors import KINDS, Given, Lookup
from flair_nas.runtime.words import LONG, Word, check_characters, split_words
from flair_nas.storage.paths import user_path


class Tagger:
    """A tagger that ``flair-nas tag export`` wrote.

    Args:
        folder: the folder.
        vectors: functions for embeddings that could not be exported, by name. A function gets the words of a sentence
            and returns their vectors, [T, width].
        threads: threads of onnxruntime; 0 for all cores, which pays for large models alone.

    Attributes:
        label_type: what is predicted, such as ``ner``.
        given: names and widths of the embeddings that `vectors` has to give.

    Raises:
        FlairNasError: the folder is not whole, a file is of another export, or a function is missing.
    """

    __module__ = "flair_nas.onnx"

    def __init__(self, folder: str | Path, vectors: Mapping[str, Lookup] | None = None, threads: int = 1) -> None:
        folder, vectors = user_path(folder), vectors or {}
        settings = read_settings(folder)
        self.label_type: str = settings["label_type"]
        self.given: dict[str, int] = {e["name"]: e["width"] for e in settings["embeddings"] if e["kind"] == "given"}
        if missing := sorted(self.given.keys() - vectors.keys()):
            raise FlairNasError(
                f"{folder}: embeddings {', '.join(missing)} could not be exported; give functions from words to their "
                f"vectors: Tagger(folder, vectors={{{missing[0]!r}: function}})"
            )
        self._settings, self._arguments = settings, (folder.absolute(), vectors, threads)
        self._embeddings = [
            Given(e["name"], e["width"], vectors[e["name"]])
            if e["kind"] == "given"
            else KINDS[e["kind"]].load(e, folder, threads)
            for e in settings["embeddings"]
        ]
        self._model = Model(folder / MODEL, threads)
        self._crf = CRF(np.load(folder / TRANSITIONS), *settings["crf"]) if settings["crf"] else None

    def __reduce__(self) -> tuple[type[Tagger], tuple[Path, Mapping[str, Lookup], int]]:
        """Pickle the arguments: a copy, or another process, loads the folder again."""
        return type(self), self._arguments

    def predict(self, texts: Iterable[str], *, tokenized: bool = False, batch_size: int = 32) -> list[dict[str, Any]]:
        """Tag sentences.

        Args:
            texts: one sentence each.
            tokenized: split words at blanks and tabs. Default: by segtok, as Flair does.
            batch_size: sentences that are tagged together.

        Returns:
            For each sentence its ``text``, ``tokens``, and ``labels``: each with ``label``, ``text``, ``start`` and
            ``end`` in the sentence, and ``score``. It is what ``flair-nas tag predict --format jsonl`` writes.
        """
        lines = [texts] if isinstance(texts, str) else list(texts)
        if not all(isinstance(line, str) for line in lines):
            raise FlairNasError("predict takes texts; find_spans takes sentences that are split into words")
        sentences = [split_words(line, tokenized) for line in check_characters(lines)]
        results = []
        for line, words, spans in zip(lines, sentences, self._tag(sentences, batch_size)):
            labels = []
            for span in spans:
                start, last = words[span.first].start, words[span.end - 1]
                end = last.start + len(last.text)
                place = {"text": line[start:end], "start": start, "end": end}
                labels.append({"label": span.label, **place, "score": round(span.score, 6)})
            results.append({"text": line, "tokens": [word.text for word in words], "labels": labels})
        return results

    def find_spans(self, sentences: Iterable[Sequence[str]], *, batch_size: int = 32) -> list[list[Span]]:
        """Tag sentences that are split into words.

        Args:
            sentences: the words of each sentence.
            batch_size: sentences that are tagged together.

        Returns:
            The spans of each sentence: a label, the number of the first word, that of the word after the last, a score.
        """
        sentences = list(sentences)
        if any(isinstance(words, str) for words in sentences):
            raise FlairNasError("find_spans takes a list of words for each sentence; predict takes texts")
        sentences = [list(words) for words in sentences]
        if not all(word for words in sentences for word in words):
            raise FlairNasError("find_spans takes words that are not empty; leave the empty ones out")
        list(check_characters(map(" ".join, sentences)))
        return self._tag([[Word(word, 0, 1) for word in words] for words in sentences], batch_size)

    def _tag(self, sentences: Sequence[Sequence[Word]], batch_size: int) -> list[list[Span]]:
        if batch_size < 1:
            raise FlairNasError(f"batch_size must be at least 1, got {batch_size}")
        spans: list[list[Span]] = [[] for _ in sentences]
        for places in _batch(sentences, batch_size):
            emissions, lengths = self._run([sentences[place] for place in places])
            found = decode(emissions, lengths, self._crf, self._settings["tags"], self._settings["spans"])
            for place, own in zip(places, found):
                spans[place] = own
        return spans

    def _run(self, sentences: Sequence[Sequence[Word]]) -> tuple[Floats, Numbers]:
        """Return the emissions of sentences, [B, T, tags], and their lengths."""
        lengths = np.array([len(words) for words in sentences])
        parts = [embeddings.embed(sentences) for embeddings in self._embeddings]
        x = np.zeros((len(sentences), lengths.max(), self._settings["width"]), np.float32)
        for row, length, vectors in zip(x, lengths, zip(*parts)):
            np.concatenate(vectors, axis=1, out=row[:length])
        (emissions,) = self._model.run(["emissions"], {"x": x, "lengths": lengths})
        return emissions, lengths


def _batch(sentences: Sequence[Sequence[Word]], batch_size: int) -> list[list[int]]:
    """Group the numbers of sentences by like length, and leave out empty ones; a long sentence is a batch of its own.

    A batch costs as much as its longest sentence.
    """
    filled = [place for place, words in enumerate(sentences) if words]
    long = [place for place in filled if sum(len(word.text) + word.blanks for word in sentences[place]) > LONG]
    rest = sorted({*filled}.difference(long), key=lambda place: (-len(sentences[place]), place))
    return [*([place] for place in long), *(rest[at : at + batch_size] for at in range(0, len(rest), batch_size))]
