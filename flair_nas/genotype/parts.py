"""Parts of a genotype, edges and gates, and the checks of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass

from flair_nas.genotype.vocabulary import MOST_NODES, OPERATIONS, GenotypeError


@dataclass(frozen=True)
class Edge:
    """An edge into a node: it reads node `tail` and applies operation `op`.

    Args:
        op: ``identity``, ``sigmoid``, ``tanh`` or ``relu``.
        tail: the node that is read; 0 is the cell's s_0.
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
    """

    __module__ = "flair_nas"

    entry: str
    edges: tuple[Edge, ...] = ()

    def __post_init__(self) -> None:
        if not is_list(self.edges):
            raise GenotypeError("a sequence of edges", found=self.edges, place="edges of a gate's node")
        object.__setattr__(self, "edges", in_order(self.edges))


@dataclass(frozen=True)
class Gate:
    """An inter-cell gate of ESS; its number of nodes is the history length m.

    Args:
        nodes: nodes 1..m.
    """

    __module__ = "flair_nas"

    nodes: tuple[GateNode, ...]

    def __post_init__(self) -> None:
        check_size(self.nodes, "nodes of a gate")
        if not is_list(self.nodes) or not all(isinstance(node, GateNode) for node in self.nodes):
            raise GenotypeError("a sequence of GateNode", found=self.nodes, place="nodes of a gate")
        object.__setattr__(self, "nodes", tuple(self.nodes))

    @property
    def history(self) -> int:
        """The history length m."""
        return len(self.nodes)


def is_list(value: object) -> bool:
    """Return True for a sequence that is no text."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def check_size(nodes: object, place: str) -> None:
    """Refuse more than `MOST_NODES` nodes."""
    try:
        count = f"{len(nodes):,}" if isinstance(nodes, Sized) and len(nodes) > MOST_NODES else ""
    except OverflowError:  # a range
        count = "more than can be counted"
    if count:
        raise GenotypeError(f"at most {MOST_NODES:,} nodes, not {count}", place=place)


def in_order(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Edges by tail, then operation: their order has no meaning, so it should make no difference."""
    edges = tuple(edges)
    try:
        return tuple(sorted(edges, key=lambda edge: (edge.tail, OPERATIONS.index(edge.op))))
    except (TypeError, ValueError, AttributeError):  # the checks will say what is wrong
        return edges


def check_op(op: object, place: str) -> None:
    """Refuse what is no operation of a kept edge."""
    if op in ("drop", "none", "zero"):
        raise GenotypeError("an operation that keeps the edge; leave a dropped edge out", found=op, place=place)
    if not isinstance(op, str) or op not in OPERATIONS:
        raise GenotypeError(f"one of {', '.join(OPERATIONS[1:])}", found=op, place=place)


def check_edges(edges: tuple[Edge, ...], tails: range, number: int, place: str) -> None:
    """Refuse edges into a node that are faulty, repeated or read no earlier node."""
    for index, edge in enumerate(edges):
        if not isinstance(edge, Edge):
            raise GenotypeError("an Edge", found=edge, place=f"{place}[{index}]")
        check_op(edge.op, f"{place}[{index}].op")
        if not isinstance(edge.tail, int) or isinstance(edge.tail, bool) or edge.tail not in tails:
            expected = f"an earlier node, {tails[0]} to {tails[-1]}" if len(tails) else "no edge: no node is earlier"
            raise GenotypeError(f"{expected}, as tail of an edge into node {number}", found=edge.tail,
                                place=f"{place}[{index}].tail")  # fmt: skip
    if len(set(edges)) < len(edges):
        raise GenotypeError("each (operation, tail) once per node", found=edges, place=place)


def check_output(output: tuple[int, ...], nodes: int) -> None:
    """Refuse output nodes that are repeated or not there."""
    for index, number in enumerate(output):
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= nodes:
            raise GenotypeError(f"a node, 1 to {nodes}", found=number, place=f"cell.output[{index}]")
    if len(set(output)) < len(output):
        raise GenotypeError("each output node once", found=output, place="cell.output")


def check_gate(gate: object, name: str) -> None:
    """Refuse a gate with faulty nodes."""
    if not isinstance(gate, Gate) or not gate.nodes:
        raise GenotypeError("a gate with at least one node, or none at all", found=gate, place=name)
    for number, node in enumerate(gate.nodes, start=1):
        place = f"{name}.nodes[{number - 1}]"
        check_op(node.entry, f"{place}.entry")
        check_edges(node.edges, range(1, number), number, f"{place}.edges")
