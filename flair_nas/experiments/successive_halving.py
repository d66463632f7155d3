"""The pruner: successive halving (Jamieson and Talwalkar, 2016)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """A rule of successive halving: after each rung, the better candidates go on."""

    first: float  # epochs of the first rung, as a fraction of all
    keep: float  # fraction of candidates that go on; epochs of a rung divided by it are those of the next

    def rungs(self, epochs: int) -> list[int]:
        """Return the epochs after which candidates are compared; the last entry is `epochs`."""
        rungs = []
        reached = max(1, math.ceil(self.first * epochs))
        while reached < epochs:
            rungs.append(reached)
            reached = max(reached + 1, math.floor(reached / self.keep))
        return [*rungs, epochs]

    def counts(self, candidates: int, rungs: Sequence[int]) -> list[int]:
        """Return the number of candidates that train in each rung, at least one."""
        counts = [candidates]
        while len(counts) < len(rungs):
            counts.append(max(1, math.ceil(counts[-1] * self.keep)))
        return counts


def survivors(costs: Mapping[str, float], count: int, protected: Collection[str] = ()) -> list[str]:
    """Return the candidates that go on: those with the smallest costs, in the order of `costs`.

    Args:
        costs: cost by candidate; NaN counts as infinite. Of equal costs the first is better.
        count: number of candidates that go on.
        protected: candidates that always go on; the best of the others then does, too.
    """
    ranked = sorted(costs, key=lambda name: math.inf if math.isnan(costs[name]) else costs[name])
    kept = set(ranked[:count])
    if protected:
        kept |= {*protected, *[name for name in ranked if name not in protected][:1]}
    return [name for name in costs if name in kept]
