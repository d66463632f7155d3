"""Random genotypes."""

from __future__ import annotations

import operator
import random

from flair_nas.genotype.architecture import Genotype
from flair_nas.genotype.operations import OPERATIONS
from flair_nas.genotype.parts import Edge, Gate, GateNode
from flair_nas.genotype.vocabulary import MAX_NODES


def random_genotype(
    seed: int, nodes: int = 8, edges_per_node: int = 1, history: int = 0, gate_links: bool = True
) -> Genotype:
    """Draw a genotype uniformly: for each node, distinct (tail, operation) pairs.

    Args:
        seed: the same seed gives the same genotype on every machine.
        nodes: number of nodes N of the cell.
        edges_per_node: edges into each node; node 1 has only s_0 to read, so at most 4.
        history: history length m of both inter-cell gates; 0 for none. An edge between two nodes of a gate is kept
            with the probability that a uniformly drawn operation is not ``drop``, 4/5.
        gate_links: there are such edges.

    Raises:
        ValueError: a number that is out of range.

    Example:
        >>> from flair_nas import random_genotype
        >>> random_genotype(1, nodes=3).one_line()
        'relu0-relu0-tanh1'
    """
    seed, nodes, edges_per_node, history = map(operator.index, (seed, nodes, edges_per_node, history))  # of NumPy, too
    if not 1 <= nodes <= MAX_NODES:
        raise ValueError(f"a cell needs at least one node, and at most {MAX_NODES:,}, got nodes={nodes}")
    if not 1 <= edges_per_node <= len(OPERATIONS) - 1:
        raise ValueError(f"edges_per_node must be 1 to {len(OPERATIONS) - 1}, got {edges_per_node}")
    if not 0 <= history <= MAX_NODES:
        raise ValueError(f"history must not be negative, and at most {MAX_NODES:,}, got {history}")
    draw = random.Random(seed)
    kept = OPERATIONS[1:]
    cell = []
    for number in range(1, nodes + 1):
        pairs = [(tail, op) for tail in range(number) for op in kept]
        cell.append(tuple(Edge(op, tail) for tail, op in draw.sample(pairs, edges_per_node)))

    def gate() -> Gate | None:
        gate_nodes = []
        for number in range(1, history + 1):
            entry = draw.choice(kept)
            ops = [(draw.choice(OPERATIONS), tail) for tail in range(1, number) if gate_links]
            gate_nodes.append(GateNode(entry, tuple(Edge(op, tail) for op, tail in ops if op != "drop")))
        return Gate(tuple(gate_nodes)) if history else None

    origin = {"method": "random", "seed": seed}
    return Genotype(nodes=tuple(cell), state_gate=gate(), input_gate=gate(), origin=origin)
