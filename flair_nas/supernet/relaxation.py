"""Relaxations: groupings of the softmax over architecture weights."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from flair_nas.errors import FlairNasError, did_you_mean


def _relax_per_node(arch: Tensor) -> Tensor:
    """Take one softmax per node, over all its pairs and operations together (I-DARTS eq. 4)."""
    groups = torch.split(arch, group_sizes(len(arch)))
    return torch.cat([group.flatten().softmax(0).view_as(group) for group in groups])


RELAXATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "darts": lambda arch: arch.softmax(dim=1),  # one per pair of nodes
    "i-darts": _relax_per_node,
}
"""Relaxations, each a function from architecture weights [E, 5] to mixing weights [E, 5]."""

ONE_PER_PAIR = frozenset({"darts"})
"""Relaxations whose softmax makes the operations of a pair exclusive: a genotype keeps one of each pair."""


def group_sizes(rows: int) -> list[int]:
    """Return the number of pairs into each node, 1, 2, ..., for rows ordered by head, then tail."""
    sizes = [*range(1, math.isqrt(2 * rows) + 1)]
    if sum(sizes) != rows:
        raise ValueError(f"architecture weights need 1 + 2 + ... + nodes rows, a row per pair of nodes; got {rows}")
    return sizes


def relax(arch: Tensor, relaxation: str) -> Tensor:
    """Compute the mixing weights of architecture weights, [E, 5] each; every group of the softmax sums to 1.

    Args:
        arch: rows by head, then tail; columns as `flair_nas.genotype.OPERATIONS`.
        relaxation: ``darts`` or ``i-darts``.

    Raises:
        FlairNasError: an unknown relaxation; it lists the known ones.
    """
    if relaxation not in RELAXATIONS:
        hint = did_you_mean(relaxation, list(RELAXATIONS))
        raise FlairNasError(f"unknown relaxation {relaxation!r}; {hint}there are {', '.join(RELAXATIONS)}")
    return RELAXATIONS[relaxation](arch) if len(arch) else arch


def softmax_groups(weights: Tensor, relaxation: str) -> list[Tensor]:
    """Split mixing weights [E, 5] into a vector for each softmax."""
    sizes = [1] * len(weights) if relaxation in ONE_PER_PAIR else group_sizes(len(weights))
    return [group.flatten() for group in torch.split(weights, sizes)] if len(weights) else []


class Sampler:
    """Mixing weights of a supernet in one pass.

    With a temperature, training adds Gumbel noise to the architecture weights, drawn once a pass (SNAS, Xie et al.,
    2019). A straight-through pass runs the strongest of each softmax alone, with the gradient of the soft weights
    (GDAS, Dong and Yang, 2019).
    """

    def __init__(self) -> None:
        self.temperature: float | None = None  # τ, which divides architecture weights and noise
        self.straight_through = False
        self._noise: dict[int, Tensor] = {}
        self._active = False

    def begin(self, training: bool) -> None:
        """Start a pass; in training, draw new noise."""
        self._noise.clear()
        self._active = training and self.temperature is not None

    def sample(self, arch: Tensor, relaxation: str) -> Tensor:
        """Compute the mixing weights of a matrix of architecture weights in this pass, [E, 5]."""
        if not self._active or not len(arch):
            return relax(arch, relaxation)
        assert self.temperature is not None
        if id(arch) not in self._noise:
            self._noise[id(arch)] = -torch.empty_like(arch).exponential_().log()
        soft = relax((arch + self._noise[id(arch)]) / self.temperature, relaxation)
        if not self.straight_through:
            return soft
        strongest = [nn.functional.one_hot(group.argmax(), len(group)) for group in softmax_groups(soft, relaxation)]
        return soft + (torch.cat(strongest).view_as(soft).to(soft.dtype) - soft).detach()


def deviations(arch: Tensor, relaxation: str) -> Tensor:
    """Compute the distance of each mixing weight of `arch` from uniform, [E, 5]; MAD is their mean (ESS section 4)."""
    arch = arch.detach().double()
    return (relax(arch, relaxation) - relax(torch.zeros_like(arch), relaxation)).abs()
