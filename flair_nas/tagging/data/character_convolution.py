"""Embeddings of words by a convolution over their characters."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import flair
import torch
from flair.data import Corpus, Sentence, _iter_dataset
from flair.embeddings.base import TokenEmbeddings, register_embeddings
from torch import Tensor, nn
from torch.nn import functional

from flair_nas.errors import FlairNasError
from flair_nas.runtime.character_windows import WINDOW, CharacterWindows

_CHARACTER = 25  # width of the vector of a character


@register_embeddings
class CharacterCNNEmbeddings(TokenEmbeddings):
    """Embeddings of words by a convolution over their characters, trained with the tagger.

    The vector of a word is the maximum over windows of three characters (Ma and Hovy, ACL 2016; Chiu and Nichols,
    TACL 2016). Unlike Flair's `CharacterEmbeddings`, it never depends on other words, and takes a fraction of the time.

    A convolution of embedded characters is a sum of three rows of a table, one for each place in a window. All words
    of a batch are embedded at once, without padding, and each different word once.

    Args:
        alphabet: the known characters, in any order. All others share one vector.
        embedding_length: width of a word's vector.
        name: name of the embeddings.

    Example:
        >>> from flair.data import Sentence
        >>> from flair_nas import CharacterCNNEmbeddings, load_corpus
        >>> embeddings = CharacterCNNEmbeddings.from_corpus(load_corpus("demo").corpus)
        >>> sentence = Sentence("A short text.")
        >>> _ = embeddings.embed(sentence)
        >>> sentence[0].embedding.shape
        torch.Size([50])
    """

    def __init__(self, alphabet: str, embedding_length: int = 50, name: str = "CharacterCNN") -> None:
        super().__init__()
        self.name = name
        self.static_embeddings = False
        self.alphabet = "".join(sorted({*alphabet}))
        self.windows = CharacterWindows(self.alphabet)
        self.characters = nn.Embedding(self.windows.size, _CHARACTER)
        self.convolution = nn.Conv1d(_CHARACTER, embedding_length, WINDOW)
        self.to(flair.device)
        self.eval()

    @classmethod
    def from_corpus(cls, corpus: Corpus[Sentence], min_freq: int = 2, **options: Any) -> CharacterCNNEmbeddings:
        """Build embeddings with the characters that the training part has `min_freq` times or more.

        Rarer characters train the vector of unknown ones.
        """
        sentences = _iter_dataset(corpus.train) if corpus.train else ()
        counts = Counter(letter for sentence in sentences for token in sentence for letter in token.text)
        return cls("".join(letter for letter, count in counts.items() if count >= min_freq), **options)

    @property
    def embedding_length(self) -> int:
        """Width of a word's vector."""
        return self.convolution.out_channels

    def table(self) -> Tensor:
        """Return what each character adds at each place of a window, [3 · characters, width].

        The characters in the middle add the bias, too.
        """
        parts = torch.einsum("cd,fdk->kcf", self.characters.weight, self.convolution.weight)
        bias = functional.pad(cast(Tensor, self.convolution.bias)[None, None], (0, 0, 0, 0, 1, 1))  # [3, 1, width]
        return (parts + bias).flatten(0, 1)

    def _add_embeddings_internal(self, sentences: list[Sentence]) -> None:
        words = [*dict.fromkeys(token.text for sentence in sentences for token in sentence)]
        vectors = dict(zip(words, self._embed_words(words).unbind()))
        for sentence in sentences:
            for token in sentence:
                token.set_embedding(self.name, vectors[token.text])

    def _embed_words(self, words: list[str]) -> Tensor:
        """Return the vectors of words, [words, width]."""
        table = self.table()
        rows, starts = (torch.from_numpy(array).to(table.device) for array in self.windows.find_rows(words))
        sums = functional.embedding_bag(rows, table, mode="sum")  # [windows, width]
        return functional.embedding_bag(torch.arange(len(sums), device=table.device), sums, starts, mode="max")

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        if f"{prefix}char_rnn.weight_hh_l0" in state_dict:
            raise FlairNasError(
                "these are weights of Flair's CharacterEmbeddings, which `char` was up to version 0.1; go on with "
                "that version, or start a new run"
            )
        super()._load_from_state_dict(state_dict, prefix, *arguments)  # type: ignore[no-untyped-call]

    def __str__(self) -> str:
        return self.name

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> CharacterCNNEmbeddings:
        """Build embeddings with the parameters of `to_params`."""
        return cls(**params)

    def to_params(self) -> dict[str, Any]:
        """Return the arguments from which Flair rebuilds the embeddings."""
        return {"alphabet": self.alphabet, "embedding_length": self.embedding_length, "name": self.name}
