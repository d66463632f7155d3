"""Supernets: all edges and operations at once, mixed by architecture weights, and reading genotypes off them."""

from flair_nas.supernet.bidirectional import BothDirections
from flair_nas.supernet.cell import CellSupernet
from flair_nas.supernet.derive import derive, derive_gate
from flair_nas.supernet.gates import GateSupernet
from flair_nas.supernet.inter_cell import InterCellSupernet
from flair_nas.supernet.relaxation import RELAXATIONS, mean_absolute_deviation, relax

Supernet = CellSupernet | InterCellSupernet | BothDirections
"""Supernet of a search."""

__all__ = [
    "RELAXATIONS",
    "BothDirections",
    "CellSupernet",
    "GateSupernet",
    "InterCellSupernet",
    "Supernet",
    "derive",
    "derive_gate",
    "mean_absolute_deviation",
    "relax",
]
