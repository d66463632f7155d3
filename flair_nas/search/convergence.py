"""Whether architecture weights have come to rest: by how far they are from uniform, and by whether they still drift."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def flattened(weights: Sequence[Tensor]) -> Tensor:
    """All weights as one vector in float64, a copy, on the CPU."""
    return torch.cat([weight.detach().flatten() for weight in weights]).double().cpu()


def drift(path: Sequence[Tensor]) -> float:
    """How much the last third of a way goes on in the direction of the first: the cosine between both movements.

    Weights that are drawn to and fro by noise have about 0, within 1 / √(their number); those that swing around a
    minimum less; those that are still on their way nearly 1. The third between them is left out, as Adam's momentum
    makes movements that follow one another alike: it lasts some twenty steps.

    Args:
        path: the weights after each of at least two steps, as vectors of one length.
    """
    steps = len(path) - 1
    before = path[-(-steps // 3)] - path[0]
    after = path[-1] - path[steps - -(-steps // 3)]
    norms = float(before.norm() * after.norm())
    return float(before @ after) / norms if norms else 0.0


def drifts(cosine: float, weights: int) -> bool:
    """Whether so many weights move on in one direction, beyond two standard deviations of chance."""
    return cosine > 2 / math.sqrt(weights)


class Convergence:
    """Whether a part has settled: over a window of steps MAD has changed by less than a share of itself, without drift.

    MAD alone may stand still while the weights move on, as when Adam's steps become small.

    Args:
        tolerance: that share; 0 for never.
        steps: length of the window, at least 2.

    Attributes:
        converged: whether it has settled in this phase.
        settled: whether it had when last there was a whole window, in this phase or one before.
    """

    def __init__(self, tolerance: float, steps: int) -> None:
        self.tolerance = tolerance
        self.values: deque[float] = deque(maxlen=steps + 1)
        self.path: deque[Tensor] = deque(maxlen=steps + 1)
        self.converged = self.settled = False

    def add(self, deviation: float, weights: Sequence[Tensor]) -> None:
        """Takes MAD and the weights after a step."""
        if not self.tolerance:
            return
        self.values.append(deviation)
        self.path.append(flattened(weights))
        if len(self.values) == self.values.maxlen:
            steady = abs(self.values[-1] - self.values[0]) < self.tolerance * self.values[-1]
            self.converged = self.settled = steady and not drifts(drift(self.path), len(self.path[0]))

    def restart(self) -> None:
        """A new phase begins."""
        self.values.clear()
        self.path.clear()
        self.converged = False

    def state(self) -> dict[str, Any]:
        """What `restore` takes."""
        path = torch.stack(list(self.path)) if self.path else None
        return {"values": list(self.values), "path": path, "converged": self.converged, "settled": self.settled}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from a state; an older one has no path, so that its window begins anew."""
        if state.get("path") is not None:
            self.values.extend(state["values"])
            self.path.extend(state["path"].unbind())
        self.converged = state["converged"]
        self.settled = state.get("settled", self.converged)
