"""What engines are given: a recurrence, and the tensors that it depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from flair_nas.nn.kernels.plan import CellPlan, GatePlan


class Normalisation(NamedTuple):
    """Batch normalisation of a supernet's states.

    Args:
        of_batch: by the statistics of the batch, otherwise by running ones.
        mean: running mean, [H], or None if it is neither used nor brought up to date.
        variance: running variance, [H], or None.
        momentum: weight of a batch in the running statistics.
        epsilon: added to the variance.
    """

    of_batch: bool
    mean: Tensor | None
    variance: Tensor | None
    momentum: float
    epsilon: float

    def __call__(self, state: Tensor) -> Tensor:
        """Normalises [B, H], or [1, H, B], over the batch, and brings running statistics up to date."""
        return torch.nn.functional.batch_norm(
            state, self.mean, self.variance, training=self.of_batch, momentum=self.momentum, eps=self.epsilon
        )


class Recurrence(NamedTuple):
    """One layer in one direction over a batch, without the tensors that may need gradients.

    Args:
        cell: the plan of the cell.
        gate: the plan of its input gate, or None.
        sizes: number of sequences with a token at each step, [T].
        input_size: D.
        hidden_size: H.
        product: dtype that products are taken in.
        mask: variational dropout mask of the states, [B, H], or None.
        normalisation: of the states, or None.
    """

    cell: CellPlan
    gate: GatePlan | None
    sizes: Sequence[int]
    input_size: int
    hidden_size: int
    product: torch.dtype
    mask: Tensor | None
    normalisation: Normalisation | None


class Engine(Protocol):
    """Runs recurrences; each engine agrees with the plain equations, which `flair_nas.nn.recurrence` runs itself."""

    def __call__(self, recurrence: Recurrence, sources: Mapping[str, Tensor]) -> Tensor:
        """Runs a recurrence.

        Args:
            recurrence: what to run.
            sources: tensors that the output depends on:
                ``projected`` x W_x, [S, W], or with an input gate ``data`` x, [S, D]; ``hidden`` [B, H];
                ``past``, the states before that, [m - 1, B, H], with an input gate; ``factor`` of h_{t-1}, [S, H], with
                a state gate; of relaxed parts ``shares`` and ``gate_shares``, [pairs, 5], ``entry_shares``, [m, 5];
                ``weight_hidden`` [H, W], ``weight_nodes`` [N, H, W], and with an input gate ``weight_input`` [D, W],
                ``weight_entry`` [m, H, D], ``weight_gate`` [m, D, D].

        Returns:
            Packed output, [S, H].
        """
