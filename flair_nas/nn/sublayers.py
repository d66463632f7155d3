"""Transformers whose sublayers stand in any order (Press, Smith and Levy, ACL 2020), by x-transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from flair_nas.errors import FlairNasError

if TYPE_CHECKING:
    from flair_nas.genotype.order import Order

_LEAST = 4
"""Numbers of a head: x-transformers' rotary positions need more than one pair."""


class SublayerTransformer(nn.Module):
    """A transformer in the place of a recurrent layer: x ← x + sub(LN(x)) for each sublayer, with rotary positions.

    Its width d is H, or 2 H with `bidirectional`. A linear map leads from D to d. It has no state, so it knows nothing
    of an earlier call.

    Args:
        input_size: D.
        hidden_size: H.
        order: order of the sublayers, heads and dropout.
        bidirectional: each step reads the whole sequence; else those before it and itself.
        batch_first: inputs are [B, T, D], else [T, B, D].
        num_layers: 1; the order has all sublayers.

    Raises:
        FlairNasError: d does not fit the number of heads, or x-transformers is not installed.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        order: Order,
        bidirectional: bool = False,
        batch_first: bool = False,
        num_layers: int = 1,
    ) -> None:
        super().__init__()
        try:
            from x_transformers import Decoder, Encoder
        except ImportError:
            fault = "is a layer of x-transformers, which is not installed: pip install 'flair-nas[transformer]'"
            raise FlairNasError(f"{order.spec()} {fault}") from None
        if num_layers != 1:
            raise FlairNasError(f"{order.spec()} has all sublayers in its order: layers must be 1, got {num_layers}")
        width = hidden_size * (1 + bidirectional)
        size = width // order.heads  # of a head
        if width % (2 * order.heads) or size < _LEAST:  # rotary positions turn pairs of numbers
            unit = 2 * order.heads // (1 + bidirectional)
            below = max(hidden_size // unit * unit, _LEAST * order.heads // (1 + bidirectional))
            sizes = sorted({below, below + unit})
            fit = " or ".join(map(str, sizes))
            raise FlairNasError(f"{order.heads} heads do not fit hidden_size {hidden_size}; it can be {fit}")
        self.input_size, self.hidden_size, self.order = input_size, hidden_size, order
        self.bidirectional, self.batch_first = bidirectional, batch_first
        self.project = nn.Linear(input_size, width)
        make = Encoder if bidirectional else Decoder
        self.sublayers = make(
            dim=width,
            depth=len(order.letters),
            heads=order.heads,
            custom_layers=tuple(order.letters.replace("s", "a")),
            attn_dim_head=size,
            attn_project_out=True,  # with one head, too
            attn_dropout=order.dropout,
            ff_dropout=order.dropout,
            attn_flash=True,
            rotary_pos_emb=True,
            rotary_emb_dim=size,
            verbose=False,
        )

    def flatten_parameters(self) -> None:
        """Do nothing; `torch.nn.GRU` has it, so callers may call it."""

    def forward(self, input: Tensor | PackedSequence, state: None = None) -> tuple[Tensor | PackedSequence, None]:
        """Run the transformer over whole sequences.

        Args:
            input: [T, B, D], or [B, T, D] with `batch_first`, or a `PackedSequence`.
            state: None.

        Returns:
            The output in the form of the input, with d features, and None for the state.
        """
        if not isinstance(input, PackedSequence):
            output = self._run(input if self.batch_first else input.transpose(0, 1), None)
            return output if self.batch_first else output.transpose(0, 1), None
        data, sizes, order, restore = input
        padded, lengths = pad_packed_sequence(PackedSequence(data, sizes), batch_first=True)  # as sorted
        mask = torch.arange(padded.shape[1]) < lengths[:, None]  # [B, T]
        output = self._run(padded, mask.to(padded.device))
        return PackedSequence(pack_padded_sequence(output, lengths, batch_first=True).data, sizes, order, restore), None

    def extra_repr(self) -> str:
        """Return the layer spec, for printing."""
        return self.order.spec()

    def _run(self, sequences: Tensor, mask: Tensor | None) -> Tensor:
        """Run all sublayers over [B, T, D]; `mask` is [B, T], False in padded places. Return [B, T, d]."""
        output: Tensor = self.sublayers(self.project(sequences), mask=mask)
        return output
