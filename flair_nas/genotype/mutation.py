"""Neighbours of a genotype: all that differ in one place."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

from flair_nas.genotype.architecture import Genotype
from flair_nas.genotype.operations import OPERATIONS
from flair_nas.genotype.parts import Edge, Gate

_KEPT = tuple(op for op in OPERATIONS if op != "drop")


def neighbours(genotype: Genotype, gate_links: bool = True) -> list[Genotype]:
    """Return all genotypes that differ from one in a single place; its options stay.

    In the cell, one edge has another operation or another tail. In a gate, one node has another entry operation, or one
    edge between two nodes is added, removed or changed.

    Args:
        genotype: the genotype.
        gate_links: edges between the nodes of a gate belong to the space.
    """
    found = [dataclasses.replace(genotype, nodes=nodes, origin={}) for nodes in _change_cell(genotype.nodes)]
    for gate in _change_gate(genotype.state_gate, gate_links):
        found.append(dataclasses.replace(genotype, state_gate=gate, origin={}))
    for gate in _change_gate(genotype.input_gate, gate_links):
        found.append(dataclasses.replace(genotype, input_gate=gate, origin={}))
    return found


def mutate(genotype: Genotype, draw: random.Random, gate_links: bool = True) -> Genotype:
    """Return a neighbour of a genotype, drawn evenly.

    Raises:
        ValueError: it has none, as a cell without nodes and gates.
    """
    around = neighbours(genotype, gate_links)
    if not around:
        raise ValueError(f"{genotype.one_line()} has nothing to change")
    return draw.choice(around)


def _change_cell(nodes: tuple[tuple[Edge, ...], ...]) -> Iterator[tuple[tuple[Edge, ...], ...]]:
    """Yield the nodes of a cell with another operation or tail of one edge; the edges of a node stay distinct."""
    for number, edges in enumerate(nodes):
        for place, edge in enumerate(edges):
            others = {*edges}
            for other in _other_edges(edge, range(number + 1)):
                if other not in others:
                    yield (*nodes[:number], (*edges[:place], other, *edges[place + 1 :]), *nodes[number + 1 :])


def _other_edges(edge: Edge, tails: range) -> Iterator[Edge]:
    """Yield the edges into the same node with another operation or another tail."""
    yield from (Edge(op, edge.tail) for op in _KEPT if op != edge.op)
    yield from (Edge(edge.op, tail) for tail in tails if tail != edge.tail)


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
