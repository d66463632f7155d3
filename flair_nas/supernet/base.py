"""Base of all supernets, and their matrices of architecture weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from flair_nas.genotype import Genotype
from flair_nas.supernet.derive import margins
from flair_nas.supernet.relaxation import deviations, relax


class Relaxed(NamedTuple):
    """Matrix of architecture weights of a supernet."""

    name: str  # in the history
    kind: str  # ``cell``, or of a gate ``entries`` or ``links`` between its nodes
    arch: nn.Parameter  # [E, 5]
    relaxation: str

    @property
    def part(self) -> str:
        """Part that it belongs to: ``intra`` of the cell, or ``inter`` of the gates."""
        return "intra" if self.kind == "cell" else "inter"


class SupernetBase:
    """Methods that all supernets share.

    Attributes:
        parts: the supernets that this one runs, if it consists of others.
    """

    parts: Sequence[SupernetBase] = ()

    def relaxed(self) -> list[Relaxed]:
        """Return the matrices of architecture weights, each once."""
        raise NotImplementedError

    def choose(self, genotype: Genotype | None) -> None:
        """Run one genotype in all parts; see `CellSupernet.choose`."""
        assert self.parts  # gates around a fixed cell have no space of genotypes to run
        for part in self.parts:
            part.choose(genotype)

    @contextlib.contextmanager
    def batch_statistics(self) -> Iterator[None]:
        """Normalise by the batch in all parts; see `CellSupernet.batch_statistics`."""
        with contextlib.ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(part.batch_statistics())
            yield

    def architecture(self) -> dict[str, list[nn.Parameter]]:
        """Return the architecture weights: ``intra`` of the cell, ``inter`` of the gates."""
        return {part: [one.arch for one in self.relaxed() if one.part == part] for part in ("intra", "inter")}

    def mixing_tables(self) -> dict[str, Tensor]:
        """Return the mixing weights without noise, [E, 5], by the name of their matrix."""
        return {one.name: relax(one.arch.detach(), one.relaxation) for one in self.relaxed()}

    def mean_absolute_deviations(self) -> dict[str, float]:
        """Compute MAD of the mixing weights of each part that has some."""
        parts: dict[str, list[Tensor]] = {}
        for one in self.relaxed():
            parts.setdefault(one.part, []).append(deviations(one.arch, one.relaxation).flatten())
        return {part: float(torch.cat(found).mean()) for part, found in parts.items()}

    def margins(self, edges_per_node: int = 1, avoid_first: bool = False) -> dict[str, list[float]]:
        """Compute how clear each choice of each part is, from 0 to 1; see `flair_nas.supernet.derive.margins`."""
        parts: dict[str, list[float]] = {}
        for one in self.relaxed():
            found = margins(one.arch, one.relaxation, edges_per_node, avoid_first, one.kind)
            parts.setdefault(one.part, []).extend(found)
        return parts
