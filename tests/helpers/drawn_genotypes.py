"""Hypothesis strategies that draw genotypes."""

from __future__ import annotations

from collections import namedtuple

import hypothesis.strategies as st

from flair_nas.genotype import Edge, Gate, GateNode, Genotype

KEPT = ("tanh", "relu", "sigmoid", "identity")
DartsTuple = namedtuple("Genotype", "recurrent concat")  # its repr is what the DARTS code prints into logs


def edge_lists(tails: range, least: int) -> st.SearchStrategy[tuple[Edge, ...]]:
    """Distinct edges; several may join the same pair of nodes, with different operations."""
    if not tails:
        return st.just(())
    edge = st.builds(Edge, st.sampled_from(KEPT), st.sampled_from(tails))
    return st.lists(edge, min_size=least, max_size=5, unique=True).map(tuple)


def gates() -> st.SearchStrategy[Gate]:
    def of_history(m: int) -> st.SearchStrategy[Gate]:
        nodes = [st.builds(GateNode, st.sampled_from(KEPT), edge_lists(range(1, i), 0)) for i in range(1, m + 1)]
        return st.tuples(*nodes).map(Gate)

    return st.integers(1, 4).flatmap(of_history)


PLAIN_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def genotypes(draw: st.DrawFn, gated: bool = True, version: int = 3) -> Genotype:
    """Draw a genotype that files of this version can hold."""
    nodes = tuple(draw(edge_lists(range(i), 1)) for i in range(1, draw(st.integers(int(version < 3), 7)) + 1))
    numbers = st.sampled_from(range(1, len(nodes) + 1) if nodes else [0])
    recurrence = draw(st.sampled_from(["full"] * 2 + ["elementwise"] * (version > 2)))
    gate = st.none() | gates() if gated and recurrence == "full" else st.none()
    return Genotype(
        nodes=nodes,
        output=tuple(draw(st.lists(numbers, unique=True))),  # in any order; empty stands for all
        state_gate=draw(gate),
        input_gate=draw(gate),
        highway=recurrence == "elementwise" or draw(st.booleans()),
        combine=draw(st.sampled_from(["sum", "mean"])),
        gate=draw(st.sampled_from(["product", "residual"])),
        carry=draw(st.sampled_from(["ungated", "gated"])),
        recurrence=recurrence,
        origin=draw(st.dictionaries(st.text(), PLAIN_JSON, max_size=3)),
    )
