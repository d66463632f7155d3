"""Supernets: all edges and operations at once, mixed by architecture weights, and reading genotypes off them."""

from flair_nas.supernet.bidirectional import BothDirections
from flair_nas.supernet.cell import CellSupernet, InterCellSupernet
from flair_nas.supernet.derive import derive
from flair_nas.supernet.shared import OneTask, SharedSupernet

Supernet = OneTask | SharedSupernet
"""Supernet of a search."""

__all__ = ["BothDirections", "CellSupernet", "InterCellSupernet", "OneTask", "SharedSupernet", "Supernet", "derive"]
