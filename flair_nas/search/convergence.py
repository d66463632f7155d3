"""Convergence of architecture weights: by their distance from uniform, and by their drift."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from flair_nas.search.protocols import JSON


def flatten(weights: Sequence[Tensor]) -> Tensor:
    """Copy all weights into one vector in float64, on the CPU."""
    return torch.cat([weight.detach().flatten() for weight in weights]).double().cpu()


def drift(path: Sequence[Tensor]) -> float:
    """Compute the cosine between the movements in the first and in the last third of a path of weights.

    It is about 0, within 1 / √(number of weights), for weights that noise moves, less for weights that swing around a
    minimum, and nearly 1 for weights on their way. Adam's momentum correlates movements over some twenty steps, so the
    third between them is left out.
    """
    steps = len(path) - 1
    before = path[-(-steps // 3)] - path[0]
    after = path[-1] - path[steps - -(-steps // 3)]
    norms = float(before.norm() * after.norm())
    return float(before @ after) / norms if norms else 0.0


def is_drifting(cosine: float, num_weights: int) -> bool:
    """Return True if the drift of so many weights is beyond two standard deviations of chance."""
    return cosine > 2 / math.sqrt(num_weights)


class Convergence:
    """Convergence of a part: over a window of steps, MAD changes by less than a share of itself, without drift.

    MAD alone may stand still while the weights move on, as when Adam's steps become small. With 0, it never converges.

    Attributes:
        converged: True if it has settled in this phase.
        settled: True if it had settled at the last whole window, in this phase or an earlier one.
    """

    def __init__(self, tolerance: float, steps: int) -> None:
        self.tolerance = tolerance
        self.values: deque[float] = deque(maxlen=steps + 1)
        self.path: deque[Tensor] = deque(maxlen=steps + 1)
        self.converged = self.settled = False

    def add(self, deviation: float, weights: Sequence[Tensor]) -> None:
        """Add MAD and the weights after a step."""
        if not self.tolerance:
            return
        self.values.append(deviation)
        self.path.append(flatten(weights))
        if len(self.values) == self.values.maxlen:
            steady = abs(self.values[-1] - self.values[0]) < self.tolerance * self.values[-1]
            self.converged = self.settled = steady and not is_drifting(drift(self.path), len(self.path[0]))

    def restart(self) -> None:
        """Begin a new phase."""
        self.values.clear()
        self.path.clear()
        self.converged = False

    def state(self) -> JSON:
        """Return the state for `restore`."""
        path = torch.stack(list(self.path)) if self.path else None
        return {"values": list(self.values), "path": path, "converged": self.converged, "settled": self.settled}

    def restore(self, state: JSON) -> None:
        """Restore a state; one of an older version has no path, and its window begins anew."""
        if state.get("path") is not None:
            self.values.extend(state["values"])
            self.path.extend(state["path"].unbind())
        self.converged = state["converged"]
        self.settled = state.get("settled", self.converged)
