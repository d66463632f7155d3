"""Plain sampling: one random cell, untrained."""

from __future__ import annotations

from typing import Any

from flair_nas.genotype import Genotype
from flair_nas.search.bilevel import Reduce
from flair_nas.search.config import SearchSettings
from flair_nas.search.objectives import Objective
from flair_nas.search.strategies import StepFigures
from flair_nas.search.strategies.whole_cells import WholeCells, draw


class Sampling(WholeCells):
    """One random architecture, untrained: what every search must beat.

    Args:
        objective: not used.
        config: the settings.
        reduce: not used.
    """

    def __init__(self, objective: Objective, config: SearchSettings, reduce: Reduce | None) -> None:
        self.config = config

    def steps(self, epoch: int) -> int:
        """None."""
        return 0

    def step(self, epoch: int, step: int) -> StepFigures:
        """There is none."""
        raise NotImplementedError("sampling has no steps")

    def figures(self) -> dict[str, Any]:
        """None."""
        return {}

    def converged(self) -> bool:
        """At once."""
        return True

    def finish(self, progress: bool) -> None:
        """Nothing is left to do."""

    def genotype(self) -> Genotype:
        """The architecture that the seed draws."""
        return draw(self.config, 0)

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing."""
