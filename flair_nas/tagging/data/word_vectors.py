"""Files of word vectors as gensim, word2vec, fastText and GloVe publish them, also in gzip."""

from __future__ import annotations

import codecs
import gzip
import logging
import re
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import torch
from flair.embeddings import FastTextEmbeddings, WordEmbeddings
from torch import Tensor, nn

from flair_nas.errors import FlairNasError

log = logging.getLogger("flair_nas")

_PICKLE, _GZIP = b"\x80", b"\x1f\x8b"  # beginnings of such files
_FASTTEXT = (793712314).to_bytes(4, "little")
_ENDS_IN_NUMBER = re.compile(rb" [-+]?[0-9.]*[0-9]([eE][-+]?[0-9]+)?$")  # no word does, even one with blanks


def read_word_vectors(file: str) -> WordEmbeddings:
    """Load word vectors; a saved tagger holds the words and vectors themselves.

    Args:
        file: gensim's own format (a pickle, which Flair reads), word2vec's binary format (``.bin``), or text with a
            word and its numbers in each row. The first line of a text may hold the numbers of rows and columns.
    """
    path = Path(file)
    with open(path, "rb") as stream:
        start = stream.read(4)
    if start == _FASTTEXT:
        raise FlairNasError(f"{path} is a model of fastText; name it fasttext:{file}")
    if start[:1] == _PICKLE:
        return WordEmbeddings(file)
    if path.name.lower().endswith((".bin", ".bin.gz")):
        from gensim.models import KeyedVectors  # takes long to import

        vectors = KeyedVectors.load_word2vec_format(file, binary=True)
        vocabulary, matrix = vectors.key_to_index, torch.from_numpy(vectors.vectors)
        matrix = torch.cat([matrix, matrix.new_zeros(1, matrix.shape[1])])  # [words + 1, D]
    else:
        with open(path, "rb") if start[:2] != _GZIP else gzip.open(path) as stream:
            vocabulary, matrix = _read_text(path, cast(BinaryIO, stream))
    embeddings = WordEmbeddings(None, vocab=vocabulary, embedding_length=matrix.shape[1], name=file)
    embeddings.embedding = nn.Embedding.from_pretrained(matrix)
    return embeddings


def read_fasttext(file: str) -> FastTextEmbeddings:
    """Load a fastText model, which has vectors of unknown words, too."""
    from gensim.models.fasttext import FastTextKeyedVectors

    embeddings = FastTextEmbeddings(file)
    if not isinstance(embeddings.precomputed_word_embeddings, FastTextKeyedVectors):
        raise FlairNasError(f"{file} has vectors of words alone; name it word:{file}")
    return embeddings


def _read_text(path: Path, stream: BinaryIO) -> tuple[dict[str, int], Tensor]:
    """Return the row of each word, and the matrix [words + 1, D], whose last row of zeros is for unknown words."""
    first = stream.readline()
    mark = len(codecs.BOM_UTF8) * first.startswith(codecs.BOM_UTF8)
    first = first[mark:]
    sizes = [int(part) for part in first.split() if part.isdigit()]
    headed = len(sizes) == len(first.split()) == 2
    size = sizes[1] if headed else first.rstrip().count(b" ")
    if not headed:
        stream.seek(mark)
    words: dict[str, int] = {}
    data = bytearray()
    repeated = undecoded = rows = 0
    for rows, line in enumerate(stream, 1):
        word, *numbers = line.rstrip().rsplit(b" ", size) if size else [line]
        try:
            row = np.array(numbers, np.float32)
        except ValueError:
            row = np.zeros(0, np.float32)
        if not 0 < size == len(row) or _ENDS_IN_NUMBER.search(word):
            raise FlairNasError(
                f"{path} is cut short or not word vectors: line {rows + headed} is not a word and "
                f"{size or 'its'} numbers, separated by blanks; get the file again"
            )
        text = word.decode(errors="backslashreplace")
        undecoded += text.encode() != word
        repeated += text in words
        if text not in words:
            words[text] = len(words)
            data += row.tobytes()
    if not rows:
        raise FlairNasError(f"{path} is cut short or not word vectors: it has no rows; get the file again")
    if headed and rows != sizes[0]:
        log.warning("%s may be cut short: the first line tells of %d words, and there are %d", path, sizes[0], rows)
    if repeated or undecoded:
        log.warning(
            "%s: of %s words, %s repeat an earlier one and are left out, and %s are not UTF-8",
            *(path, *(f"{count:,}" for count in (rows, repeated, undecoded))),
        )
    data += bytes(4 * size)
    matrix = torch.frombuffer(data, dtype=torch.float32).view(-1, size)  # [words + 1, D]
    if len(faulty := (~matrix.isfinite()).any(1).nonzero()):
        raise FlairNasError(
            f"{path}: the vector of {list(words)[int(faulty[0])]!r} holds NaN or infinity; get the file again"
        )
    return words, matrix
