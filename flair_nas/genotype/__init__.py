"""Genotypes: discrete recurrent architectures, as data. Imports neither torch nor Flair."""

from flair_nas.genotype.architecture import Genotype
from flair_nas.genotype.parts import Edge, Gate, GateNode
from flair_nas.genotype.sampling import random_genotype
from flair_nas.genotype.vocabulary import (
    CARRIES,
    DEFAULT_CARRY,
    DEFAULT_COMBINE,
    DEFAULT_GATE,
    GATE_FORMS,
    MOST_NODES,
    OPERATIONS,
    OPTION_NAMES,
    GenotypeError,
)

__all__ = [
    "CARRIES",
    "DEFAULT_CARRY",
    "DEFAULT_COMBINE",
    "DEFAULT_GATE",
    "GATE_FORMS",
    "MOST_NODES",
    "OPERATIONS",
    "OPTION_NAMES",
    "Edge",
    "Gate",
    "GateNode",
    "Genotype",
    "GenotypeError",
    "random_genotype",
]
