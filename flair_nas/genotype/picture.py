"""Pictures of a genotype as SVG, PNG and DOT; SVG and PNG have the same shapes in the same places."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from flair_nas.genotype.graph import Drawable, Graph, Routes, Vertex, layout
from flair_nas.genotype.operations import OPERATION_TABLE

Point = tuple[float, float]

LIGHT = {"paper": "#ffffff", "ink": "#222222", "soft": "#5c5c5c", "box": "#f2f2f2", "faint": "#d8d8d8"}
DARK = {"paper": "#1b1b1b", "ink": "#eeeeee", "soft": "#c0c0c0", "box": "#2e2e2e", "faint": "#4a4a4a"}

_OP_WIDTH, _BOX_WIDTH, _ROW_HEIGHT, _ROW_GAP, _COLUMN_GAP, _MARGIN, _TITLE_HEIGHT = 60, 56, 24, 16, 52, 18, 30


@dataclass(frozen=True)
class Shape:
    """A rectangle, a path or a text; colours are names in `LIGHT`, or #rrggbb.

    Its place `at` is x, y, width and height of a rectangle; x and y of a text's middle; the first point of a path, then
    three points for each Bézier curve.
    """

    kind: str  # rect, path or text
    at: tuple[float, ...]
    text: str = ""
    fill: str = "none"
    line: str = "none"
    style: str = ""  # words of bold, start (a text that begins at its place), dashed, double
    data: Mapping[str, str] = field(default_factory=dict)  # attributes of the SVG element


def place_shapes(genotype: Drawable) -> tuple[list[Shape], float, float]:
    """Return all shapes of a picture, its width and its height."""
    shapes: list[Shape] = []
    top, width = float(_MARGIN), 0.0
    for graph in genotype.graphs():
        graph_shapes, right, bottom = _place_graph(graph, top)
        shapes += graph_shapes
        top, width = bottom + _MARGIN, max(width, right)
    return shapes, width + _MARGIN, top


def _height(vertex: Vertex) -> int:
    return _ROW_HEIGHT * max(1, len(vertex.reads))


def _place_graph(graph: Graph, top: float) -> tuple[list[Shape], float, float]:
    """Return the shapes of a graph, its right border and its bottom."""
    columns, routes = layout(graph)
    vertices = {vertex.key: vertex for vertex in graph.vertices}
    heights = [[_height(vertices[n]) if n in vertices else _ROW_HEIGHT / 2 for n in column] for column in columns]
    max_height = max(sum(column) + _ROW_GAP * (len(column) - 1) for column in heights)
    entries, exits = dict[str, Point](), dict[str, Point]()  # ends and starts of edges
    boxes, x = list[Shape](), float(_MARGIN)
    for column, column_heights in zip(columns, heights):
        y = top + _TITLE_HEIGHT + (max_height - sum(column_heights) - _ROW_GAP * (len(column) - 1)) / 2
        width = max((_OP_WIDTH * bool(vertices[n].reads) + _BOX_WIDTH if n in vertices else 0) for n in column)
        for name, height in zip(column, column_heights):
            entries[name], exits[name] = (x, y + height / 2), (x + width, y + height / 2)
            if name in vertices:
                boxes += _boxes(vertices[name], x + width - _BOX_WIDTH, y)
                entries[name] = (x, y)
            y += height + _ROW_GAP
        x += width + _COLUMN_GAP
    title = f"{graph.title}:  {graph.result}"
    right = max(x - _COLUMN_GAP, _MARGIN + 7.0 * (len(title) + 1))
    heading = Shape("text", (_MARGIN, top + 8), title, "ink", style="bold start")
    return [heading, *_edges(vertices, routes, entries, exits), *boxes], right, top + _TITLE_HEIGHT + max_height


def _edges(
    vertices: Mapping[str, Vertex], routes: Routes, entries: Mapping[str, Point], exits: Mapping[str, Point]
) -> list[Shape]:
    """Return a curve for each edge, through the columns between tail and head."""
    paths = []
    for (head, number), route in routes.items():
        x, y = entries[head]
        points = [exits[route[0]]]
        for name in route[1:-1]:
            points += [entries[name], exits[name]]
        points.append((x, y + _ROW_HEIGHT * (number + 0.5)))
        data = {"head": head, "tail": route[0], "op": vertices[head].reads[number][0]}
        paths.append(Shape("path", _curve(points), line="faint" if vertices[head].dead else "soft", data=data))
    return paths


def _curve(points: Sequence[Point]) -> tuple[float, ...]:
    """Return a curve through points, horizontal at each."""
    curve = [*points[0]]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        middle = (x0 + x1) / 2
        curve += [middle, y0, middle, y1, x1, y1]
    return tuple(curve)


def _boxes(vertex: Vertex, x: float, y: float) -> list[Shape]:
    """Return the boxes of a vertex: the operation of each edge into it, to the left of x, then its label."""
    shapes = []
    for number, (op, _) in enumerate(vertex.reads):
        at = (x - _OP_WIDTH, y + _ROW_HEIGHT * number, _OP_WIDTH, _ROW_HEIGHT)
        colour = OPERATION_TABLE[op].colour
        fill, ink = ("faint", "soft") if vertex.dead else (colour, letter_colour(colour))
        shapes.append(Shape("rect", at, fill=fill, line="paper"))
        shapes.append(Shape("text", (at[0] + _OP_WIDTH / 2, at[1] + _ROW_HEIGHT / 2), op, ink, style="bold"))
    style = "double" if vertex.output else "dashed" if vertex.dead else ""
    data = {"vertex": vertex.key, "output": str(vertex.output).lower()}
    colour = "soft" if vertex.dead else "ink"
    height = _height(vertex)
    shapes.append(Shape("rect", (x, y, _BOX_WIDTH, height), fill="box", line=colour, style=style, data=data))
    shapes.append(Shape("text", (x + _BOX_WIDTH / 2, y + height / 2), vertex.label, colour))
    return shapes


def letter_colour(colour: str) -> str:
    """Return black or white, whichever is easier to read on a colour, #rrggbb."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 128 else "#000000"


