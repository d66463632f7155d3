"""Estimates of a metric and of differences between layers, over seeds and test sentences, by Student's t."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from flair_nas.experiments.counts import Counts

Score = Callable[[npt.NDArray[np.number]], npt.NDArray[np.float64]]


class Estimate(NamedTuple):
    """A figure with its standard error, and the degrees of freedom of that error."""

    value: float
    error: float
    freedom: float

    @property
    def probability(self) -> float:
        """Probability that the true figure is above zero; one half if it is zero without error."""
        return float(stdtr(self.freedom, self.value / self.error)) if self.error else (1 + np.sign(self.value)) / 2

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the central confidence interval."""
        reach = self.error * float(stdtrit(self.freedom, (1 + level) / 2)) if self.error else 0.0
        return self.value - reach, self.value + reach


def combine_errors(value: float, parts: Sequence[tuple[float, float]]) -> Estimate:
    """Return a figure whose error is the sum of independent parts (Welch, 1947; Satterthwaite, 1946).

    Each part is a variance with its degrees of freedom.
    """
    variance = math.fsum(part for part, _ in parts)
    spread = math.fsum(part**2 / freedom for part, freedom in parts if part)
    return Estimate(value, math.sqrt(variance), variance**2 / spread if spread else math.inf)


def compare(seeds: Sequence[Counts], others: Sequence[Counts], score: Score, better: float = 1.0) -> Estimate:
    """Estimate by how much the mean figure of one layer is better than that of another.

    Seeds of the two are independent, and test sentences are the same. The variance over seeds includes the errors that
    fall on different sentences. It is subtracted from the variance over sentences, and so counted once.

    Args:
        seeds: counts of the layer by seed, [sentences, K] each. With one seed, sentences alone give the error.
        others: counts of the other layer; if empty, estimate the mean figure itself.
        score: function from counts to the metric, such as `f1`.
        better: 1, or -1 if a lower figure is better.
    """
    value, own, spreads = 0.0, 0.0, []
    effects = np.zeros(len(seeds[0]))  # [sentences]
    for sign, layer in ((better, seeds), (-better, others)):
        count = len(layer)
        if count:
            # [seeds], [seeds, sentences]
            figures, by_seed = (np.stack(arrays) for arrays in zip(*(_jackknife(counts, score) for counts in layer)))
            value += sign * float(figures.mean())
            effects += sign * by_seed.mean(0)
        if count > 1:
            spreads.append((float(figures.var(ddof=1)), count))
            own += float(by_seed.var(0, ddof=1).sum()) / count
    sentences = (max(0.0, float(effects @ effects) - own), len(effects) - 1.0)
    return combine_errors(value, [*mean_errors(spreads), sentences])


def mean_errors(spreads: Sequence[tuple[float, int]]) -> list[tuple[float, float]]:
    """Return variance and degrees of freedom of each layer's mean, from its variance over a number of seeds.

    A few seeds may be alike by chance. If layers differ in their number of seeds, the error is at least that of the
    pooled variance. The fewest seeds give the degrees of freedom. At equal numbers this is Welch's test.
    """
    if not spreads:
        return []
    own = math.fsum(variance / count for variance, count in spreads)
    freedoms = [count - 1 for _, count in spreads]
    pooled = math.fsum(variance * (count - 1) for variance, count in spreads) / sum(freedoms)
    scale = max(1.0, pooled * math.fsum(1 / count for _, count in spreads) / own) if own else 1.0
    return [(scale * variance / count, float(min(freedoms))) for variance, count in spreads]


def _jackknife(counts: Counts, score: Score) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the figure of a seed, [], and the effect of each sentence, [sentences].

    The squares of the effects add up to the variance of the figure.
    """
    exact = counts.astype(np.float64)
    total = exact.sum(0)  # [K]
    without = score(total - exact)  # [sentences]
    return score(total), (without.mean() - without) * math.sqrt(1 - 1 / len(counts))


def epoch_seconds(runs: Sequence[Mapping[str, Any]]) -> float:
    """Return the median time of an epoch in runs of the ledger."""
    return float(statistics.median(second for run in runs for second in run["seconds"]))


def mean_and_spread(values: Sequence[float]) -> str:
    """Format mean ± sample standard deviation, with two decimals."""
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"
