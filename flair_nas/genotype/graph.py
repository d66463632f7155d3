"""Graphs to draw, one for the cell and one for each gate, and the layout of their vertices."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from flair_nas.genotype.operations import OPERATION_TABLE


@dataclass(frozen=True)
class Vertex:
    """A box of a picture."""

    key: str  # ``s0`` to ``s8`` of a cell, ``v1`` and ``f1`` of a gate
    label: str
    reads: tuple[tuple[str, str], ...] = ()  # operation and key of each edge into it; empty for an input of the graph
    output: bool = False  # True if the result is a mean over it
    dead: bool = False  # True if no output depends on it


@dataclass(frozen=True)
class Graph:
    """A cell or a gate."""

    title: str
    result: str  # its output as an equation
    vertices: tuple[Vertex, ...]  # each after those that it reads


Routes = dict[tuple[str, int], tuple[str, ...]]
"""The names from tail to head for each edge, by its head and its number among the head's edges."""


class Drawable(Protocol):
    """An object with graphs: a `flair_nas.Genotype`."""

    def graphs(self) -> list[Graph]:
        """Return the graphs, the cell first."""

    def one_line(self) -> str:
        """Return its structure as text."""


def graph_equations(graph: Graph) -> list[str]:
    """Return a line for each vertex that reads others, and the result."""
    return [*(_equation(graph, vertex) for vertex in graph.vertices if vertex.reads), graph.result]


def _equation(graph: Graph, vertex: Vertex, coloured: bool = False) -> str:
    """Return the equation of a vertex, for a terminal in the colours of its operations; a dead one is grey."""
    labels = {vertex.key: vertex.label for vertex in graph.vertices}

    def paint(text: str, colour: str) -> str:
        numbers = ";".join(str(int(colour[place : place + 2], 16)) for place in (1, 3, 5))
        return f"\x1b[38;2;{numbers}m{text}\x1b[0m" if coloured else text

    def name(op: str) -> str:
        return op if vertex.dead else paint(op, OPERATION_TABLE[op].colour)

    line = f"{vertex.label} = {', '.join(f'{name(op)}({labels[tail]})' for op, tail in vertex.reads)}"
    return paint(f"{line}  (dead)", "#808080") if vertex.dead else line


def to_text(genotype: Drawable, coloured: bool = False) -> str:
    """Return all graphs as text, level by level; a vertex is indented further than those that it reads.

    With `coloured`, it has a terminal's codes for colours.
    """
    lines = []
    for graph in genotype.graphs():
        levels = _levels(graph)
        vertices = sorted((v for v in graph.vertices if v.reads), key=lambda vertex: levels[vertex.key])
        equations = ("  " * levels[vertex.key] + _equation(graph, vertex, coloured) for vertex in vertices)
        lines += [f"{graph.title}:", *equations, f"  {graph.result}"]
    return "\n".join(lines) + "\n"


def _levels(graph: Graph) -> dict[str, int]:
    """Return the longest distance of each vertex from an input."""
    levels: dict[str, int] = {}
    for vertex in graph.vertices:
        levels[vertex.key] = 1 + max((levels[tail] for _, tail in vertex.reads), default=-1)
    return levels


# --- layout: levels, then an order in each that crosses few edges (Sugiyama, Tagawa and Toda, 1981) ---


def layout(graph: Graph) -> tuple[list[list[str]], Routes]:
    """Arrange vertices in columns by their distance from the inputs, and order each so that few edges cross.

    Returns:
        The keys of vertices and the names of passing edges in each column, from top to bottom, and the routes.
    """
    levels = _levels(graph)
    columns: list[list[str]] = [[] for _ in range(1 + max(levels.values()))]
    routes: Routes = {}
    for vertex in graph.vertices:
        columns[levels[vertex.key]].append(vertex.key)
        for number, (_, tail) in enumerate(vertex.reads):
            between = range(levels[tail] + 1, levels[vertex.key])
            passing = [f"{tail}>{vertex.key}.{number}@{level}" for level in between]
            for level, name in zip(between, passing):
                columns[level].append(name)
            routes[vertex.key, number] = (tail, *passing, vertex.key)
    links = [pair for route in routes.values() for pair in itertools.pairwise(route)]
    best = [list(column) for column in columns]
    for sweep in range(12):  # forwards and backwards in turn
        _order_columns(columns, links, forwards=sweep % 2 == 0)
        if _crossings(columns, links) < _crossings(best, links):
            best = [list(column) for column in columns]
    return best, routes


def _order_columns(columns: list[list[str]], links: Sequence[tuple[str, str]], forwards: bool) -> None:
    """Order each column by the mean row of its neighbours in the column before it, or after it."""
    neighbours: dict[str, list[str]] = {}
    for tail, head in links:
        neighbours.setdefault(head if forwards else tail, []).append(tail if forwards else head)
    for number in range(1, len(columns)) if forwards else range(len(columns) - 2, -1, -1):
        rows = {name: row for row, name in enumerate(columns[number - 1 if forwards else number + 1])}
        means = {
            name: statistics.mean([rows[other] for other in neighbours[name]]) if name in neighbours else float(row)
            for row, name in enumerate(columns[number])
        }
        columns[number].sort(key=means.__getitem__)


def _crossings(columns: Sequence[Sequence[str]], links: Sequence[tuple[str, str]]) -> int:
    """Return the number of pairs of links that cross."""
    places = {name: (number, row) for number, column in enumerate(columns) for row, name in enumerate(column)}
    ends = [(*places[tail], places[head][1]) for tail, head in links]
    return sum(
        one[0] == other[0] and (one[1] - other[1]) * (one[2] - other[2]) < 0
        for one, other in itertools.combinations(ends, 2)
    )
