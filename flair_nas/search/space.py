"""Spaces of whole candidates: how they are drawn, changed, read and described."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype, neighbours, random_genotype
from flair_nas.genotype.features import FEATURES
from flair_nas.genotype.order import Order, parse_order, read_order
from flair_nas.search.protocols import JSON, Candidate
from flair_nas.search.settings import CommonSettings, parse_genotype

if TYPE_CHECKING:
    from flair_nas.library.cost_model import Array


class Space(Protocol):
    """Space of a search whose candidates are compared as a whole."""

    features: tuple[str, ...]  # names of the features that a predictor learns from

    def draw(self, number: int) -> Candidate:
        """Draw the candidate of a number."""

    def neighbours(self, candidate: Candidate) -> list[Candidate]:
        """Return all candidates that differ from one in a single place."""

    def parse(self, text: str) -> Candidate:
        """Return the candidate of a setting.

        Raises:
            FlairNasError: it is faulty, or not of this space.
        """

    def read(self, data: JSON) -> Candidate:
        """Return the candidate of JSON data, as of a checkpoint."""

    def encode(self, candidates: Sequence[Candidate]) -> Array:
        """Return the features of candidates, [candidates, features]."""


def make_space(config: CommonSettings) -> Space:
    """Return the space that the settings describe."""
    return CellSpace(config) if config.transformer.sublayers is None else OrderSpace(config)


class CellSpace(Space):
    """Highway cells and gates that the settings describe."""

    features = FEATURES

    def __init__(self, config: CommonSettings) -> None:
        self.config = config

    def draw(self, number: int) -> Genotype:
        """Draw the candidate of a number."""
        config, seed = self.config, _seed(self.config, number)
        drawn = random_genotype(seed, config.nodes, config.edges_per_node, config.history, config.gate_links)
        return dataclasses.replace(drawn, gate=config.gate, carry=config.carry, recurrence=config.recurrence)

    def neighbours(self, candidate: Genotype) -> list[Genotype]:
        """Return all candidates that differ from one in a single place."""
        return neighbours(candidate, self.config.gate_links)

    def parse(self, text: str) -> Genotype:
        """Return a genotype."""
        candidate, config = parse_genotype(text), self.config
        histories = {gate.history if gate else 0 for gate in (candidate.state_gate, candidate.input_gate)}
        space = (config.nodes, True, config.recurrence, {config.history})
        if (len(candidate.nodes), candidate.highway, candidate.recurrence, histories) != space:
            raise FlairNasError(
                f"{text} is not of this space, highway cells of {config.nodes} nodes with recurrence="
                f"{config.recurrence} and gates over {config.history} steps"
            )
        return candidate

    def read(self, data: JSON) -> Genotype:
        """Return the genotype of a file, or of a checkpoint."""
        return Genotype.from_dict(data)

    def encode(self, candidates: Sequence[Genotype]) -> Array:
        """Return the features of candidates, [candidates, features]."""
        from flair_nas.library.cost_model import encode  # here, as it loads NumPy

        return encode(candidates)


class OrderSpace(Space):
    """Orders of a transformer's sublayers, with as many s and f as the setting `sublayers` (Press et al., ACL 2020)."""

    features = ("mean place of s", "s in the first third", "s in the last third", "runs of one letter", "constant")

    def __init__(self, config: CommonSettings) -> None:
        self.config, self.order = config, parse_order(config.transformer.sublayers or "", "sublayers")

    def draw(self, number: int) -> Order:
        """Draw the candidate of a number."""
        letters = [*self.order.letters]
        random.Random(_seed(self.config, number)).shuffle(letters)
        return dataclasses.replace(self.order, letters="".join(letters))

    def neighbours(self, candidate: Order) -> list[Order]:
        """Return all orders in which two unlike letters of one have changed places."""
        around = []
        for one, other in itertools.combinations(range(len(candidate.letters)), 2):
            letters = [*candidate.letters]
            letters[one], letters[other] = letters[other], letters[one]
            around.append(dataclasses.replace(candidate, letters="".join(letters), origin={}))
        return [other for other in around if other != candidate]

    def parse(self, text: str) -> Order:
        """Return an order."""
        candidate = parse_order(text, "candidate")
        like = dataclasses.replace(candidate, letters=self.order.letters)
        if like != self.order or sorted(candidate.letters) != sorted(self.order.letters):
            raise FlairNasError(f"{text} has not the sublayers, heads and dropout of {self.order.one_line()}")
        return candidate

    def read(self, data: JSON) -> Order:
        """Return the order of a file, or of a checkpoint."""
        return read_order(data)

    def encode(self, candidates: Sequence[Order]) -> Array:
        """Return the features of candidates, [candidates, features]. Places are from 0 to 1."""
        import numpy as np

        def describe(letters: str) -> list[float]:
            places = [place / (len(letters) - 1) for place, letter in enumerate(letters) if letter == "s"]
            early, late = sum(place < 1 / 3 for place in places), sum(place > 2 / 3 for place in places)
            runs = sum(1 for _ in itertools.groupby(letters)) / len(letters)
            return [sum(places) / len(places), early / len(places), late / len(places), runs, 1.0]

        return np.array([describe(candidate.letters) for candidate in candidates]).reshape(-1, len(self.features))


def _seed(config: CommonSettings, number: int) -> int:
    """Return the seed of a candidate: any two pairs of small numbers give two seeds."""
    return config.seed * 1_000_003 + number
