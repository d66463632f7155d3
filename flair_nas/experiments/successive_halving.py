"""Successive halving (Jamieson and Talwalkar, 2016): which candidates go on, and what that costs, in epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """How a selection thins its candidates: after each rung the better part goes on where it was.

    Args:
        first: epochs of the first rung, as a share of all.
        keep: the share of a rung's candidates that goes on, and by which its epochs are divided
            to have those of the next.
    """

    first: float
    keep: float

    def rungs(self, epochs: int) -> list[int]:
        """After how many epochs candidates are compared; the last entry is all of them.

        Args:
            epochs: those of a full training.
        """
        found = []
        reached = max(1, math.ceil(self.first * epochs))
        while reached < epochs:
            found.append(reached)
            reached = max(reached + 1, math.floor(reached / self.keep))
        return [*found, epochs]

    def counts(self, candidates: int, rungs: Sequence[int]) -> list[int]:
        """How many candidates train in each rung; the last one has at least one."""
        found = [candidates]
        while len(found) < len(rungs):
            found.append(max(1, math.ceil(found[-1] * self.keep)))
        return found

    def cost(self, candidates: int, epochs: int) -> int:
        """The epochs that all candidates train, together."""
        rungs = self.rungs(epochs)
        lengths = [after - before for before, after in zip([0, *rungs], rungs)]
        return sum(count * length for count, length in zip(self.counts(candidates, rungs), lengths))

    def most_candidates(self, budget: float, epochs: int) -> int:
        """How many candidates a budget in epochs is enough for; 0 if it is not enough for one."""
        count = 0
        while self.cost(count + 1, epochs) <= budget:
            count += 1
        return count


def survivors(costs: Mapping[str, float], count: int) -> list[str]:
    """The candidates that go on: those of the smallest costs; of equal ones the first.

    Args:
        costs: the smaller, the better, by candidate; one that is not a number is the worst.
        count: how many.
    """
    ranked = sorted(costs, key=lambda name: math.inf if math.isnan(costs[name]) else costs[name])
    kept = set(ranked[:count])
    return [name for name in costs if name in kept]
