"""Random genotypes, and the neighbours of a genotype: all that differ in one place."""

from __future__ import annotations

import dataclasses
import operator
import random
from collections.abc import Iterator
from typing import Any

from flair_nas.genotype.architecture import Genotype
from flair_nas.genotype.operations import OPERATIONS
from flair_nas.genotype.parts import Edge, Gate, GateNode
from flair_nas.genotype.vocabulary import MAX_NODES

_KEPT = OPERATIONS[1:]  # without drop


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
    cell = []
    for number in range(1, nodes + 1):
        pairs = [(tail, op) for tail in range(number) for op in _KEPT]
        cell.append(tuple(Edge(op, tail) for tail, op in draw.sample(pairs, edges_per_node)))

    def gate() -> Gate | None:
        gate_nodes = []
        for number in range(1, history + 1):
            entry = draw.choice(_KEPT)
            ops = [(draw.choice(OPERATIONS), tail) for tail in range(1, number) if gate_links]
            gate_nodes.append(GateNode(entry, tuple(Edge(op, tail) for op, tail in ops if op != "drop")))
        return Gate(tuple(gate_nodes)) if history else None

    origin = {"method": "random", "seed": seed}
    return Genotype(nodes=tuple(cell), state_gate=gate(), input_gate=gate(), origin=origin)


def neighbours(genotype: Genotype, gate_links: bool = True) -> list[Genotype]:
    """Return all genotypes that differ from one in a single place; its options stay.

    In the cell, one edge has another operation or another tail. In a gate, one node has another entry operation, or one
    edge between two nodes is added, removed or changed.

    Args:
        genotype: the genotype.
        gate_links: edges between the nodes of a gate belong to the space.
    """
    changes: list[dict[str, Any]] = [{"nodes": nodes} for nodes in _change_cell(genotype.nodes)]
    changes += [{"state_gate": gate} for gate in _change_gate(genotype.state_gate, gate_links)]
    changes += [{"input_gate": gate} for gate in _change_gate(genotype.input_gate, gate_links)]
    return [dataclasses.replace(genotype, **change, origin={}) for change in changes]


def _change_cell(nodes: tuple[tuple[Edge, ...], ...]) -> Iterator[tuple[tuple[Edge, ...], ...]]:
    """Yield the nodes of a cell with another operation or tail of one edge; the edges of a node stay distinct."""
    for number, edges in enumerate(nodes):
        for place, edge in enumerate(edges):
            others = [Edge(op, edge.tail) for op in _KEPT if op != edge.op]
            others += [Edge(edge.op, tail) for tail in range(number + 1) if tail != edge.tail]
            for other in others:
                if other not in edges:
                    yield (*nodes[:number], (*edges[:place], other, *edges[place + 1 :]), *nodes[number + 1 :])


def _change_gate(gate: Gate | None, links: bool) -> Iterator[Gate]:
    """Yield a gate with a change in one node; two nodes have one edge between them at most."""
    nodes = () if gate is None else gate.nodes
    for number, node in enumerate(nodes):
        changed = [dataclasses.replace(node, entry=op) for op in _KEPT if op != node.entry]
        if links:
            changed += [dataclasses.replace(node, edges=edges) for edges in _change_links(node.edges, number + 1)]
        yield from (Gate((*nodes[:number], other, *nodes[number + 1 :])) for other in changed)


def _change_links(edges: tuple[Edge, ...], number: int) -> Iterator[tuple[Edge, ...]]:
    """Yield the edges into a gate's node of a number, from 1, with one added, removed, or changed."""
    linked = {edge.tail for edge in edges}
    free = [tail for tail in range(1, number) if tail not in linked]
    yield from ((*edges, Edge(op, tail)) for tail in free for op in _KEPT)
    for place, edge in enumerate(edges):
        rest = (*edges[:place], *edges[place + 1 :])
        yield rest
        yield from ((*rest, Edge(op, edge.tail)) for op in _KEPT if op != edge.op)
        yield from ((*rest, Edge(edge.op, tail)) for tail in free)
