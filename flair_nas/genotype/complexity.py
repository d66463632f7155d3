"""Depth and work of a genotype, and the distance of two."""

from __future__ import annotations

from flair_nas.genotype import Genotype


def edge_depth(genotype: Genotype) -> int:
    """Return the number of edges on the longest path from s_0 to an output node."""
    depth = [0]
    for edges in genotype.nodes:
        depth.append(1 + max(depth[edge.tail] for edge in edges))
    return max(depth[number] for number in genotype.output)


def multiply_adds(genotype: Genotype, input_size: int, hidden_size: int) -> int:
    """Return the number of multiplications, each with its addition, in the products of a token in one direction."""
    columns = hidden_size * (2 if genotype.highway else 1)
    tails = sum(len({edge.tail for edge in genotype.nodes[number - 1]}) for number in genotype.live_nodes)
    states = tails + (genotype.recurrence == "full")  # that enter a matrix product
    total = (input_size + states * hidden_size) * columns
    for gate, entry_size, size in (
        (genotype.state_gate, input_size, hidden_size),
        (genotype.input_gate, hidden_size, input_size),
    ):
        if gate is not None:
            edges = sum(len(node.edges) for node in gate.nodes)
            total += gate.history * entry_size * size + edges * size**2
    return total


def edit_distance(a: Genotype, b: Genotype) -> int:
    """Return the number of edges, gate entries and output nodes to change, add or remove to turn one into the other.

    Nodes keep their numbers: two cells that differ by a permutation of nodes have a distance.
    """
    parts_a, parts_b = _parts(a), _parts(b)
    total = 0
    for place in parts_a.keys() | parts_b.keys():
        one, other = parts_a.get(place, set()), parts_b.get(place, set())
        total += max(len(one - other), len(other - one))
    return total


def _parts(genotype: Genotype) -> dict[tuple[str, int], set[object]]:
    """Return the parts of each place: output nodes, edges into a node, entry and edges of a gate's node."""
    parts: dict[tuple[str, int], set[object]] = {("output", 0): set(genotype.output)}
    parts |= {("cell", number): set(edges) for number, edges in enumerate(genotype.nodes)}
    for name, gate in (("state", genotype.state_gate), ("input", genotype.input_gate)):
        for number, node in enumerate(gate.nodes if gate else ()):
            parts[name, number] = {node.entry, *node.edges}
    return parts
