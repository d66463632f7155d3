"""How deep a genotype is, how much work, and how far two are apart."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from flair_nas.genotype import Gate, Genotype


def depth_of(genotype: Genotype) -> int:
    """The edges on the longest way from s_0 to an output node.

    Args:
        genotype: any one.
    """
    depth = [0]
    for edges in genotype.nodes:
        depth.append(1 + max(depth[edge.tail] for edge in edges))
    return max(depth[number] for number in genotype.output)


def multiply_adds(genotype: Genotype, input_size: int, hidden_size: int) -> int:
    """How many multiplications, each with its addition, the products of a token take, in one direction.

    Args:
        genotype: any one.
        input_size: D.
        hidden_size: H.
    """
    wide = hidden_size * (2 if genotype.highway else 1)
    tails = sum(len({edge.tail for edge in genotype.nodes[number - 1]}) for number in genotype.live_nodes)
    total = (input_size + hidden_size + tails * hidden_size) * wide
    for gate, entry, size in (
        (genotype.state_gate, input_size, hidden_size),
        (genotype.input_gate, hidden_size, input_size),
    ):
        if gate is not None:
            edges = sum(len(node.edges) for node in gate.nodes)
            total += gate.history * entry * size + edges * size**2
    return total


def edit_distance(a: Genotype, b: Genotype) -> int:
    """How many edges, entries of gates and output nodes are changed, put in or taken out, to make one of the other.

    Nodes keep their numbers: two cells that differ in these alone are not told to be the same.

    Args:
        a: a genotype.
        b: another one.
    """
    total = _steps(set(a.output), set(b.output))
    nodes = [(_cell(a), _cell(b))]
    nodes += [(_gate(a.state_gate), _gate(b.state_gate)), (_gate(a.input_gate), _gate(b.input_gate))]
    none: set[Any] = set()
    for one, other in nodes:
        total += sum(_steps(of_one, of_other) for of_one, of_other in zip_longest(one, other, fillvalue=none))
    return total


def _steps(one: set[Any], other: set[Any]) -> int:
    return max(len(one - other), len(other - one))


def _cell(genotype: Genotype) -> list[set[Any]]:
    return [set(edges) for edges in genotype.nodes]


def _gate(gate: Gate | None) -> list[set[Any]]:
    return [] if gate is None else [{node.entry, *node.edges} for node in gate.nodes]
