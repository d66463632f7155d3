"""The population of an evolution: parents, removal and hurdles by cost alone. It needs no torch."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Member:
    """A trained child.

    Args:
        number: number of children before it.
        cost: what it is judged by, the smaller the better.
        stage: number of stages that it was trained for.
    """

    number: int
    cost: float
    stage: int = 1


@dataclass
class Population:
    """Members that are alive, and hurdles for children.

    With removal ``oldest`` this is regularized evolution (Real et al., AAAI 2019, algorithm 1). With ``worst`` and
    hurdles it is evolution with progressive dynamic hurdles (So et al., ICML 2019, section 3.2).

    Args:
        size: number of members that are alive, P.
        tournament: number of members in a tournament, S.
        removal: ``oldest``, or ``worst`` of a tournament.
        stages: number of stages of training; one more than there are hurdles at most.
        hurdle_every: number of children between two hurdles, m; 0 for none.
        members: those alive, in the order of their places.
        hurdles: costs that a child must be below to train for another stage.
        children: number of members so far, dead ones too.
    """

    size: int
    tournament: int
    removal: str = "oldest"
    stages: int = 1
    hurdle_every: int = 0
    members: list[Member] = field(default_factory=list)
    hurdles: list[float] = field(default_factory=list)
    children: int = 0

    @property
    def full(self) -> bool:
        """True if there are enough members for a tournament; before, children are drawn at random."""
        return len(self.members) >= self.size

    def choose_parent(self, draw: random.Random) -> Member:
        """Return the best of a tournament.

        Members are drawn with replacement where the oldest are removed, and without where the worst are, as in the
        code of both papers.
        """
        if self.removal == "oldest":
            drawn = [draw.choice(self.members) for _ in range(self.tournament)]
        else:
            drawn = draw.sample(self.members, self.tournament)
        return min(drawn, key=lambda member: member.cost)

    def clears(self, cost: float, stage: int) -> bool:
        """Return True if a child with this cost after this many stages trains for another one."""
        return stage <= len(self.hurdles) and cost < self.hurdles[stage - 1]

    def add(self, member: Member, draw: random.Random) -> Member | None:
        """Take in a child; return the member that makes room for it, or None while there is room.

        After every m children there is a further hurdle. The first is the mean cost of all members, each later one that
        of the members that were trained for the most stages.
        """
        removed = None
        if not self.full:
            self.members.append(member)
        elif self.removal == "oldest":
            removed = self.members.pop(0)
            self.members.append(member)
        else:
            places = draw.sample(range(len(self.members)), self.tournament)
            place = max(places, key=lambda place: self.members[place].cost)
            removed, self.members[place] = self.members[place], member
        self.children += 1
        if self.hurdle_every and self.children % self.hurdle_every == 0 and len(self.hurdles) + 1 < self.stages:
            self._add_hurdle()
        return removed

    def _add_hurdle(self) -> None:
        finite = [member for member in self.members if math.isfinite(member.cost)]
        most = max((member.stage for member in finite), default=0) if self.hurdles else 0
        costs = [member.cost for member in finite if member.stage >= most]
        if costs:
            self.hurdles.append(sum(costs) / len(costs))
