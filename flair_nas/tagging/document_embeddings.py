"""Flair's `DocumentRNNEmbeddings` with searched layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flair
from flair.embeddings import document
from flair.embeddings.base import TokenEmbeddings, register_embeddings

from flair_nas.genotype import Genotype
from flair_nas.nn.layers import FLAIR_LAYERS
from flair_nas.tagging.registration import build_rnn, describe_rnn, name_in_order, with_genotype


@register_embeddings("DocumentRNNEmbeddings")  # Flair's own name: saved classifiers load with either class
class DocumentRNNEmbeddings(document.DocumentRNNEmbeddings):
    """Flair's embeddings of documents by a recurrent layer, also a searched one.

    Flair's own class builds a GRU for every `rnn_type` except ``LSTM``.

    Args:
        embeddings: embeddings of tokens.
        hidden_size: H of each direction.
        rnn_layers: number of recurrent layers.
        rnn_type: ``GRU``, ``LSTM``, or a layer spec or genotype as `SequenceTagger` takes them.
        bidirectional: run in both directions.
        options: other arguments of Flair's class.

    Raises:
        FlairNasError: no layer has that name, or its genotype or options are faulty.

    Example:
        >>> from flair.data import Sentence
        >>> from flair.embeddings import OneHotEmbeddings
        >>> from flair_nas import DocumentRNNEmbeddings, load_corpus
        >>> words = OneHotEmbeddings.from_corpus(load_corpus("demo").corpus)
        >>> embeddings = DocumentRNNEmbeddings([words], hidden_size=32, rnn_type="small-tanh")
        >>> sentence = Sentence("A short text.")
        >>> _ = embeddings.embed(sentence)
        >>> sentence.embedding.shape
        torch.Size([32])
    """

    def __init__(
        self,
        embeddings: Sequence[TokenEmbeddings],
        hidden_size: int = 128,
        rnn_layers: int = 1,
        *,
        rnn_type: str | Genotype = "GRU",
        bidirectional: bool = False,
        **options: Any,
    ) -> None:
        options |= {"hidden_size": hidden_size, "rnn_layers": rnn_layers, "bidirectional": bidirectional}
        if rnn_type in FLAIR_LAYERS:
            super().__init__(list(embeddings), rnn_type=rnn_type, **options)
            return
        super().__init__(list(embeddings), **options)
        name_in_order(self.embeddings.embeddings)
        rnn = build_rnn(rnn_type, self.rnn.input_size, hidden_size, rnn_layers, bidirectional)
        self.rnn = rnn.to(flair.device)  # type: ignore[assignment]  # Flair expects a layer of PyTorch's
        self.rnn_type = describe_rnn(rnn)
        self.name = "document_" + rnn._get_name()
        self.eval()

    def to_params(self) -> dict[str, Any]:
        """Return the arguments from which Flair rebuilds the embeddings."""
        return with_genotype(super().to_params(), self.rnn)
