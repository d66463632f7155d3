"""Interface of engines: a recurrence, and the tensors that it depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from flair_nas.nn.kernels.plan import CellPlan, GatePlan


class Normalisation(NamedTuple):
    """Batch normalisation of a supernet's states."""

    use_batch: bool  # use the statistics of the batch, otherwise the running ones
    running: tuple[Tensor, Tensor] | None  # running mean and variance, [H], or None if neither used nor updated
    momentum: float  # weight of a batch in the running statistics
    epsilon: float  # added to the variance

    def __call__(self, state: Tensor) -> Tensor:
        """Normalise [B, H], or [1, H, B], over the batch, and update the running statistics."""
        mean, variance = self.running or (None, None)
        return torch.nn.functional.batch_norm(
            state, mean, variance, training=self.use_batch, momentum=self.momentum, eps=self.epsilon
        )


class CellProgram(NamedTuple):
    """A cell without its weights, as engines take it."""

    plan: CellPlan
    mixing: Tensor | None = None  # mixing weights of a relaxed cell, [pairs, 5]
    normalisation: Normalisation | None = None  # of its states


class GateProgram(NamedTuple):
    """An inter-cell gate without its weights, as engines take it."""

    plan: GatePlan
    mixing: tuple[Tensor, Tensor] | None = None  # of a relaxed gate: of its entries, [m, 5], and its pairs, [pairs, 5]


class Recurrence(NamedTuple):
    """One layer in one direction over a batch, without the tensors that may need gradients."""

    cell: CellPlan
    gate: GatePlan | None  # the input gate
    sizes: Sequence[int]  # number of sequences with a token at each step, [T]
    input_size: int  # D
    hidden_size: int  # H
    product: torch.dtype  # dtype of the products
    mask: Tensor | None  # variational dropout mask of the states, [B, H]
    normalisation: Normalisation | None  # of the states


Engine = Callable[[Recurrence, Mapping[str, Tensor]], Tensor]
"""An implementation of recurrences, from the recurrence and its sources to the packed output, [S, H].

Each agrees with the equations of `flair_nas.nn.recurrence`. Sources are the tensors that the output depends on:
``projected`` x W_x, [S, W], or with an input gate ``data`` x, [S, D]; ``hidden`` [B, H]; with an input gate ``past``,
the states before ``hidden``, [m - 1, B, H]; with a state gate ``hidden_scale``, the scale of h_{t-1}, [S, H]; of
relaxed parts the mixing weights ``mixing`` and ``gate_mixing``, [pairs, 5], ``entry_mixing``, [m, 5];
``weight_hidden`` [H, W], ``weight_nodes`` [N, H, W], and with an input gate ``weight_input`` [D, W], ``weight_entry``
[m, H, D], ``weight_gate`` [m, D, D].
"""
