"""Language models: an embedding, a recurrent layer, a softmax over the vocabulary, and their regularisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from flair_nas.language_model.cross_entropy import cross_entropies, mean_cross_entropy
from flair_nas.nn.kernels.dispatch import wants_equations
from flair_nas.nn.matrix_product import masked
from flair_nas.nn.recurrence import draw_mask
from flair_nas.nn.state import RecurrentState

LayerState: TypeAlias = Tensor | tuple[Any, ...] | RecurrentState | None
"""The state of a layer: a tensor, a tuple of tensors (LSTM), a `RecurrentState`, or None at the start."""

_DIVISOR = 4  # each cluster of an adaptive softmax is narrower by this than the one before


class LanguageModelLoss(NamedTuple):
    """The training loss of one segment."""

    total: Tensor  # cross-entropy and penalties, a scalar
    cross_entropy: Tensor  # mean nats per token, a scalar
    state: LayerState  # the final state of the layer, detached; the next segment begins with it


class LanguageModel(nn.Module):
    """A model that predicts the next token of a stream (DARTS; AWD-LSTM, Merity et al., 2018).

    Args:
        vocabulary_size: V, number of types.
        embedding_size: D, the layer's input size.
        hidden_size: H, the layer's output size.
        layer: any module with ``layer(input [T, B, D], state) -> (output [T, B, H], state)``: `SearchedRNN`,
            `torch.nn.LSTM`, a supernet. The layer itself drops x and h.
        dropout: variational dropout of the layer's output, one mask per sequence.
        embedding_dropout: variational dropout of the embedding's output, one mask per sequence.
        word_dropout: probability of dropping the whole embedding of a type, everywhere in the segment.
        tied: share the embedding's matrix with the softmax; `adaptive_cutoffs` switch this off.
        adaptive_cutoffs: ids at which the clusters of an adaptive softmax end (Grave et al., 2017). Ids must be in
            order of falling frequency. () for a plain softmax.
        init_range: initialisation bound of embedding and softmax. Biases start at zero. PyTorch initialises an
            adaptive softmax.

    Raises:
        ValueError: a size or probability is out of range, or D differs from H with `tied`. Or cutoffs do not rise,
            reach V, or are too many for H.

    Example:
        >>> import torch
        >>> from flair_nas import LanguageModel, SearchedRNN, load_genotype
        >>> model = LanguageModel(100, 16, 16, SearchedRNN(16, 16, load_genotype("small-tanh")))
        >>> tokens = torch.randint(100, (10, 4))  # [T, B]
        >>> float(model.loss(tokens[:-1], tokens[1:]).cross_entropy) > 0
        True
    """

    __module__ = "flair_nas"

    def __init__(
        self,
        vocabulary_size: int,
        embedding_size: int,
        hidden_size: int,
        layer: nn.Module,
        *,
        dropout: float = 0.75,
        embedding_dropout: float = 0.2,
        word_dropout: float = 0.0,
        tied: bool = True,
        adaptive_cutoffs: Sequence[int] = (),
        init_range: float = 0.1,
    ) -> None:
        super().__init__()
        sizes = {"vocabulary_size": vocabulary_size, "embedding_size": embedding_size, "hidden_size": hidden_size}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        rates = {"dropout": dropout, "embedding_dropout": embedding_dropout, "word_dropout": word_dropout}
        for name, probability in rates.items():
            if not 0 <= probability < 1:
                raise ValueError(f"{name} must be a probability, at least 0 and below 1, got {probability}")
        tied = tied and not adaptive_cutoffs
        if tied and embedding_size != hidden_size:
            raise ValueError(
                f"tied embeddings need embedding_size = hidden_size, got {embedding_size} and {hidden_size}"
            )
        self.vocabulary_size, self.embedding_size, self.hidden_size = vocabulary_size, embedding_size, hidden_size
        self.dropout, self.embedding_dropout, self.word_dropout = dropout, embedding_dropout, word_dropout
        self.tied, self.adaptive_cutoffs = tied, tuple(adaptive_cutoffs)
        self.embedding = nn.Embedding(vocabulary_size, embedding_size)
        self.layer = layer
        nn.init.uniform_(self.embedding.weight, -init_range, init_range)
        if adaptive_cutoffs:
            if hidden_size < (least := _DIVISOR ** len(adaptive_cutoffs)):
                count = len(adaptive_cutoffs)
                raise ValueError(f"{count} adaptive_cutoffs need a hidden_size of at least {least}, got {hidden_size}")
            cutoffs = list(adaptive_cutoffs)
            self.adaptive = nn.AdaptiveLogSoftmaxWithLoss(hidden_size, vocabulary_size, cutoffs, _DIVISOR)
        else:
            self.decoder = nn.Linear(hidden_size, vocabulary_size)
            if tied:
                self.decoder.weight = self.embedding.weight
            else:
                nn.init.uniform_(self.decoder.weight, -init_range, init_range)
            nn.init.zeros_(self.decoder.bias)

    def forward(self, tokens: Tensor, state: LayerState = None) -> tuple[Tensor, Tensor, LayerState]:
        """Run the layer over a segment.

        Args:
            tokens: ids, [T, B].
            state: the final state of the segment before; None at the start of a stream.

        Returns:
            The layer's output after and before dropout, [T, B, H] each, and its final state.
        """
        embedded = functional.embedding(tokens, self.embedding.weight)  # [T, B, D]
        kept = draw_mask(self.training and self.word_dropout, embedded, self.vocabulary_size, 1)
        if kept is not None:
            embedded = embedded * kept[tokens]  # [T, B, 1] is broadcast over D
        raw, state = self.layer(self._variational_dropout(embedded, self.embedding_dropout), state)
        return self._variational_dropout(raw, self.dropout), raw, state

    def token_losses(self, output: Tensor, targets: Tensor) -> Tensor:
        """Compute the loss of each token.

        Args:
            output: the output of `forward` after dropout, [T, B, H].
            targets: the ids to predict, [T, B].

        Returns:
            Negative log-probabilities in nats, [T, B], float32 or wider.
        """
        rows, ids = output.flatten(0, 1), targets.flatten()  # [T * B, H], [T * B]
        if self.adaptive_cutoffs:
            with torch.autocast(rows.device.type, enabled=False):  # under which PyTorch's own fails
                losses: Tensor = -self.adaptive(rows.to(self.adaptive.head.weight.dtype), ids).output
        elif torch.is_grad_enabled() or wants_equations():
            losses = functional.cross_entropy(_wide(self.decoder(rows)), ids, reduction="none")
        else:
            losses = cross_entropies(rows, self.decoder.weight, self.decoder.bias, ids)
        return losses.view_as(targets)

    def loss(
        self,
        tokens: Tensor,
        targets: Tensor,
        state: LayerState = None,
        *,
        activation: float = 0.0,
        slowness: float = 0.0,
    ) -> LanguageModelLoss:
        """Compute the loss of a segment, with the penalties AR and TAR of Merity et al. (2017).

        Args:
            tokens: ids, [T, B].
            targets: the ids that follow, [T, B].
            state: the final state of the segment before; None at the start of a stream.
            activation: alpha, weight of the mean square of the layer's output after dropout.
            slowness: beta, weight of the mean square of h_t - h_{t-1}, before dropout.

        Returns:
            total = cross_entropy + alpha mean(dropped²) + beta mean((h_t - h_{t-1})²); the state is detached.
        """
        output, raw, state = self(tokens, state)
        if self.adaptive_cutoffs or wants_equations():
            cross_entropy = self.token_losses(output, targets).mean()
        else:
            rows = output.flatten(0, 1)  # [T * B, H]
            cross_entropy = mean_cross_entropy(rows, self.decoder.weight, self.decoder.bias, targets.flatten())
        total = cross_entropy
        if activation:
            total = total + activation * _wide(output).square().mean()
        if slowness and len(raw) > 1:
            total = total + slowness * _wide(raw[1:] - raw[:-1]).square().mean()
        return LanguageModelLoss(total, cross_entropy, detach(state))

    def extra_repr(self) -> str:
        """Return the dropouts, for printing."""
        names = ("dropout", "embedding_dropout", "word_dropout", "tied")
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)

    def _variational_dropout(self, sequence: Tensor, probability: float) -> Tensor:
        """Drop the same units at every step of a sequence [T, B, E] (Gal and Ghahramani, 2016)."""
        return masked(sequence, draw_mask(self.training and probability, sequence, *sequence.shape[1:]))


def _wide(tensor: Tensor) -> Tensor:
    """Convert a half-precision tensor to float32."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def detach(state: LayerState) -> LayerState:
    """Detach the state of a layer from the graph, for truncated back-propagation."""
    if isinstance(state, tuple) and not isinstance(state, RecurrentState):
        return tuple(detach(part) for part in state)
    return None if state is None else state.detach()
