"""English word vectors that come with the package."""

from __future__ import annotations

from typing import Any

import flair
import torch
from flair.data import Sentence
from flair.embeddings.base import TokenEmbeddings, register_embeddings

from flair_nas.errors import FlairNasError
from flair_nas.storage.resources import resource_path
from flair_nas.tagging.data.embedding_folder import read_embedding_folder
from flair_nas.tagging.registration import SavedText


@register_embeddings
class EnglishEmbeddings(TokenEmbeddings):
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
        super().__init__()
        folder = resource_path("embeddings", "english")
        self.table, checksum = read_embedding_folder(folder, "reinstall flair-nas")
        self.name, self.checksum = "english", checksum
        self.static_embeddings = True

    @property
    def embedding_length(self) -> int:
        """Return the width of a vector."""
        return self.table.width

    def _add_embeddings_internal(self, sentences: list[Sentence]) -> None:
        tokens = [token for sentence in sentences for token in sentence]
        vectors = torch.from_numpy(self.table.embed([token.text for token in tokens])).to(flair.device)
        for token, vector in zip(tokens, vectors.unbind()):
            token.set_embedding(self.name, vector)

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
            raise FlairNasError(
                f"the tagger was trained with another version of the English word vectors ({params['checksum'][:8]}, "
                f"here {embeddings.checksum[:8]}); install the version of flair-nas that trained it"
            )
        embeddings.name = params["name"]
        return embeddings
