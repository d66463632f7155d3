"""Prediction of what a cell costs: Bayesian ridge regression on the features of genotypes.

The costs of a task have a scale of their own. It is the one with the largest evidence, so that costs of different
tasks can be learnt from one after another.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.genotype.features import FEATURES, features
from flair_nas.storage.paths import read_file
from flair_nas.storage.resources import resource_path

Array = npt.NDArray[np.float64]
FORMAT, VERSION = "flair-nas/cost-prior", 1
_NOISE = 0.5  # standard deviation of a cost around its prediction, where those of all cells have 1
_WIDTH = 1.5  # standard deviation of a weight before anything is known
_LEVEL = 30.0  # that of the constant
_SCALES = np.geomspace(0.2, 5.0, 25)  # of costs, in standard deviations
_MAX_BYTES = 1_000_000


@dataclass(frozen=True, eq=False)
class CostModel:
    """Gaussian distribution of the weights of features, of which the last is constant.

    Args:
        mean: mean of the weights, [K].
        precision: inverse of their covariance, [K, K].
    """

    mean: Array
    precision: Array

    @staticmethod
    def empty(count: int = len(FEATURES)) -> CostModel:
        """Return a model of so many features that knows nothing."""
        return CostModel(np.zeros(count), np.diag([_WIDTH**-2.0] * (count - 1) + [_LEVEL**-2.0]))

    def predict(self, inputs: Array) -> Array:
        """Return the predicted costs of features, [n, K] -> [n], on a scale of its own."""
        predicted: Array = inputs @ self.mean
        return predicted

    def draw(self, inputs: Array, seed: Sequence[int]) -> Array:
        """Return the costs of features by weights that are drawn, [n, K] -> [n]: those of one Thompson sample."""
        noise = np.random.default_rng(seed).standard_normal(len(self.mean))
        drawn: Array = inputs @ (self.mean + np.linalg.solve(np.linalg.cholesky(self.precision).T, noise))
        return drawn

    def learn(self, inputs: Array, costs: Sequence[float]) -> CostModel:
        """Return the model that has learnt the costs of features, [n, K] and [n]."""
        precision = self.precision + inputs.T @ inputs / _NOISE**2
        known = self.precision @ self.mean + inputs.T @ self.scale(inputs, costs) / _NOISE**2
        return CostModel(np.linalg.solve(precision, known), precision)

    def scale(self, inputs: Array, costs: Sequence[float]) -> Array:
        """Return costs of features, [n, K] and [n], on the scale of the model that explains them best, [n].

        A cost that is far above the median, or infinite, counts as a limit: how bad a bad cell is does not matter.
        """
        worst = max((cost for cost in costs if np.isfinite(cost)), default=0.0)
        low, median, high = np.quantile(np.minimum(costs, worst), [0.0, 0.5, 1.0])
        limited = np.minimum(costs, low + 3 * (median - low) if median > low else high + (high - low or 1.0))
        if np.ptp(limited) == 0:
            return np.zeros(len(limited))
        centred: Array = limited - limited.mean()
        spread = inputs @ np.linalg.solve(self.precision, inputs.T) + _NOISE**2 * np.eye(len(inputs))
        inverse, predicted = np.linalg.inv(spread), self.predict(inputs)

        def evidence(scaled: Array) -> float:
            rest = scaled - predicted
            return float(len(inputs) * np.log(np.abs(scaled).max()) - rest @ inverse @ rest / 2)

        return max((centred / (scale * centred.std()) for scale in _SCALES), key=evidence)

    def without_level(self, share: float) -> CostModel:
        """Return the model as a prior for another task: less sure, and with any level of costs."""
        covariance = np.linalg.inv(share * self.precision + (1 - share) * self.empty(len(self.mean)).precision)
        covariance[-1], covariance[:, -1] = 0.0, 0.0
        covariance[-1, -1] = _LEVEL**2
        return CostModel(np.append(self.mean[:-1], 0.0), np.linalg.inv(covariance))


def encode(cells: Sequence[Genotype]) -> Array:
    """Return the features of cells, [cells, features]."""
    return np.array([features(cell) for cell in cells]).reshape(-1, len(FEATURES))


def load_prior(path: Path | None = None) -> CostModel:
    """Return what is known of cells before a search: the bundled prior, or another file.

    Raises:
        FlairNasError: the file is damaged, of another version, or of other features.
    """
    path = path or resource_path("cost_prior.json")
    try:
        data = json.loads(read_file(path, _MAX_BYTES))
        if (data["format"], data["version"]) != (FORMAT, VERSION):
            raise ValueError(f"{data['format']}, version {data['version']}, is not {FORMAT}, version {VERSION}")
        if other := {*(names := data["features"])} - {*FEATURES}:
            raise ValueError(f"this version has no features {', '.join(sorted(other)[:3])}")
        places = [FEATURES.index(name) for name in names]
        lower = np.zeros((len(names), len(names)))
        lower[np.tril_indices(len(names))] = [value for row in data["precision"] for value in row]
        mean, precision = CostModel.empty().mean, CostModel.empty().precision  # of features that it lacks
        mean[places], precision[np.ix_(places, places)] = data["mean"], lower + np.tril(lower, -1).T
        if not np.isfinite(mean).all() or np.linalg.eigvalsh(precision)[0] <= 0:
            raise ValueError("its weights are no distribution")
    except (OSError, ValueError, KeyError, TypeError, np.linalg.LinAlgError) as error:
        raise FlairNasError(f"{path}: this prior cannot be read ({error}); reinstall flair-nas") from None
    return CostModel(mean, precision)
