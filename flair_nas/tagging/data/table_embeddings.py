"""Embeddings whose vectors stand in a table: English ones that come with the package, and those of one's own text."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import flair
import numpy as np
import torch
from flair.data import Sentence
from flair.embeddings.base import TokenEmbeddings, register_embeddings
from torch import Tensor

from flair_nas.errors import FlairNasError
from flair_nas.runtime.word_table import Bytes, WordTable
from flair_nas.storage.paths import user_path
from flair_nas.storage.resources import resource_path
from flair_nas.tagging.data.embedding_folder import REMEDY, TABLE, check_file, read_about
from flair_nas.tagging.registration import SavedText


class TableEmbeddings(TokenEmbeddings):
    """Frozen vectors of words from a `WordTable`.

    Attributes:
        table: the vectors.
    """

    table: WordTable

    def __init__(self, name: str, width: int) -> None:
        super().__init__()
        self.name, self._width = name, width
        self.static_embeddings = True

    @property
    def embedding_length(self) -> int:
        """Width of a vector."""
        return self._width

    def extra_repr(self) -> str:
        """Return the name and the width, for the description of a model."""
        return f"'{self.name}', {self._width}"

    def _add_embeddings_internal(self, sentences: list[Sentence]) -> None:
        tokens = [token for sentence in sentences for token in sentence]
        vectors = torch.from_numpy(self.table.embed([token.text for token in tokens])).to(flair.device)
        for token, vector in zip(tokens, vectors.unbind()):
            token.set_embedding(self.name, vector)


@register_embeddings
class EnglishEmbeddings(TableEmbeddings):
    """Frozen vectors of 342,930 English words, which need no download.

    A word has one vector in all its spellings, and a word that is not known has zeros. A saved tagger holds the
    checksum of the vectors in place of the vectors.

    Attributes:
        table: the vectors, mapped from a file of the package.
        checksum: SHA-256 of that file.

    Raises:
        FlairNasError: the file of the vectors is damaged.

    Example:
        >>> from flair.data import Sentence
        >>> from flair_nas import EnglishEmbeddings
        >>> sentence = Sentence("Rain fell .")
        >>> _ = EnglishEmbeddings().embed(sentence)
        >>> sentence[0].embedding.shape
        torch.Size([300])
    """

    def __init__(self) -> None:
        folder = resource_path("embeddings", "english")
        about = read_about(folder, remedy := "reinstall flair-nas, or in a clone: git checkout resources")
        table = WordTable(check_file(folder, TABLE, about, remedy))
        super().__init__("english", table.width)
        self.table, self.checksum = table, about["files"][TABLE]

    def to_params(self) -> dict[str, Any]:
        """Return what a saved tagger holds in place of the vectors."""
        return {"name": self.name, "checksum": SavedText(self.checksum)}

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> EnglishEmbeddings:
        """Return the embeddings of a saved tagger.

        Raises:
            FlairNasError: the tagger was trained with other vectors.
        """
        embeddings = cls()
        if params["checksum"] != embeddings.checksum:
            versions = f"({params['checksum'][:8]}, here {embeddings.checksum[:8]})"
            fault = f"the tagger was trained with another version of the English word vectors {versions}"
            raise FlairNasError(f"{fault}; install the version of flair-nas that trained it")
        embeddings.name = params["name"]
        return embeddings


@register_embeddings
class SubwordEmbeddings(TableEmbeddings):
    """Frozen word vectors of one's own text, made by `train_embeddings` or ``flair-nas embed train``.

    Each word has a vector: a word that the text did not have gets that of its parts, as in fastText. A saved tagger
    holds the vectors.

    Args:
        folder: the folder of the embeddings.

    Attributes:
        table: the vectors.
        data: the bytes of their file, uint8 [bytes].

    Raises:
        FlairNasError: the folder has no word vectors, or a file of it is missing or damaged.

    Example:
        The folder is that of the example of `train_embeddings`.

        >>> from flair.data import Sentence
        >>> from flair_nas import SubwordEmbeddings
        >>> sentence = Sentence("Rain fell .")
        >>> _ = SubwordEmbeddings("embeddings/demo").embed(sentence)
        >>> sentence[0].embedding.shape
        torch.Size([20])
    """

    data: Tensor

    def __init__(self, folder: str | Path) -> None:
        path = user_path(folder)
        if not path.is_dir():
            raise FlairNasError(f"{path}: there is no such folder; give one that flair-nas embed train made, without #")
        about = read_about(path, REMEDY)
        if TABLE not in about["files"]:
            raise FlairNasError(f"{path} has no word vectors; name its character models {folder}#characters")
        self._hold(np.fromfile(check_file(path, TABLE, about, REMEDY), np.uint8), about["name"], about["width"])

    def _hold(self, data: Bytes, name: str, width: int) -> None:
        super().__init__(name, width)
        self.register_buffer("data", torch.from_numpy(data))

    @functools.cached_property
    def table(self) -> WordTable:  # type: ignore[override]
        """Vectors, read when the weights of a saved tagger are there."""
        return WordTable(self.data.cpu().numpy())

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the table, which a copy reads from its own data."""
        return {name: value for name, value in vars(self).items() if name != "table"}

    def to_params(self) -> dict[str, Any]:
        """Return what a saved tagger holds beside its weights, which have the vectors."""
        return {"name": self.name, "size": len(self.data), "width": self._width}

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> SubwordEmbeddings:
        """Return the embeddings of a saved tagger without their vectors, which its weights have."""
        embeddings = cls.__new__(cls)
        embeddings._hold(np.zeros(params["size"], np.uint8), params["name"], params["width"])
        return embeddings
