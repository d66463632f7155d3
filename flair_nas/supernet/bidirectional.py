"""Supernet in both directions."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from flair_nas.genotype import Genotype
from flair_nas.supernet.base import Relaxed, SupernetBase
from flair_nas.supernet.cell import OneDirection, cell_of


class BothDirections(nn.Module, SupernetBase):
    """Two supernets of one kind in place of a bidirectional LSTM, `ahead` from the first word and `back` from the last.

    Args:
        supernet: the one that reads ahead; the weights of both are drawn anew.
        shared: both have the same architecture weights; otherwise the genotype is derived from the mean of theirs.
    """

    def __init__(self, supernet: OneDirection, shared: bool = True) -> None:
        super().__init__()
        same: list[object] = [supernet.sampler]
        if shared:
            same += [parameter for group in supernet.architecture().values() for parameter in group]
        self.shared = shared
        self.ahead = supernet
        self.back = copy.deepcopy(supernet, {id(part): part for part in same})
        self.parts = (self.ahead, self.back)
        for direction in self.parts:
            cell_of(direction).reset_parameters()
        self.hidden_size = supernet.hidden_size
        self.sampler = supernet.sampler

    def forward(self, input: PackedSequence, hx: None = None) -> tuple[PackedSequence, None]:
        """Run both over whole sentences, from zeros.

        Padding with zeros to the longest sentence gives batch normalisation statistics at every step.

        Args:
            input: data [tokens, D].
            hx: always None.

        Returns:
            Data [tokens, 2 H], packed as the input is; and None, as Flair asks for no final state.
        """
        data, lengths = pad_packed_sequence(input)  # [T, B, D]
        rows = _reversed_rows(lengths, len(data)).to(data.device)  # [T, B]
        ahead, _ = self.ahead(data)  # [T, B, H]
        back, _ = self.back(_reorder(data, rows))
        output = torch.cat([ahead, _reorder(back, rows)], dim=2)  # [T, B, 2H]; reversing twice restores the order
        return pack_padded_sequence(output, lengths, enforce_sorted=False), None

    def genotype(
        self, edges_per_node: int = 1, avoid_first: bool = False, most_identity: int | None = None
    ) -> Genotype:
        """Derive the genotype of both directions; `derive` describes the arguments."""
        ahead, back = (sum(direction.architecture().values(), []) for direction in self.parts)
        own = [weight.detach().clone() for weight in ahead]
        with torch.no_grad():
            try:
                for weight, other in zip(ahead, back):
                    weight.copy_((weight + other) / 2)
                return self.ahead.genotype(edges_per_node, avoid_first, most_identity)
            finally:
                for weight, before in zip(ahead, own):
                    weight.copy_(before)

    def relaxed(self) -> list[Relaxed]:
        """Return the architecture weights; those of the direction back, if it has its own, as ``back_NAME``."""
        back = [] if self.shared else self.back.relaxed()
        return [*self.ahead.relaxed(), *(one._replace(name=f"back_{one.name}") for one in back)]


def _reversed_rows(lengths: Tensor, steps: int) -> Tensor:
    """Return the source of each step, [T, B], when each sentence is reversed within its length."""
    step = torch.arange(steps)[:, None]  # [T, 1]
    return torch.where(step < lengths, lengths - 1 - step, step)


def _reorder(data: Tensor, rows: Tensor) -> Tensor:
    """Return the steps of [T, B, F] in another order."""
    return data.gather(0, rows[:, :, None].expand(-1, -1, data.shape[2]))
