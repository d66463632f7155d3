"""Supernets of several tasks with the same architecture weights (MAS, Pasunuru and Bansal, 2019)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from flair_nas.supernet.base import Relaxed, SupernetBase
from flair_nas.supernet.bidirectional import BothDirections
from flair_nas.supernet.cell import CellSupernet, InterCellSupernet, OneDirection
from flair_nas.supernet.gates import GateSupernet

OneTask = OneDirection | BothDirections

WEIGHTS = ("weight_input", "weight_hidden", "weight_nodes", "weight_entry")
"""Names of the weights of a recurrent layer, in cell and gates."""


class SharedSupernet(SupernetBase):
    """Several supernets as one: they run one genotype, and have the architecture weights and sampler of the first.

    Args:
        supernets: one for each task, of one space; both directions of a supernet share their architecture weights.
        weights: share the weights of the layer, too, those of each direction. A single direction reads ahead.

    Raises:
        ValueError: weights to share that have other shapes.
    """

    def __init__(self, supernets: Sequence[OneTask], weights: bool = False) -> None:
        first = self.first = supernets[0]
        self.parts = supernets
        self.sampler, self.genotype = first.sampler, first.genotype
        ahead = directions(first)[0]
        back = next((both[1] for both in map(directions, supernets) if len(both) > 1), None)
        for supernet in supernets:
            for direction, like in zip(directions(supernet), (ahead, back)):
                _share(direction, ahead, like if weights else None)

    def relaxed(self) -> list[Relaxed]:
        """Return the matrices of architecture weights of the first supernet, which all share."""
        return self.first.relaxed()


def directions(supernet: OneTask) -> list[OneDirection]:
    """Return the supernets of the directions, ahead first."""
    return [supernet.ahead, supernet.back] if isinstance(supernet, BothDirections) else [supernet]


def layer_weights(supernet: OneTask) -> dict[str, nn.Parameter]:
    """Return the weights of the recurrent layer by name, without architecture weights."""
    return {name: weight for name, weight in supernet.named_parameters() if name.rpartition(".")[2] in WEIGHTS}


def _share(target: OneDirection, arch: OneDirection, like: OneDirection | None) -> None:
    """Let a supernet use the architecture weights and sampler of `arch`, and the weights of `like` unless None."""
    pairs = zip(*(sum(supernet.architecture().values(), []) for supernet in (target, arch)))
    other: dict[int, nn.Parameter] = {id(own): shared for own, shared in pairs}
    if like is not None:
        shared, own = layer_weights(like), layer_weights(target)
        for name, weight in own.items():
            if weight.shape != shared[name].shape:
                shapes = f"{list(shared[name].shape)} in one task and {list(weight.shape)} in another"
                raise ValueError(f"{name} is {shapes}")
            other[id(weight)] = shared[name]
    for module in target.modules():
        if isinstance(module, CellSupernet | InterCellSupernet | GateSupernet):
            module.sampler = arch.sampler
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, other.get(id(parameter), parameter))
