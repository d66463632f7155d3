"""Graphs to be drawn, one for the cell and one for each gate, and the layout of their vertices."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Vertex:
    """What is drawn as a box.

    Args:
        key: its name in the graph: ``s0`` to ``s8`` of a cell, ``v1`` and ``f1`` of a gate.
        label: what is written in it.
        reads: operation and key of each edge into it; none for what comes from outside.
        output: whether the result is a mean of it and others.
        dead: whether nothing depends on it.
    """

    key: str
    label: str
    reads: tuple[tuple[str, str], ...] = ()
    output: bool = False
    dead: bool = False


@dataclass(frozen=True)
class Graph:
    """A cell or a gate.

    Args:
        title: what it is.
        result: what comes out, as an equation.
        vertices: each after those that it reads.
    """

    title: str
    result: str
    vertices: tuple[Vertex, ...]


@dataclass(frozen=True)
class Layout:
    """Where a graph's vertices lie: in columns, by how far they are from what comes from outside.

    Args:
        columns: from top to bottom, the keys of vertices, and names of edges that only pass.
        routes: of each edge, by its head and its number among those of its head, what it goes through.
    """

    columns: tuple[tuple[str, ...], ...]
    routes: Mapping[tuple[str, int], tuple[str, ...]]


class Drawable(Protocol):
    """Something that is drawn as graphs: a `flair_nas.Genotype`."""

    def graphs(self) -> list[Graph]:
        """Return the graphs, the cell first."""

    def one_line(self) -> str:
        """Return its structure as text."""


def equations_of(graph: Graph) -> list[str]:
    """A graph as lines of text, one for each vertex that reads others, and its result.

    Args:
        graph: one of `Genotype.graphs`.
    """
    return [*(_equation(graph, vertex, {}) for vertex in graph.vertices if vertex.reads), graph.result]


def _equation(graph: Graph, vertex: Vertex, colours: Mapping[str, str]) -> str:
    labels, own = {vertex.key: vertex.label for vertex in graph.vertices}, {} if vertex.dead else colours
    terms = ", ".join(f"{_painted(op, own.get(op))}({labels[tail]})" for op, tail in vertex.reads)
    line = f"{vertex.label} = {terms}"
    return _painted(f"{line}  (dead)", colours.get("dead")) if vertex.dead else line


def _painted(text: str, colour: str | None) -> str:
    """Text as a terminal shows it in a colour, #rrggbb."""
    if colour is None:
        return text
    return f"\x1b[38;2;{';'.join(str(int(colour[place : place + 2], 16)) for place in (1, 3, 5))}m{text}\x1b[0m"


def text_of(genotype: Drawable, colours: Mapping[str, str] | None = None) -> str:
    """All graphs of a genotype as text: level by level, each further in than what it reads.

    Args:
        genotype: any one.
        colours: for a terminal: of operations, and of ``dead`` nodes, #rrggbb.
    """
    lines = []
    for graph in genotype.graphs():
        levels = levels_of(graph)
        vertices = sorted((v for v in graph.vertices if v.reads), key=lambda vertex: levels[vertex.key])  # stable
        lines += [f"{graph.title}:"]
        lines += ["  " * levels[vertex.key] + _equation(graph, vertex, colours or {}) for vertex in vertices]
        lines += [f"  {graph.result}"]
    return "\n".join(lines) + "\n"


def levels_of(graph: Graph) -> dict[str, int]:
    """How far each vertex is from what comes from outside.

    Args:
        graph: one of `Genotype.graphs`.
    """
    level: dict[str, int] = {}
    for vertex in graph.vertices:
        level[vertex.key] = 1 + max((level[tail] for _, tail in vertex.reads), default=-1)
    return level


# --- layout: levels, then an order in each that crosses few edges (Sugiyama, Tagawa and Toda, 1981) ---


def layout(graph: Graph, sweeps: int = 12) -> Layout:
    """Puts vertices into columns, and orders each so that few edges cross.

    Args:
        graph: one of `Genotype.graphs`.
        sweeps: how often columns are ordered by their neighbours.
    """
    level = levels_of(graph)
    columns: list[list[str]] = [[] for _ in range(1 + max(level.values()))]
    routes: dict[tuple[str, int], tuple[str, ...]] = {}
    for vertex in graph.vertices:
        columns[level[vertex.key]].append(vertex.key)
        for number, (_, tail) in enumerate(vertex.reads):
            between = range(level[tail] + 1, level[vertex.key])
            passing = [f"{tail}>{vertex.key}.{number}@{place}" for place in between]
            for place, name in zip(between, passing):
                columns[place].append(name)
            routes[vertex.key, number] = (tail, *passing, vertex.key)
    links = [pair for route in routes.values() for pair in itertools.pairwise(route)]
    best = [list(column) for column in columns]
    for sweep in range(sweeps):
        ahead = sweep % 2 == 0
        near: dict[str, list[str]] = {}
        for tail, head in links:
            near.setdefault(head if ahead else tail, []).append(tail if ahead else head)
        order = range(1, len(columns)) if ahead else range(len(columns) - 2, -1, -1)
        for number in order:
            rows = {name: index for index, name in enumerate(columns[number - 1 if ahead else number + 1])}
            means = {
                name: statistics.mean([rows[other] for other in near[name]]) if name in near else float(index)
                for index, name in enumerate(columns[number])
            }
            columns[number].sort(key=means.__getitem__)
        if _crossings(columns, links) < _crossings(best, links):
            best = [list(column) for column in columns]
    return Layout(tuple(map(tuple, best)), routes)


def _crossings(columns: Sequence[Sequence[str]], links: Sequence[tuple[str, str]]) -> int:
    place = {name: (number, index) for number, column in enumerate(columns) for index, name in enumerate(column)}
    ends = [(*place[tail], place[head][1]) for tail, head in links]
    return sum(
        one[0] == other[0] and (one[1] - other[1]) * (one[2] - other[2]) < 0
        for one, other in itertools.combinations(ends, 2)
    )
