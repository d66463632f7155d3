"""Averaged SGD: the mean of the weights, and the trigger that starts it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor


def stops_improving(losses: list[float], patience: int) -> bool:
    """Return True if the last validation loss is above the best of those more than `patience` epochs before it.

    This is AWD-LSTM's trigger (Merity et al., 2018).
    """
    earlier = losses[: -1 - patience]
    return bool(earlier) and losses[-1] > min(earlier)


class MeanWeights:
    """The running mean of the weights after each step (Polyak and Juditsky, 1992).

    With SGD it makes averaged SGD: `torch.optim.ASGD` with lambd=0 and t0=0, with two differences. ASGD applies each
    step's learning rate one step late, and leaves out the first step.
    """

    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        self.means = [parameter.detach().clone() for parameter in parameters]
        self.steps = 0

    @torch.no_grad()
    def add(self) -> None:
        """Add the present weights to the mean."""
        self.steps += 1
        for mean, parameter in zip(self.means, self.parameters):
            mean.lerp_(parameter, 1 / self.steps)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the mean as its weights within the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for mean, parameter in zip(self.means, self.parameters):
            held = parameter.clone()
            parameter.copy_(mean)
            mean.copy_(held)
