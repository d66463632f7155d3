"""Evolution: regularized (Real et al., AAAI 2019), or with progressive dynamic hurdles (So et al., ICML 2019)."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any, NamedTuple

from flair_nas.errors import FlairNasError
from flair_nas.search.protocols import JSON, Candidate, Objective
from flair_nas.search.settings import CommonSettings
from flair_nas.search.strategies.children import ChildSearch, ChildSettings
from flair_nas.settings.fields import COUNT, setting


@dataclass
class EvolutionSettings(ChildSettings):
    """Settings of evolution (Real et al., 2019; So et al., 2019).

    Example:
        >>> from flair_nas import EvolutionSettings, SearchConfig
        >>> SearchConfig(text="demo", strategy=EvolutionSettings(population=50, child_steps=[300])).strategy.tournament
        25
    """

    population: int = setting(100, "members that are alive, P", low=1, high=1_000_000)
    tournament: int = setting(25, "members drawn for a tournament, S; the best is the parent of a child", **COUNT)
    removal: str = setting(
        "oldest", "the member that makes room for a child, the oldest or the worst of a tournament",
        choices=("oldest", "worst"),
    )  # fmt: skip
    hurdle_every: int | None = setting(
        None, "children after which there is a further hurdle, the mean cost of the population", **COUNT
    )

    def problems(self, config: CommonSettings) -> list[str]:
        """Return a sentence for tournaments and hurdles that cannot be, and for what `ChildSettings` refuses."""
        stages = len(self.child_steps)
        checks = [
            (self.tournament > self.population,
             f"tournament {self.tournament} is larger than population {self.population}"),
            (self.removal == "worst" and self.tournament == 1,
             "removal worst needs a tournament of at least 2: of 1 it is any member"),
            (stages > 1 and not self.hurdle_every,
             "several child_steps need hurdle_every, the number of children between two hurdles"),
            (self.hurdle_every and stages == 1, "hurdle_every needs at least two child_steps, one for each stage"),
        ]  # fmt: skip
        return super().problems(config) + [message for wrong, message in checks if wrong]


class Member(NamedTuple):
    """A trained child."""

    number: int  # of children before it
    cost: float  # the smaller the better
    stage: int = 1  # number of stages that it was trained for


class Population:
    """Members that are alive, and hurdles for children (Real et al., algorithm 1; So et al., section 3.2).

    Attributes:
        members: those alive, in the order of their places.
        hurdles: costs that a child must be below to train for another stage.
    """

    def __init__(self, settings: EvolutionSettings) -> None:
        self.settings = settings
        self.members: list[Member] = []
        self.hurdles: list[float] = []

    @property
    def full(self) -> bool:
        """True if all places are taken; before, children are drawn at random."""
        return len(self.members) >= self.settings.population

    def choose_parent(self, draw: random.Random) -> Member:
        """Return the best of a tournament, drawn with replacement if the oldest are removed, as in the papers' code."""
        if self.settings.removal == "oldest":
            drawn = [draw.choice(self.members) for _ in range(self.settings.tournament)]
        else:
            drawn = draw.sample(self.members, self.settings.tournament)
        return min(drawn, key=lambda member: member.cost)

    def clears(self, cost: float, stage: int) -> bool:
        """Return True if a child with this cost after this many stages trains for another one."""
        return stage <= len(self.hurdles) and cost < self.hurdles[stage - 1]

    def add(self, member: Member, draw: random.Random) -> Member | None:
        """Add a child, and a hurdle after every m children; return the member that makes room for it, if any."""
        removed: Member | None
        if self.full and self.settings.removal == "worst":
            places = draw.sample(range(len(self.members)), self.settings.tournament)
            place = max(places, key=lambda place: self.members[place].cost)
            removed, self.members[place] = self.members[place], member
        else:
            removed = self.members.pop(0) if self.full else None
            self.members.append(member)
        every = self.settings.hurdle_every
        later_stages = len(self.settings.child_steps) - 1
        if every and (member.number + 1) % every == 0 and len(self.hurdles) < later_stages:
            self._add_hurdle()
        return removed

    def _add_hurdle(self) -> None:
        """Add the mean cost of all members; after the first hurdle, of those trained for the most stages."""
        finite = [member for member in self.members if math.isfinite(member.cost)]
        most = max((member.stage for member in finite), default=0) if self.hurdles else 0
        costs = [member.cost for member in finite if member.stage >= most]
        if costs:
            self.hurdles.append(sum(costs) / len(costs))


class Evolution(ChildSearch):
    """Evolution: a child is a good member of the population with one change; it trains on while it clears hurdles.

    Raises:
        FlairNasError: fewer steps than the first population takes.
    """

    settings = EvolutionSettings
    own: EvolutionSettings
    title, enough = "evolution", 32

    def __init__(self, objective: Objective, config: CommonSettings, settings: Any) -> None:
        self.population = Population(settings)
        super().__init__(objective, config, settings)
        steps, size = settings.child_steps[0], settings.population
        if size >= (count := self.total // steps):
            raise FlairNasError(
                f"{config.epochs} epochs allow {count} children of {steps} steps, and population {size} takes all of "
                "them: set a smaller --population or --child-steps, or more --epochs"
            )

    def propose(self) -> Candidate:
        """Return a random cell for the first population, then a good member with one change."""
        if not self.population.full:
            return self.draw_random()
        parent = self.children[self.population.choose_parent(self.random).number]
        return self.draw_near(parent)

    def take(self, number: int, cost: float) -> None:
        """Add a child to the population."""
        self.population.add(Member(number, cost, self.stage), self.random)

    def clears(self, cost: float) -> bool:
        """Return True if the present child is better than the hurdle of its stage."""
        return self.population.clears(cost, self.stage)

    def end_epoch(self) -> JSON:
        """Return the best score, and the hurdles if there are some."""
        hurdles = {"hurdles": [*self.population.hurdles]} if self.own.hurdle_every else {}
        return super().end_epoch() | hurdles

    def state_dict(self) -> JSON:
        """Return the state of the children, and the population."""
        members = [tuple(member) for member in self.population.members]
        return super().state_dict() | {"population": {"members": members, "hurdles": self.population.hurdles}}

    def load_state_dict(self, state: JSON) -> None:
        """Restore children and population."""
        super().load_state_dict(state)
        self.population.members = [Member(*values) for values in state["population"]["members"]]
        self.population.hurdles = state["population"]["hurdles"]
