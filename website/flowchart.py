"""Flowcharts: fences of Mermaid become pictures while the site is built, without a script."""

from __future__ import annotations

import html
import itertools
import re
from graphlib import TopologicalSorter

from flair_nas.genotype.graph import Graph, Vertex, layout

_HEIGHT, _ROW, _GAP = 30, 72, 22  # of a box; from row to row; between boxes


def to_svg(source: str) -> str:
    """Draw a flowchart from top to bottom; subgraphs are not framed.

    Raises:
        ValueError: a line that is no chain such as ``a --> b & c --> d``.
    """
    reads: dict[str, list[str]] = {}
    for line in source.strip().splitlines():
        if re.match(r"\s*(flowchart|subgraph|end\b)", line):
            continue
        groups = [[name.strip() for name in group.split("&")] for group in line.split("-->")]
        if len(groups) < 2 or not all(re.fullmatch(r"\w+", name) for group in groups for name in group):
            raise ValueError(f"no chain of a flowchart: {line}")
        for tails, heads in itertools.pairwise(groups):
            for tail, head in itertools.product(tails, heads):
                reads.setdefault(tail, [])
                reads.setdefault(head, []).append(tail)
    order = TopologicalSorter(reads).static_order()
    vertices = tuple(Vertex(name, name, tuple(("", tail) for tail in reads[name])) for name in order)
    rows, routes = layout(Graph("", "", vertices))
    widths = {name: 20 + 8.5 * len(name) if name in reads else 6.0 for row in rows for name in row}
    total = max(sum(widths[name] + _GAP for name in row) for row in rows)
    middles = {}
    for number, row in enumerate(rows):
        x = (total - sum(widths[name] + _GAP for name in row)) / 2
        for name in row:
            middles[name] = (x + (widths[name] + _GAP) / 2, number * _ROW + _HEIGHT / 2 + 1)
            x += widths[name] + _GAP
    paths = [_draw_route([middles[name] for name in route]) for route in routes.values()]
    boxes = [_draw_box(name, *middles[name], widths[name]) for name in reads]
    height = (len(rows) - 1) * _ROW + _HEIGHT + 2
    arrow = (
        '<marker id="arrow" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto"><path d="M1,1 L7,4 L1,7"/>'
    )
    return (
        f'<div class="flowchart"><svg viewBox="0 0 {total:.0f} {height}" width="{total:.0f}" height="{height}" '
        f'role="img" aria-label="flowchart"><defs>{arrow}</marker></defs>{"".join(paths)}{"".join(boxes)}</svg></div>'
    )


def _draw_route(points: list[tuple[float, float]]) -> str:
    """Draw an arrow from the bottom of the first point's box, through the others, to the top of the last one's."""
    (x, y), *others = points
    last = len(others) - 1
    path, y = f"M{x:.1f},{y + _HEIGHT / 2:.1f}", y + _HEIGHT / 2
    for number, (next_x, middle) in enumerate(others):
        next_y = middle - _HEIGHT / 2 - 2 * (number == last)
        path += f" C{x:.1f},{(y + next_y) / 2:.1f} {next_x:.1f},{(y + next_y) / 2:.1f} {next_x:.1f},{next_y:.1f}"
        x, y = next_x, next_y
        if number != last:
            y += _HEIGHT
            path += f" L{x:.1f},{y:.1f}"
    return f'<path d="{path}" marker-end="url(#arrow)"/>'


def _draw_box(name: str, x: float, y: float, width: float) -> str:
    return (
        f'<rect x="{x - width / 2:.1f}" y="{y - _HEIGHT / 2:.1f}" width="{width:.1f}" height="{_HEIGHT}" rx="4"/>'
        f'<text x="{x:.1f}" y="{y + 5:.1f}">{html.escape(name)}</text>'
    )