# --- formats ---


def to_svg(genotype: Drawable) -> str:
    """Return the picture as SVG, light or dark as the reader's system is."""
    shapes, width, height = place_shapes(genotype)
    light, dark = (
        "".join(f".{name}{{fill:{colour}}}.{name}-line{{stroke:{colour}}}" for name, colour in names.items())
        for names in (LIGHT, DARK)
    )
    style = f"{light}@media(prefers-color-scheme:dark){{{dark}}}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="Helvetica, Arial, sans-serif" font-size="13" role="img">',
        f"<title>{escape(genotype.one_line())}</title><style>{style}</style>",
        f'<rect class="paper" width="{width:g}" height="{height:g}"/>',
        *map(_svg_element, shapes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _svg_element(shape: Shape) -> str:
    data = "".join(f' data-{name}="{escape(value)}"' for name, value in shape.data.items())
    fill = f'class="{shape.fill}' if shape.fill in LIGHT else f'fill="{shape.fill}" class="'
    line = f" {shape.line}-line" if shape.line in LIGHT else ""
    paint = f'{fill}{line}"'.replace('class=""', "").strip()
    if shape.kind == "text":
        x, y = shape.at
        anchor = "start" if "start" in shape.style else "middle"
        weight = ' font-weight="bold"' if "bold" in shape.style else ""
        place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}" dominant-baseline="central"'
        return f"<text {place}{weight} {paint}>{escape(shape.text)}</text>"
    if shape.kind == "path":
        numbers = [f"{value:g}" for value in shape.at]
        return f'<path d="M{" ".join(numbers[:2])} C{" ".join(numbers[2:])}" stroke-width="1.5" {paint}{data}/>'
    x, y, width, height = shape.at
    dash = ' stroke-dasharray="4 3"' if "dashed" in shape.style else ""
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"'
    return f'<rect {place} stroke-width="{3 if "double" in shape.style else 1}"{dash} {paint}{data}/>'


def to_png(genotype: Drawable, dark: bool = False) -> bytes:
    """Return the picture as PNG, two pixels for each unit of the SVG; light on dark with `dark`."""
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch, PathPatch
    from matplotlib.path import Path

    shapes, width, height = place_shapes(genotype)
    names = DARK if dark else LIGHT
    figure = Figure(figsize=(width / 72, height / 72), dpi=144, facecolor=names["paper"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    for shape in shapes:
        fill, line = (names.get(colour, colour) for colour in (shape.fill, shape.line))
        if shape.kind == "text":
            side = "left" if "start" in shape.style else "center"
            weight = "bold" if "bold" in shape.style else "normal"
            x, y = shape.at
            axes.text(x, y, shape.text, color=fill, fontsize=10, ha=side, va="center", weight=weight, zorder=3)
        elif shape.kind == "path":
            points = list(zip(shape.at[::2], shape.at[1::2]))
            path = Path(points, [Path.MOVETO, *[Path.CURVE4] * (len(points) - 1)])
            axes.add_patch(PathPatch(path, fill=False, edgecolor=line, linewidth=1.2))
        else:
            x, y, w, h = shape.at
            rounded = FancyBboxPatch(
                (x, y), w, h, boxstyle="round,pad=0,rounding_size=5", facecolor=fill, edgecolor=line,
                linewidth=2.4 if "double" in shape.style else 0.8, linestyle="--" if "dashed" in shape.style else "-",
                zorder=2,
            )  # fmt: skip
            axes.add_patch(rounded)
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()


def to_dot(genotype: Drawable) -> str:
    """Return the graphs in Graphviz's language."""
    lines = ["digraph genotype {", "  rankdir=LR; node [shape=box, style=rounded];"]
    for number, graph in enumerate(genotype.graphs()):
        lines.append(f'  subgraph cluster_{number} {{ label="{graph.title}: {graph.result}";')
        for vertex in graph.vertices:
            marks = ", peripheries=2" * vertex.output + ", color=grey, fontcolor=grey" * vertex.dead
            lines.append(f'    "{number}{vertex.key}" [label="{vertex.label}"{marks}];')
            for op, tail in vertex.reads:
                colour = "grey" if vertex.dead else OPERATION_TABLE[op].colour
                lines.append(f'    "{number}{tail}" -> "{number}{vertex.key}" [label="{op}", color="{colour}"];')
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"
