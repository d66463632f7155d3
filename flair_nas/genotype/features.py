"""Features of a genotype, which predict its cost: mostly shares of its edges and nodes, so that sizes compare."""

from __future__ import annotations

import math
from collections import defaultdict

from flair_nas.genotype.architecture import Genotype
from flair_nas.genotype.operations import GATE_FORMS, OPERATIONS

_OPS = OPERATIONS[1:]  # without drop
_GATES = [f"{gate}, {form}" for gate in ("state gate", "input gate") for form in GATE_FORMS]
FEATURES = (
    *_OPS,
    *(f"{op} after {before}" for before in ("s0", *_OPS) for op in _OPS),
    *(f"{op} first" for op in _OPS),
    *("deepest node", "mean depth", "log of nodes", "edges a node", "nodes that no other reads", "output nodes"),
    *("elementwise", *(f"{op}, elementwise" for op in _OPS)),
    *("no highway", *_GATES),
    "constant",
)
"""Names of the features."""


def features(genotype: Genotype) -> list[float]:
    """Return the features of a genotype, as `FEATURES` names them.

    Most are shares, of edges or of nodes. Depths are divided by the number of nodes.

    Example:
        >>> from flair_nas import Genotype
        >>> from flair_nas.genotype.features import FEATURES, features
        >>> features(Genotype.parse("relu0-tanh1"))[FEATURES.index("tanh after relu")]
        0.5
    """
    found, nodes = defaultdict[str, float](float), genotype.nodes
    count, edge_count = max(1, len(nodes)), sum(map(len, nodes))
    depths = [0]
    for edges in nodes:
        for edge in edges:
            found[edge.op] += 1 / edge_count
            tails = [tail.op for tail in nodes[edge.tail - 1]] if edge.tail else ["s0"]
            for before in tails:
                found[f"{edge.op} after {before}"] += 1 / edge_count / len(tails)
        depths.append(1 + max(depths[edge.tail] for edge in edges))
    for edge in nodes[0] if nodes else ():
        found[f"{edge.op} first"] += 1 / len(nodes[0])
    read = {edge.tail for edges in nodes for edge in edges}
    found["deepest node"], found["mean depth"] = max(depths) / count, sum(depths) / count**2
    found["log of nodes"], found["edges a node"] = math.log(count), edge_count / count
    found["nodes that no other reads"] = sum(number not in read for number in range(1, len(nodes) + 1)) / count
    found["output nodes"] = len(genotype.output) / count
    if genotype.recurrence == "elementwise":
        found |= {"elementwise": 1.0, **{f"{op}, elementwise": found[op] for op in _OPS}}
    found["no highway"] = float(not genotype.highway)
    for name, gate in (("state gate", genotype.state_gate), ("input gate", genotype.input_gate)):
        found[f"{name}, {genotype.gate}"] = float(gate is not None)
    found["constant"] = 1.0
    return [found[name] for name in FEATURES]
