"""Genotypes: discrete recurrent architectures, as data. Imports neither torch nor Flair."""

from flair_nas.genotype.architecture import Genotype as Genotype
from flair_nas.genotype.operations import GATE_FORM_TABLE as GATE_FORM_TABLE
from flair_nas.genotype.operations import GATE_FORMS as GATE_FORMS
from flair_nas.genotype.operations import OPERATION_TABLE as OPERATION_TABLE
from flair_nas.genotype.operations import OPERATIONS as OPERATIONS
from flair_nas.genotype.parts import Edge as Edge
from flair_nas.genotype.parts import Gate as Gate
from flair_nas.genotype.parts import GateNode as GateNode
from flair_nas.genotype.sampling import neighbours as neighbours
from flair_nas.genotype.sampling import random_genotype as random_genotype
from flair_nas.genotype.vocabulary import CARRIES as CARRIES
from flair_nas.genotype.vocabulary import DEFAULT_CARRY as DEFAULT_CARRY
from flair_nas.genotype.vocabulary import DEFAULT_GATE as DEFAULT_GATE
from flair_nas.genotype.vocabulary import DEFAULT_RECURRENCE as DEFAULT_RECURRENCE
from flair_nas.genotype.vocabulary import NO_NODES as NO_NODES
from flair_nas.genotype.vocabulary import OPTION_NAMES as OPTION_NAMES
from flair_nas.genotype.vocabulary import RECURRENCES as RECURRENCES
from flair_nas.genotype.vocabulary import GenotypeError as GenotypeError
