"""Strategies whose next candidate depends on the scores so far: evolution and local search."""

from __future__ import annotations

import dataclasses
import math
import random
from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch

from flair_nas.errors import FlairNasError, NotFiniteError
from flair_nas.genotype import Genotype, mutate, neighbours
from flair_nas.search.bilevel import Reduce
from flair_nas.search.config import SearchSettings
from flair_nas.search.population import Member, Population
from flair_nas.search.protocols import JSON, Objective, StepFigures
from flair_nas.search.strategies.candidates import TrainedCandidates, draw
from flair_nas.settings.fields import changed

TRIES = 10
"""Draws of a child at most, until it is one that was not trained before."""


class ChildSearch(TrainedCandidates):
    """Search that trains one child after another, and learns from its score which one is next.

    Raises:
        FlairNasError: fewer steps than a child takes.
    """

    enough: int  # children from which on it was ahead of random cells (docs/arena.md)
    finishing = "scoring each child"
    longer = "Give each child more steps by a larger --child-steps, and as many children by more --epochs."

    @staticmethod
    def contradictions(config: SearchSettings) -> list[str]:
        """Return a sentence for missing steps of a child, and for what `TrainedCandidates` refuses."""
        problems = TrainedCandidates.contradictions(config)
        if not config.child_steps:
            problems.append(f"strategy {config.strategy} needs child_steps, the training steps of a child, such as 300")
        if config.samples:
            problems += [f"{name} belongs to random strategies and enas, not {config.strategy}"
                         for name in changed(config, "samples", "sample_segments")]  # fmt: skip
        return problems

    def __init__(self, objective: Objective, config: SearchSettings, reduce: Reduce | None) -> None:
        super().__init__(objective, config, reduce)
        whole = sum(config.child_steps)
        if self.total < whole:
            raise FlairNasError(
                f"{config.epochs} epochs are {self.total} steps, and a child takes {whole}: set more --epochs, or "
                "smaller --child-steps"
            )
        self.random = random.Random(config.seed)
        self.children: list[Genotype] = []  # the present one is the last
        self.stage, self.trained = 1, 0  # of the present child, and its steps in all
        self._begin_child()

    @staticmethod
    def extendable(config: SearchSettings) -> bool:
        """Return True: more epochs are more children."""
        return True

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return a sentence on the lead of the best child, and on too few children."""
        if not self.finished or len(self.scores) >= self.enough:
            return super().verdict(history)
        few = (
            f"{len(self.scores)} children were trained; with fewer than {self.enough}, {self.config.strategy} was not "
            "ahead of random cells: give it more --epochs or a smaller --child-steps"
        )
        return "; ".join(filter(None, (few, super().verdict(history))))

    def planned_steps(self) -> float:
        """Return the steps of a child that clears all hurdles."""
        return sum(self.config.child_steps)

    @abstractmethod
    def propose(self) -> Genotype:
        """Return the next child."""

    @abstractmethod
    def take(self, number: int, cost: float) -> None:
        """Learn the cost of a child that trains no longer."""

    def clears(self, cost: float) -> bool:
        """Return True if the present child trains for another stage."""
        return False

    def architecture(self, number: int) -> Genotype:
        """Return the child of a number."""
        return self.children[number]

    def draw_random(self) -> Genotype:
        """Draw a cell from the whole space."""
        return self.draw_new(lambda: draw(self.config, self.random.randrange(10**6)))

    def draw_new(self, make: Callable[[], Genotype]) -> Genotype:
        """Draw until the child is one that was not trained before, ten times at most."""
        child = make()
        for _ in range(TRIES - 1):
            if child not in self.children:
                break
            child = make()
        return child

    def _begin_child(self) -> None:
        number = len(self.children)
        child = self.named[number] if number < len(self.named) else self.propose()
        self.children.append(dataclasses.replace(child, origin={}))
        self.stage, self.trained = 1, 0
        self.begin(self.children[-1])

    def step(self, epoch: int, step: int) -> StepFigures:
        """Make a training step of the present child; begin the next one if it has made all of its steps."""
        self.finished = False  # of a search that is extended
        number = len(self.children) - 1
        if self._stage_is_over():
            cost = self.note(number)
            if self.stage < len(self.config.child_steps) and self.clears(cost):
                self.stage += 1
            else:
                self.take(number, cost)
                self._begin_child()
                number += 1
        figures = self.train(number, self.trained)
        self.trained += 1
        if self.scores.get(number) == math.inf:  # it has failed
            self.take(number, math.inf)
            self._begin_child()
        return figures

    def _stage_is_over(self) -> bool:
        return self.trained == sum(self.config.child_steps[: self.stage])

    def finish(self, progress: bool) -> None:
        """Score the last child, if it has made its steps.

        Raises:
            NotFiniteError: all children failed.
        """
        if self._stage_is_over():
            with torch.random.fork_rng():  # a search that is extended scores it again
                self.note(len(self.children) - 1)
        if not any(map(math.isfinite, self.scores.values())):
            raise NotFiniteError(f"none of {len(self.scores)} children has a finite loss: set a smaller learning_rate")
        self.finished = True

    def state_dict(self) -> JSON:
        """Return scores, children, progress of the present one, and the state of the generator."""
        return super().state_dict() | {
            "children": [child.to_dict() for child in self.children],
            "stage": self.stage,
            "trained": self.trained,
            "random": self.random.getstate(),
        }

    def load_state_dict(self, state: JSON) -> None:
        """Go on with the child whose turn it was."""
        super().load_state_dict(state)
        self.children = [Genotype.from_dict(child) for child in state["children"]]
        self.stage, self.trained = state["stage"], state["trained"]
        self.random.setstate(state["random"])
        self.supernet.choose(self.children[-1])


class Evolution(ChildSearch):
    """Evolution: regularized (Real et al., AAAI 2019), or with progressive dynamic hurdles (So et al., ICML 2019).

    A child is a good member of the population with one change. With several `child_steps`, it trains on while it clears
    the hurdles. The result is the best of all children.

    Raises:
        FlairNasError: fewer steps than the first population takes.
    """

    enough = 32

    @staticmethod
    def contradictions(config: SearchSettings) -> list[str]:
        """Return a sentence for tournaments and hurdles that cannot be, and for what `ChildSearch` refuses."""
        tournament, stages = config.tournament, len(config.child_steps)
        checks = {
            f"tournament {tournament} is larger than population {config.population}": tournament > config.population,
            "removal worst needs a tournament of at least 2: of 1 it is any member": (
                config.removal == "worst" and tournament == 1
            ),
            "several child_steps need hurdle_every, the number of children between two hurdles": (
                stages > 1 and not config.hurdle_every
            ),
            "hurdle_every needs at least two child_steps, one for each stage": bool(config.hurdle_every)
            and stages == 1,
        }
        return ChildSearch.contradictions(config) + [message for message, wrong in checks.items() if wrong]

    def __init__(self, objective: Objective, config: SearchSettings, reduce: Reduce | None) -> None:
        stages = len(config.child_steps)
        self.population = Population(
            config.population, config.tournament, config.removal, stages, config.hurdle_every or 0
        )
        super().__init__(objective, config, reduce)
        steps = config.child_steps[0]
        if config.population >= (count := self.total // steps):
            # a smaller population must hold a tournament, and leave a child
            smaller = f"--population to {count - 1} or less, " if count > config.tournament else ""
            raise FlairNasError(
                f"{config.epochs} epochs allow {count} children of {steps} steps, and population "
                f"{config.population} takes all of them: set {smaller}a smaller --child-steps, or more --epochs"
            )

    def propose(self) -> Genotype:
        """Return a random cell for the first population, then a good member with one change."""
        if not self.population.full:
            return self.draw_random()
        parent = self.children[self.population.choose_parent(self.random).number]
        return self.draw_new(lambda: mutate(parent, self.random, self.config.gate_links))

    def take(self, number: int, cost: float) -> None:
        """Add a child to the population."""
        self.population.add(Member(number, cost, self.stage), self.random)

    def clears(self, cost: float) -> bool:
        """Return True if the present child is better than the hurdle of its stage."""
        return self.population.clears(cost, self.stage)

    def figures(self) -> JSON:
        """Return the best score, the mean cost of the population, and the hurdles."""
        costs = [member.cost for member in self.population.members if math.isfinite(member.cost)]
        stages = [member.stage for member in self.population.members]
        figures = super().figures() | {"population_cost": sum(costs) / len(costs) if costs else None}
        if self.population.hurdle_every:
            figures |= {"hurdles": [*self.population.hurdles], "mean_stage": sum(stages) / max(len(stages), 1)}
        return figures

    def state_dict(self) -> JSON:
        """Return the state of the children, and the population."""
        population = self.population
        members = [dataclasses.astuple(member) for member in population.members]
        kept = {"members": members, "hurdles": [*population.hurdles], "children": population.children}
        return super().state_dict() | {"population": kept}

    def load_state_dict(self, state: JSON) -> None:
        """Restore children and population."""
        super().load_state_dict(state)
        kept = state["population"]
        self.population.members = [Member(*values) for values in kept["members"]]
        self.population.hurdles, self.population.children = [*kept["hurdles"]], kept["children"]


class LocalSearch(ChildSearch):
    """Local search: try the neighbours of the best cell, move to the first better one, begin anew where there is none.

    It is the baseline of White et al. (UAI 2021), with moves to the first better neighbour.
    """

    enough = 16

    @staticmethod
    def contradictions(config: SearchSettings) -> list[str]:
        """Return a sentence for several stages, and for what `ChildSearch` refuses."""
        problems = ChildSearch.contradictions(config)
        if len(config.child_steps) > 1:
            problems.append("strategy local-search has no hurdles: child_steps must be one number")
        return problems

    def __init__(self, objective: Objective, config: SearchSettings, reduce: Reduce | None) -> None:
        self.center: int | None = None  # number of the child whose neighbours are tried
        self.left: list[Genotype] = []  # its neighbours that were not tried, the next one last
        super().__init__(objective, config, reduce)

    def propose(self) -> Genotype:
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
            self.left = neighbours(self.children[number], self.config.gate_links)
            self.random.shuffle(self.left)

    def state_dict(self) -> JSON:
        """Return the state of the children, and the neighbours that are left."""
        return super().state_dict() | {"center": self.center, "left": [child.to_dict() for child in self.left]}

    def load_state_dict(self, state: JSON) -> None:
        """Restore the children and the neighbours that are left."""
        super().load_state_dict(state)
        self.center, self.left = state["center"], [Genotype.from_dict(child) for child in state["left"]]
