"""Embeddings of words by a recurrent layer over their characters."""

from __future__ import annotations

from collections import Counter
from typing import Any

import flair
import numpy as np
import torch
from flair.data import Corpus, Sentence, _iter_dataset
from flair.embeddings.base import TokenEmbeddings, register_embeddings
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from flair_nas.errors import FlairNasError
from flair_nas.nn.recurrent_layer import ParallelRNN
from flair_nas.tagging.registration import SavedText

_CHARACTER = 25  # width of the vector of a character


@register_embeddings
class CharacterRNNEmbeddings(TokenEmbeddings):
    """Embeddings of words by a minGRU over their characters, trained with the tagger.

    The vector of a word is the last state of both directions, as in Lample et al. (NAACL 2016), with the minGRU of Feng
    et al. (2024) in place of the LSTM. All words of a batch are read at once, without padding, each different word
    once. Flair's `CharacterEmbeddings` read each sentence apart, take many times as long, and
    mix up vectors when a word comes twice.

    Args:
        alphabet: the known characters, in any order. All others share one vector.
        embedding_length: width of a word's vector, an even number.
        name: name of the embeddings.

    Raises:
        FlairNasError: an odd width.

    Example:
        >>> from flair.data import Sentence
        >>> from flair_nas import CharacterRNNEmbeddings, load_corpus
        >>> embeddings = CharacterRNNEmbeddings.from_corpus(load_corpus("demo").corpus)
        >>> sentence = Sentence("A short text.")
        >>> _ = embeddings.embed(sentence)
        >>> sentence[0].embedding.shape
        torch.Size([50])
    """

    def __init__(self, alphabet: str, embedding_length: int = 50, name: str = "CharacterRNN") -> None:
        super().__init__()
        if embedding_length < 2 or embedding_length % 2:
            raise FlairNasError(f"embedding_length must be an even number from 2 on, got {embedding_length}")
        self.name = name
        self.static_embeddings = False
        self.alphabet = "".join(sorted({*alphabet}))
        self.numbers = {character: number for number, character in enumerate(self.alphabet, 1)}  # 0 is unknown
        self.characters = nn.Embedding(len(self.alphabet) + 1, _CHARACTER)
        self.layer = ParallelRNN(_CHARACTER, embedding_length // 2, "mingru", bidirectional=True, batch_first=True)
        self.to(flair.device)
        self.eval()

    @classmethod
    def from_corpus(cls, corpus: Corpus[Sentence], min_freq: int = 2, **options: Any) -> CharacterRNNEmbeddings:
        """Build embeddings with the characters that the training part has `min_freq` times or more.

        Rarer characters train the vector of unknown ones.
        """
        sentences = _iter_dataset(corpus.train) if corpus.train else ()
        counts = Counter(letter for sentence in sentences for token in sentence for letter in token.text)
        return cls("".join(letter for letter, count in counts.items() if count >= min_freq), **options)

    @property
    def embedding_length(self) -> int:
        """Width of a word's vector."""
        return 2 * self.layer.hidden_size

    def _add_embeddings_internal(self, sentences: list[Sentence]) -> None:
        words = sorted({token.text: None for sentence in sentences for token in sentence}, key=len, reverse=True)
        vectors = dict(zip(words, self._embed_words(words).unbind()))
        for sentence in sentences:
            for token in sentence:
                token.set_embedding(self.name, vectors[token.text])

    def _embed_words(self, words: list[str]) -> Tensor:
        """Return the vectors of words, the longest first, [words, width]."""
        lengths = np.array([len(word) for word in words])
        numbers = np.array([self.numbers.get(character, 0) for word in words for character in word])
        places = np.arange(len(numbers)) - np.repeat(np.cumsum(lengths) - lengths, lengths)  # of characters in words
        ids = torch.from_numpy(numbers[np.argsort(places, kind="stable")]).to(self.characters.weight.device)
        packed = PackedSequence(self.characters(ids), torch.from_numpy(np.bincount(places)))
        _, state = self.layer(packed)  # [2, words, width / 2]
        return torch.cat([state[0], state[1]], dim=1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        if f"{prefix}char_rnn.weight_hh_l0" in state_dict:
            raise FlairNasError(
                "these are weights of Flair's CharacterEmbeddings, which `char` was up to version 0.1; go on with "
                "that version, or start a new run"
            )
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def __str__(self) -> str:
        return self.name

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> CharacterRNNEmbeddings:
        """Build embeddings with the parameters of `to_params`."""
        return cls(**params)

    def to_params(self) -> dict[str, Any]:
        """Return the arguments from which Flair rebuilds the embeddings."""
        return {"alphabet": SavedText(self.alphabet), "embedding_length": self.embedding_length, "name": self.name}
