"""Local search: move to the first better neighbour of the best cell; begin anew if there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flair_nas.search.protocols import Candidate, Objective
from flair_nas.search.settings import CommonSettings
from flair_nas.search.strategies.children import ChildSearch, ChildSettings


@dataclass
class LocalSearchSettings(ChildSettings):
    """Settings of local search (White et al., 2021).

    Example:
        >>> from flair_nas import LocalSearchSettings, SearchConfig
        >>> SearchConfig(text="demo", strategy=LocalSearchSettings(child_steps=[300])).strategy.child_steps
        [300]
    """

    def problems(self, config: CommonSettings) -> list[str]:
        """Return a sentence for several stages, and for what `ChildSettings` refuses."""
        several = "strategy local-search has no hurdles: child_steps must be one number"
        return super().problems(config) + [several] * (len(self.child_steps) > 1)


class LocalSearch(ChildSearch):
    """Local search, the baseline of White et al. (UAI 2021), with moves to the first better neighbour."""

    settings = LocalSearchSettings
    kept = (*ChildSearch.kept, "center")
    kept_cells = (*ChildSearch.kept_cells, "left")
    title, enough = "local-search", 16

    def __init__(self, objective: Objective, config: CommonSettings, settings: Any) -> None:
        self.center: int | None = None  # number of the child whose neighbours are tried
        self.left: list[Candidate] = []  # its neighbours that were not tried, the next one last
        super().__init__(objective, config, settings)

    def propose(self) -> Candidate:
        """Return the next neighbour, or a random cell where none is left."""
        while self.left:
            if (child := self.left.pop()) not in self.children:
                return child
        self.center = None
        return self.draw_random()

    def take(self, number: int, cost: float) -> None:
        """Move to a child that is better, or that begins anew."""
        if self.center is None or cost < self.scores[self.center]:
            self.center = number
            self.left = self.space.neighbours(self.children[number])
            self.random.shuffle(self.left)
