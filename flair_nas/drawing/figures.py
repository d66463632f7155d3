"""Figures as Plotly takes them: plain dictionaries of data, layout and frames. Nothing here imports Plotly."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple, TypeVar

from flair_nas.drawing.curves import COLOURS, Curve

Figure = dict[str, Any]
T = TypeVar("T")

_FEW = 40  # points of a curve that are also drawn as dots
_LEGEND = 400  # pixels of a row of the legend, above the plot
_NAMES = {"type": "category", "autorange": "reversed"}  # an axis of names, the first at the top


class Detail(NamedTuple):
    """The largest numbers of points in a curve and of epochs on a slider."""

    points: int
    epochs: int


class Point(NamedTuple):
    """A point of a metric and a time, and the text that shows on it."""

    time: float
    figure: float  # its metric
    text: str


class Heat(NamedTuple):
    """A heat map at one epoch: values [rows][columns], and row and column of each mark. A missing value is None."""

    values: Sequence[Sequence[float | None]]
    marks: Sequence[tuple[str, str]]


def thin(items: Sequence[T], limit: int) -> list[T]:
    """Return at most `limit` items, evenly spread, with the first and the last."""
    if len(items) <= limit:
        return list(items)
    return [items[round(place * (len(items) - 1) / (limit - 1))] for place in range(limit)]


def find_front(points: Sequence[Point], higher_is_better: bool) -> list[Point]:
    """Return the points that no other point beats in both time and metric, fastest first."""
    sign = 1 if higher_is_better else -1
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.time, -sign * point.figure)):
        if not front or sign * point.figure > sign * front[-1].figure:
            front.append(point)
    return front


def label(text: str) -> str:
    """Escape text for Plotly, which reads some HTML."""
    return escape(text, quote=False)


def _figure(data: Sequence[Figure], title: str, height: int, **layout: Any) -> Figure:
    return {"data": data, "layout": {"title": {"text": label(title)}, "height": height, **layout}}


def _axis(title: str) -> Figure:
    return {"title": {"text": label(title)}}


def draw_curves(
    curves: Sequence[Curve], title: str, x: str, y: str, detail: Detail, *, log: bool = False, at: Sequence[float] = ()
) -> Figure:
    """Draw curves, and a vertical line at each x of `at`."""
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers" if min(len(curve.xs), detail.points) <= _FEW else "lines",
            "name": label(curve.name),
            "x": thin(curve.xs, detail.points),
            "y": thin(curve.ys, detail.points),
            "line": {"color": curve.colour, "width": 2 if curve.named else 1, "dash": curve.dash},
            "opacity": 1 if curve.named else 0.45,
            "showlegend": curve.named,
            "fill": curve.fill,
        }
        for curve in curves
    ]
    names = [curve.name for curve in curves if curve.named]
    more = 19 * (sum(45 + 7 * len(name) for name in names) // _LEGEND) if len(names) > 1 else 0
    return _figure(
        data,
        title,
        330 + more,
        margin={"t": 62 + more},
        xaxis=_axis(x),
        yaxis=_axis(y) | {"type": "log" if log else "linear"},
        showlegend=len(names) > 1,
        shapes=[{"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "yref": "paper"} for place in at],
    )


def draw_seeds(rows: Mapping[str, Sequence[float]], title: str) -> Figure:
    """Draw each row: its seeds as points, their mean and standard deviation as a bar."""
    names = [label(name) for name in rows]
    seeds = {
        "x": [value for values in rows.values() for value in values],
        "y": [name for name, values in zip(names, rows.values()) for _ in values],
        "marker": {"color": COLOURS[-1], "size": 7, "opacity": 0.75},
        "hovertemplate": "%{y}<br>a seed: %{x:.5~g}<extra></extra>",
    }
    deviations = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in rows.values()]
    means = {
        "x": [statistics.mean(values) for values in rows.values()],
        "y": names,
        "error_x": {"type": "data", "array": deviations, "color": COLOURS[0], "thickness": 1.5, "width": 5},
        "marker": {"color": COLOURS[0], "size": 9, "symbol": "diamond"},
        "hovertemplate": "%{y}<br>mean: %{x:.5~g} ± %{error_x.array:.3~g}<extra></extra>",
    }
    data = [{"type": "scatter", "mode": "markers", **points} for points in (seeds, means)]
    return _figure(data, title, 110 + 30 * len(names), yaxis=_NAMES)


def draw_points(points: Sequence[Point], higher_is_better: bool, title: str, x: str, y: str) -> Figure:
    """Draw points, and a line through those that no other beats in time and metric."""
    front = find_front(points, higher_is_better)
    marks: Figure = {
        "mode": "markers",
        "x": [point.time for point in points],
        "y": [point.figure for point in points],
        "text": [point.text for point in points],
        "marker": {"color": [COLOURS[0] if point in front else COLOURS[-1] for point in points], "size": 9},
        "hovertemplate": "%{text}<br>%{x:.3~g}, %{y:.5~g}<extra></extra>",
    }
    line: Figure = {"mode": "lines", "x": [point.time for point in front], "y": [point.figure for point in front]}
    line |= {"line": {"color": COLOURS[0], "dash": "dot", "width": 1}, "hoverinfo": "skip"}
    data = [{"type": "scatter", **own} for own in (line, marks)]
    return _figure(data, title, 330, xaxis=_axis(x), yaxis=_axis(y))


def draw_bars(rows: Mapping[str, float], title: str) -> Figure:
    """Draw a bar for each row."""
    names, values = [label(name) for name in rows], [*rows.values()]
    bars = {"type": "bar", "orientation": "h", "x": values, "y": names, "marker": {"color": COLOURS[0]}}
    return _figure([bars], title, 110 + 24 * len(names), yaxis=_NAMES)


def draw_heat(steps: Sequence[Heat], rows: Sequence[str], columns: Sequence[str], title: str) -> Figure:
    """Draw heat maps as frames of one figure, on one scale. The page begins with the last frame."""
    frames: list[list[Figure]] = [
        [{"z": step.values}, {"x": [column for _, column in step.marks], "y": [row for row, _ in step.marks]}]
        for step in steps
    ]
    numbers = [value for step in steps for row in step.values for value in row if value is not None]
    heat = {"x": list(columns), "y": list(rows), "zmin": min(numbers), "zmax": max(numbers)}
    marker = {"symbol": "circle-open", "size": 11, "color": "#e5383b", "line": {"width": 2.5}}
    rings = {"mode": "markers", "marker": marker, "hovertemplate": "%{y}, %{x}: kept<extra></extra>"}
    axis = {"type": "category", "fixedrange": True, "showgrid": False}
    figure = _figure(
        [{"type": "heatmap", **heat, **frames[-1][0]}, {"type": "scatter", **rings, **frames[-1][1]}],
        title,
        92 + 18 * len(rows),
        margin={"t": 82, "b": 10},
        xaxis=axis | {"side": "top", "range": [-0.5, len(columns) - 0.5]},
        yaxis=axis | {"range": [len(rows) - 0.5, -0.5], "tickmode": "array", "tickvals": list(rows)},
    )
    return figure | {"frames": [{"data": data} for data in frames]}
