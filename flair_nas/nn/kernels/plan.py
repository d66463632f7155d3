"""Plans of cells and gates: products and operations in the order in which engines compute them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from flair_nas.genotype import OPERATIONS, GateNode, Genotype

MIXED = -1
"""Code of a mixture of operations; the code of a single operation is its index in `OPERATIONS`."""


@dataclass(frozen=True)
class PairPlan:
    """The pairs (tail, head) of a network, ordered by head; each is one product."""

    first: tuple[int, ...]  # the pairs into node i are first[i] to first[i + 1]; one entry more than there are nodes
    tails: tuple[int, ...]  # per pair, the node that is read
    codes: tuple[int, ...]  # per pair, the code of an operation, or `MIXED`
    mixing: tuple[tuple[float, ...], ...] | None  # per pair, the count of each operation; None in a relaxed network

    def operations(self, pair: int) -> tuple[str, ...]:
        """Return the operations of a pair of a discrete network."""
        assert self.mixing is not None
        return tuple(name for name, count in zip(OPERATIONS, self.mixing[pair]) if count)

    @cached_property
    def by_tail(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each node, the pairs that read it, as (number, head), ordered by head."""
        heads: list[list[tuple[int, int]]] = [[] for _ in self.first[1:]]
        for head, (first, last) in enumerate(zip(self.first, self.first[1:])):
            for pair in range(first, last):
                heads[self.tails[pair]].append((pair, head))
        return tuple(map(tuple, heads))


@dataclass(frozen=True)
class CellPlan:
    """Plan of a cell; its states are ordered in levels, and each level reads earlier levels alone."""

    pairs: PairPlan  # of its states
    nodes: tuple[int, ...]  # per state but s_0, the number of the node
    level_start: tuple[int, ...]  # first state of each level, and the number of states
    scale: tuple[float, ...]  # per state, the scale of the sum of its edges
    output: tuple[float, ...]  # per state, its weight in h_t
    highway: bool  # edges are gated, and products have twice the hidden size
    gated_carry: bool  # with a state gate, s_0 carries ĥ_{t-1} instead of h_{t-1}


@dataclass(frozen=True)
class GatePlan:
    """Plan of an inter-cell gate."""

    entries: tuple[int, ...]  # per node, the code of the operation on its entry, or `MIXED`
    pairs: PairPlan  # of its nodes
    form: str  # one of `GATE_FORMS`


def pair_plan(heads: Sequence[Iterable[tuple[str, int]]]) -> PairPlan:
    """Return the pairs of a discrete network from each node's edges (operation, tail)."""
    first, tails, codes = [0], [], []  # type: tuple[list[int], list[int], list[int]]
    mixing: list[tuple[float, ...]] = []
    for edges in heads:
        operations: defaultdict[int, list[str]] = defaultdict(list)  # by tail
        for operation, tail in edges:
            operations[tail].append(operation)
        for tail, names in operations.items():
            tails.append(tail)
            codes.append(OPERATIONS.index(names[0]) if len(names) == 1 else MIXED)
            mixing.append(tuple(float(names.count(name)) for name in OPERATIONS))
        first.append(len(tails))
    return PairPlan(tuple(first), tuple(tails), tuple(codes), tuple(mixing))


def relaxed_pair_plan(nodes: int) -> PairPlan:
    """Return all pairs of a relaxed network with this number of nodes, including the first."""
    first = tuple(head * (head - 1) // 2 for head in range(nodes + 1))
    tails = tuple(tail for head in range(nodes) for tail in range(head))
    return PairPlan(first, tails, (MIXED,) * len(tails), None)


def cell_plan(genotype: Genotype) -> CellPlan:
    """Return the plan of a genotype's cell without its dead nodes."""
    return _cell_plan(genotype, genotype.combine, genotype.highway, genotype.carry)


@lru_cache(maxsize=1024)
def _cell_plan(genotype: Genotype, combine: str, highway: bool, carry: str) -> CellPlan:
    # genotypes of equal structure are equal, so the options are arguments of their own for the cache
    level = {0: 0}
    for number in genotype.live_nodes:
        level[number] = 1 + max(level[edge.tail] for edge in genotype.nodes[number - 1])
    nodes = sorted(level, key=lambda number: (level[number], number))
    place = {number: index for index, number in enumerate(nodes)}
    edges = [genotype.nodes[number - 1] if number else () for number in nodes]
    return CellPlan(
        pairs=pair_plan([[(edge.op, place[edge.tail]) for edge in into] for into in edges]),
        nodes=tuple(nodes[1:]),
        level_start=tuple(bisect_left([level[number] for number in nodes], n) for n in range(max(level.values()) + 2)),
        scale=tuple(1 / len(into) if combine == "mean" and into else 1.0 for into in edges),
        output=tuple(genotype.output.count(number) / len(genotype.output) for number in nodes),
        highway=highway,
        gated_carry=carry == "gated",
    )


@lru_cache(maxsize=1024)
def relaxed_cell_plan(nodes: int, carry: str) -> CellPlan:
    """Return the plan of a supernet's cell."""
    return CellPlan(
        pairs=relaxed_pair_plan(nodes + 1),
        nodes=tuple(range(1, nodes + 1)),
        level_start=tuple(range(nodes + 2)),
        scale=(1.0,) * (nodes + 1),
        output=(0.0,) + (1 / nodes,) * nodes,
        highway=True,
        gated_carry=carry == "gated",
    )


@lru_cache(maxsize=1024)
def gate_plan(nodes: tuple[GateNode, ...], form: str) -> GatePlan:
    """Return the plan of an inter-cell gate."""
    pairs = pair_plan([[(edge.op, edge.tail - 1) for edge in node.edges] for node in nodes])
    return GatePlan(tuple(OPERATIONS.index(node.entry) for node in nodes), pairs, form)


@lru_cache(maxsize=1024)
def relaxed_gate_plan(history: int, form: str, links: bool = True) -> GatePlan:
    """Return the plan of a relaxed inter-cell gate, with or without edges between its nodes."""
    pairs = relaxed_pair_plan(history) if links else PairPlan((0,) * (history + 1), (), (), None)
    return GatePlan((MIXED,) * history, pairs, form)
