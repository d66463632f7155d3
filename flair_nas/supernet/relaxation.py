"""Relaxations: how the softmax over architecture weights is grouped. A further one is one function more."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from flair_nas.errors import FlairNasError, did_you_mean


def _per_pair(arch: Tensor) -> Tensor:
    """One softmax per pair of nodes (DARTS)."""
    return arch.softmax(dim=1)


def _per_node(arch: Tensor) -> Tensor:
    """One softmax per node, over all its pairs and operations together (I-DARTS eq. 4)."""
    groups = arch.split(group_sizes(len(arch)))
    return torch.cat([group.flatten().softmax(0).view_as(group) for group in groups])


RELAXATIONS: dict[str, Callable[[Tensor], Tensor]] = {"darts": _per_pair, "i-darts": _per_node}
"""Each relaxation as a function from architecture weights [E, 5] to mixing weights, the shares, [E, 5]."""

ONE_PER_PAIR = frozenset({"darts"})
"""Relaxations in which the operations of a pair exclude one another, so that a genotype keeps one of each pair."""


def group_sizes(rows: int) -> list[int]:
    """The number of pairs into each node, 1, 2, ..., for rows ordered by head, then tail.

    Raises:
        ValueError: `rows` is no 1 + 2 + ... + n.
    """
    sizes: list[int] = []
    while sum(sizes) < rows:
        sizes.append(len(sizes) + 1)
    if sum(sizes) != rows:
        raise ValueError(f"architecture weights need 1 + 2 + ... + nodes rows, a row per pair of nodes; got {rows}")
    return sizes


def relax(arch: Tensor, relaxation: str) -> Tensor:
    """The shares that a matrix of architecture weights stands for.

    Args:
        arch: [E, 5], rows by head, then tail; columns as `flair_nas.genotype.OPERATIONS`.
        relaxation: ``darts`` or ``i-darts``.

    Returns:
        [E, 5], positive; each group of the softmax sums to 1.
    """
    check_relaxation(relaxation)
    return RELAXATIONS[relaxation](arch) if len(arch) else arch


def softmax_groups(shares: Tensor, relaxation: str) -> list[Tensor]:
    """The shares [E, 5] of each softmax on their own, a vector each."""
    sizes = [1] * len(shares) if relaxation in ONE_PER_PAIR else group_sizes(len(shares))
    return [group.flatten() for group in shares.split(sizes)] if len(shares) else []


class Sampler:
    """The shares of a supernet in one pass: those of the softmax, or with noise drawn once a pass, in training.

    Without a temperature it is the plain relaxation. With one, Gumbel noise is added to the architecture weights before
    the softmax (SNAS, Xie et al., 2019); straight-through, a pass then runs the strongest of each softmax alone, and
    the gradient is that of the soft shares (GDAS, Dong and Yang, 2019).

    Attributes:
        temperature: τ, which architecture weights and noise are divided by; None for the plain relaxation.
        straight_through: run the strongest of each softmax alone.
    """

    def __init__(self) -> None:
        self.temperature: float | None = None
        self.straight_through = False
        self._noise: dict[int, Tensor] = {}
        self._active = False

    def begin(self, training: bool) -> None:
        """A pass begins: in training with noise of its own."""
        self._noise.clear()
        self._active = training and self.temperature is not None

    def shares(self, arch: Tensor, relaxation: str) -> Tensor:
        """The shares of a matrix of architecture weights in this pass, [E, 5]."""
        if not self._active or not len(arch):
            return relax(arch, relaxation)
        assert self.temperature is not None
        if id(arch) not in self._noise:
            self._noise[id(arch)] = -torch.empty_like(arch).exponential_().log()
        soft = relax((arch + self._noise[id(arch)]) / self.temperature, relaxation)
        return soft + (strongest(soft, relaxation) - soft).detach() if self.straight_through else soft


def strongest(shares: Tensor, relaxation: str) -> Tensor:
    """1 at the largest share of each softmax, 0 elsewhere, [E, 5]."""
    groups = softmax_groups(shares, relaxation)
    hard = [nn.functional.one_hot(group.argmax(), len(group)) for group in groups]
    return torch.cat(hard).view_as(shares).to(shares.dtype)


def check_relaxation(name: str) -> None:
    """Refuses a name that is no relaxation.

    Raises:
        FlairNasError: the known ones are listed.
    """
    if name not in RELAXATIONS:
        known = list(RELAXATIONS)
        raise FlairNasError(
            f"unknown relaxation {name!r}; {did_you_mean(str(name), known)}there are {', '.join(known)}"
        )


def mean_absolute_deviation(arch: Tensor, relaxation: str) -> float:
    """MAD, how far the shares have moved from uniform: the mean of |share - uniform share| (ESS section 4).

    Args:
        arch: architecture weights, [E, 5].
        relaxation: ``darts`` or ``i-darts``.
    """
    arch = arch.detach().double()
    return float((relax(arch, relaxation) - relax(torch.zeros_like(arch), relaxation)).abs().mean())
