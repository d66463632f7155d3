"""Pictures of a genotype: SVG, PNG, DOT; the same shapes in the same places, whatever the format."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from flair_nas.drawing.graph import Drawable, Graph, Layout, Vertex, layout

# near those of Okabe and Ito (2008); the colour-blind of each kind can tell them apart, which is tested
COLOURS = {"tanh": "#0072B2", "relu": "#B84E00", "sigmoid": "#00C08B", "identity": "#E69F00"}
ON = {"tanh": "#ffffff", "relu": "#ffffff", "sigmoid": "#000000", "identity": "#000000"}
LIGHT = {"paper": "#ffffff", "ink": "#222222", "soft": "#5c5c5c", "box": "#f2f2f2", "faint": "#d8d8d8"}
DARK = {"paper": "#1b1b1b", "ink": "#eeeeee", "soft": "#c0c0c0", "box": "#2e2e2e", "faint": "#4a4a4a"}

_PILL, _BOX, _LINE, _GAP, _COLUMN, _MARGIN, _HEAD = 60, 56, 24, 16, 52, 18, 30


@dataclass(frozen=True)
class Shape:
    """A rectangle, a path or a text, with colours by their names in `LIGHT` or as they are.

    Args:
        kind: rect, path or text.
        at: x, y, width and height of a rectangle; x and y of a text's middle; the points of a path, one, and three for
            each curve.
        text: of a text.
        fill: colour of its inside, or of a text.
        line: colour of its outline, or of a path.
        style: ``bold``, ``start`` (of a text, that begins at its place), ``dashed``, ``double``.
        data: what it stands for.
    """

    kind: str
    at: tuple[float, ...]
    text: str = ""
    fill: str = "none"
    line: str = "none"
    style: str = ""
    data: Mapping[str, str] = field(default_factory=dict)


def shapes_of(genotype: Drawable) -> tuple[list[Shape], float, float]:
    """All shapes of a picture, and its width and height.

    Args:
        genotype: any one.
    """
    shapes: list[Shape] = []
    top, width = float(_MARGIN), 0.0
    for graph in genotype.graphs():
        found, right, bottom = _placed(graph, layout(graph), top)
        shapes += found
        top, width = bottom + _MARGIN, max(width, right)
    return shapes, width + _MARGIN, top


def _height(vertex: Vertex) -> int:
    return _LINE * max(1, len(vertex.reads))


def _placed(graph: Graph, found: Layout, top: float) -> tuple[list[Shape], float, float]:
    """The shapes of one graph, its right border and its bottom."""
    vertices = {vertex.key: vertex for vertex in graph.vertices}
    heights = [[_height(vertices[n]) if n in vertices else _LINE / 2 for n in column] for column in found.columns]
    tallest = max(sum(column) + _GAP * (len(column) - 1) for column in heights)
    left, right = dict[str, tuple[float, float]](), dict[str, tuple[float, float]]()  # where edges come in and go out
    shapes, x = list[Shape](), float(_MARGIN)
    for column, tall in zip(found.columns, heights):
        y = top + _HEAD + (tallest - sum(tall) - _GAP * (len(column) - 1)) / 2
        wide = max((_PILL * bool(vertices[n].reads) + _BOX if n in vertices else 0) for n in column)
        for name, height in zip(column, tall):
            left[name], right[name] = (x, y + height / 2), (x + wide, y + height / 2)
            if name in vertices:
                shapes += _boxes(vertices[name], x, y, wide)
                left[name] = (x, y)
            y += height + _GAP
        x += wide + _COLUMN
    width = max(x - _COLUMN, _MARGIN + 7.0 * (len(graph.title) + len(graph.result) + 4))
    paths = []
    for (head, number), route in found.routes.items():
        vertex = vertices[head]
        end = (left[head][0], left[head][1] + _LINE * (number + 0.5))
        stops = [right[route[0]]]
        for name in route[1:-1]:
            stops += [left[name], right[name]]
        data = {"head": head, "tail": route[0], "op": vertex.reads[number][0]}
        colour = "faint" if vertex.dead else "soft"
        paths.append(Shape("path", _curve([*stops, end]), line=colour, data=data))
    title = [
        Shape("text", (_MARGIN, top + 8), f"{graph.title}:  {graph.result}", "ink", style="bold start"),
    ]
    return [*title, *paths, *shapes], width, top + _HEAD + tallest


def _curve(stops: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    """From stop to stop, level at each."""
    points = [*stops[0]]
    for (x0, y0), (x1, y1) in itertools.pairwise(stops):
        middle = (x0 + x1) / 2
        points += [middle, y0, middle, y1, x1, y1]
    return tuple(points)


def _boxes(vertex: Vertex, x: float, y: float, wide: float) -> list[Shape]:
    """A vertex: the operation of each edge into it, then its name."""
    shapes, begin = [], x + wide - _BOX
    for number, (op, _) in enumerate(vertex.reads):
        at = (begin - _PILL, y + _LINE * number, _PILL, _LINE)
        fill, ink = ("faint", "soft") if vertex.dead else (COLOURS[op], ON[op])
        shapes.append(Shape("rect", at, fill=fill, line="paper"))
        shapes.append(Shape("text", (at[0] + _PILL / 2, at[1] + _LINE / 2), op, ink, style="bold"))
    style = "double" if vertex.output else "dashed" if vertex.dead else ""
    data = {"vertex": vertex.key, "output": str(vertex.output).lower()}
    colour = "soft" if vertex.dead else "ink"
    height = _height(vertex)
    shapes.append(Shape("rect", (begin, y, _BOX, height), fill="box", line=colour, style=style, data=data))
    shapes.append(Shape("text", (begin + _BOX / 2, y + height / 2), vertex.label, colour))
    return shapes


# --- formats ---


def to_svg(genotype: Drawable) -> str:
    """The picture as SVG, light or dark as its reader is.

    Args:
        genotype: any one.
    """
    shapes, width, height = shapes_of(genotype)
    rules = [f".{name}{{fill:{colour}}}.{name}-line{{stroke:{colour}}}" for name, colour in LIGHT.items()]
    dark = [f".{name}{{fill:{colour}}}.{name}-line{{stroke:{colour}}}" for name, colour in DARK.items()]
    style = f"{''.join(rules)}@media(prefers-color-scheme:dark){{{''.join(dark)}}}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="Helvetica, Arial, sans-serif" font-size="13" role="img">',
        f"<title>{escape(genotype.one_line())}</title><style>{style}</style>",
        f'<rect class="paper" width="{width:g}" height="{height:g}"/>',
        *map(_svg_of, shapes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _svg_of(shape: Shape) -> str:
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
    x, y, w, h = shape.at
    dash = ' stroke-dasharray="4 3"' if "dashed" in shape.style else ""
    place = f'x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="5"'
    return f'<rect {place} stroke-width="{3 if "double" in shape.style else 1}"{dash} {paint}{data}/>'


def to_png(genotype: Drawable, scale: float = 2.0, dark: bool = False) -> bytes:
    """The picture as PNG.

    Args:
        genotype: any one.
        scale: pixels for each unit of the SVG.
        dark: light on dark.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch, PathPatch
    from matplotlib.path import Path

    shapes, width, height = shapes_of(genotype)
    names = DARK if dark else LIGHT
    figure = Figure(figsize=(width / 72, height / 72), dpi=72 * scale, facecolor=names["paper"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    for shape in shapes:
        fill, line = (names.get(colour, colour) for colour in (shape.fill, shape.line))
        if shape.kind == "text":
            x, y = shape.at
            side = "left" if "start" in shape.style else "center"
            weight = "bold" if "bold" in shape.style else "normal"
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
    FigureCanvasAgg(figure).print_png(stream)
    return stream.getvalue()


def to_dot(genotype: Drawable) -> str:
    """The graphs in Graphviz's language.

    Args:
        genotype: any one.
    """
    lines = ["digraph genotype {", "  rankdir=LR; node [shape=box, style=rounded];"]
    for number, graph in enumerate(genotype.graphs()):
        lines.append(f'  subgraph cluster_{number} {{ label="{graph.title}: {graph.result}";')
        for vertex in graph.vertices:
            marks = ", peripheries=2" * vertex.output + ", color=grey, fontcolor=grey" * vertex.dead
            lines.append(f'    "{number}{vertex.key}" [label="{vertex.label}"{marks}];')
            for op, tail in vertex.reads:
                colour = "grey" if vertex.dead else COLOURS[op]
                lines.append(f'    "{number}{tail}" -> "{number}{vertex.key}" [label="{op}", color="{colour}"];')
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"
