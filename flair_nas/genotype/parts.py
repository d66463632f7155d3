"""Edges and gates, and the checks of a genotype's parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from typing import TypeGuard

from flair_nas.genotype.operations import OPERATIONS
from flair_nas.genotype.vocabulary import MAX_NODES, GenotypeError, Json


@dataclass(frozen=True)
class Edge:
    """An edge into a node: it reads node `tail` and applies operation `op`.

    Args:
        op: ``identity``, ``sigmoid``, ``tanh`` or ``relu``.
        tail: the node that is read; 0 is the cell's s_0.

    Example:
        >>> from flair_nas import Edge
        >>> Edge("tanh", 0)
        Edge(op='tanh', tail=0)
    """

    __module__ = "flair_nas"

    op: str
    tail: int


@dataclass(frozen=True)
class GateNode:
    """A node of an inter-cell gate.

    Args:
        entry: the operation on the entry vector v_i of this node.
        edges: edges from earlier nodes of the gate; may be empty.

    Example:
        >>> from flair_nas import Edge, GateNode
        >>> GateNode("relu", (Edge("tanh", 1),)).entry
        'relu'
    """

    __module__ = "flair_nas"

    entry: str
    edges: tuple[Edge, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", in_order(self.edges))


@dataclass(frozen=True)
class Gate:
    """An inter-cell gate of ESS with nodes 1..m; m is the history length.

    Example:
        >>> from flair_nas import Edge, Gate, GateNode
        >>> Gate((GateNode("tanh"), GateNode("relu", (Edge("sigmoid", 1),)))).history
        2
    """

    __module__ = "flair_nas"

    nodes: tuple[GateNode, ...]

    def __post_init__(self) -> None:
        check_size(self.nodes, "nodes of a gate")
        if not all(isinstance(node, GateNode) for node in self.nodes):
            raise GenotypeError("a sequence of GateNode", actual=self.nodes, place="nodes of a gate")
        object.__setattr__(self, "nodes", tuple(self.nodes))

    @property
    def history(self) -> int:
        """The history length m."""
        return len(self.nodes)


def is_list(value: object) -> TypeGuard[Sequence[Json]]:
    """Return True for a sequence that is no text."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def in_order(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Return edges by tail, then operation: two genotypes that differ in the order of edges alone are equal."""
    edges = tuple(edges)
    try:
        return tuple(sorted(edges, key=lambda edge: (edge.tail, OPERATIONS.index(edge.op))))
    except (TypeError, ValueError, AttributeError):  # `_check_edges` names the fault
        return edges


def check_size(nodes: Sized, place: str) -> None:
    """Raise an error if there are more than `MAX_NODES` nodes."""
    if len(nodes) > MAX_NODES:
        raise GenotypeError(f"at most {MAX_NODES:,} nodes, not {len(nodes):,}", place=place)


def check_nodes(nodes: Sequence[Iterable[Edge]]) -> tuple[tuple[Edge, ...], ...]:
    """Return the edges into each node of a cell in their order; raise an error if they are faulty."""
    check_size(nodes, "cell.nodes")
    ordered = tuple(map(in_order, nodes))
    for number, edges in enumerate(ordered, start=1):
        place = f"cell.nodes[{number - 1}]"
        if not edges:
            raise GenotypeError(f"at least one edge into node {number}", actual=[], place=place)
        _check_edges(edges, range(number), number, place)
    return ordered


def check_output(output: Sequence[int], nodes: int) -> tuple[int, ...]:
    """Return the output nodes in order, all nodes if none is named; raise an error if they are faulty.

    A cell without nodes has the output s_0.
    """
    if not nodes and tuple(output) in ((), (0,)):
        return (0,)
    for index, number in enumerate(output):
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= nodes:
            expected = f"a node, 1 to {nodes}" if nodes else "0, for s_0, as the cell has no nodes"
            raise GenotypeError(expected, actual=number, place=f"cell.output[{index}]")
    if len(set(output)) < len(output):
        raise GenotypeError("each output node once", actual=tuple(output), place="cell.output")
    return tuple(sorted(output)) or tuple(range(1, nodes + 1))


def check_gate(gate: Gate, name: str) -> None:
    """Raise an error if a gate has faulty nodes."""
    if not isinstance(gate, Gate) or not gate.nodes:
        raise GenotypeError("a gate with at least one node, or none at all", actual=gate, place=name)
    for number, node in enumerate(gate.nodes, start=1):
        place = f"{name}.nodes[{number - 1}]"
        _check_op(node.entry, f"{place}.entry")
        _check_edges(node.edges, range(1, number), number, f"{place}.edges")


def _check_op(op: object, place: str) -> None:
    """Raise an error if this is no operation of a kept edge."""
    if op in ("drop", "none", "zero"):
        raise GenotypeError("an operation that keeps the edge; leave a dropped edge out", actual=op, place=place)
    if not isinstance(op, str) or op not in OPERATIONS:
        raise GenotypeError(f"one of {', '.join(OPERATIONS[1:])}", actual=op, place=place)


def _check_edges(edges: tuple[Edge, ...], tails: range, number: int, place: str) -> None:
    """Raise an error if edges into a node are faulty or repeated, or read no earlier node."""
    for index, edge in enumerate(edges):
        if not isinstance(edge, Edge):
            raise GenotypeError("an Edge", actual=edge, place=f"{place}[{index}]")
        _check_op(edge.op, f"{place}[{index}].op")
        if not isinstance(edge.tail, int) or isinstance(edge.tail, bool) or edge.tail not in tails:
            earlier = f"an earlier node, {tails[0]} to {tails[-1]}" if tails else "no edge: no node is earlier"
            expected = f"{earlier}, as tail of an edge into node {number}"
            raise GenotypeError(expected, actual=edge.tail, place=f"{place}[{index}].tail")
    if len(set(edges)) < len(edges):
        raise GenotypeError("each (operation, tail) once per node", actual=edges, place=place)
