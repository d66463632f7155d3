"""Spaces of whole candidates: how they are drawn, changed, read and described."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype, neighbours, random_genotype
from flair_nas.genotype.features import FEATURES
from flair_nas.search.protocols import JSON
from flair_nas.search.settings import CommonSettings, parse_genotype

if TYPE_CHECKING:
    from flair_nas.library.cost_model import Array


class CellSpace:
    """Highway cells and gates that the settings describe."""

    features = FEATURES
    """Names of the features that a predictor learns from."""

    def __init__(self, config: CommonSettings) -> None:
        self.config = config

    def draw(self, number: int) -> Genotype:
        """Draw the candidate of a number."""
        config, seed = self.config, self.config.seed * 1_000_003 + number  # any two pairs of small numbers differ
        drawn = random_genotype(seed, config.nodes, config.edges_per_node, config.history, config.gate_links)
        return dataclasses.replace(drawn, gate=config.gate, carry=config.carry, recurrence=config.recurrence)

    def neighbours(self, candidate: Genotype) -> list[Genotype]:
        """Return all candidates that differ from one in a single place."""
        return neighbours(candidate, self.config.gate_links)

    def parse(self, text: str) -> Genotype:
        """Return the candidate of a setting.

        Raises:
            FlairNasError: it is unknown, or not of this space.
        """
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
        """Return the candidate of a checkpoint."""
        return Genotype.from_dict(data)

    def encode(self, candidates: Sequence[Genotype]) -> Array:
        """Return the features of candidates, [candidates, features]."""
        from flair_nas.library.cost_model import encode  # here, as it loads NumPy

        return encode(candidates)
