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


class Detail(NamedTuple):
    """The largest numbers of points in a curve and of epochs on a slider."""

    points: int
    epochs: int


class Heat(NamedTuple):
    """A heat map at one epoch: values [rows][columns], and row and column of each mark. A missing value is None."""

    values: Sequence[Sequence[float | None]]
    marks: Sequence[tuple[str, str]]


def thin(items: Sequence[T], limit: int) -> list[T]:
    """Return at most `limit` items, evenly spread, with the first and the last."""
    if len(items) <= limit:
        return list(items)
    return [items[round(place * (len(items) - 1) / (limit - 1))] for place in range(limit)]


def label(text: str) -> str:
    """Escape text for Plotly, which reads some HTML."""
    return escape(text, quote=False)


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
    layout: Figure = {
        "title": {"text": label(title)},
        "height": 330 + more,
        "margin": {"t": 62 + more},
        "xaxis": {"title": {"text": label(x)}},
        "yaxis": {"title": {"text": label(y)}, "type": "log" if log else "linear"},
        "showlegend": len(names) > 1,
        "shapes": [{"type": "line", "x0": place, "x1": place, "y0": 0, "y1": 1, "yref": "paper"} for place in at],
    }
    return {"data": data, "layout": layout}


def draw_seeds(rows: Mapping[str, Sequence[float]], title: str) -> Figure:
    """Draw each row: its seeds as points, their mean and standard deviation as a bar."""
    shown = {label(name): values for name, values in rows.items() if values}
    seeds = {
        "x": [value for values in shown.values() for value in values],
        "y": [name for name, values in shown.items() for _ in values],
        "marker": {"color": COLOURS[-1], "size": 7, "opacity": 0.75},
        "hovertemplate": "%{y}<br>a seed: %{x:.5~g}<extra></extra>",
    }
    deviations = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in shown.values()]
    means = {
        "x": [statistics.mean(values) for values in shown.values()],
        "y": [*shown],
        "error_x": {"type": "data", "array": deviations, "color": COLOURS[0], "thickness": 1.5, "width": 5},
        "marker": {"color": COLOURS[0], "size": 9, "symbol": "diamond"},
        "hovertemplate": "%{y}<br>mean: %{x:.5~g} ± %{error_x.array:.3~g}<extra></extra>",
    }
    layout = {
        "title": {"text": label(title)},
        "height": 110 + 30 * len(shown),
        "yaxis": {"type": "category", "autorange": "reversed"},
        "showlegend": False,
    }
    return {"data": [{"type": "scatter", "mode": "markers", **points} for points in (seeds, means)], "layout": layout}


def draw_points(
    points: Mapping[str, tuple[float, float, str]], front: Sequence[str], title: str, x: str, y: str
) -> Figure:
    """Draw points by name, each with x, y and a text that shows on it, and a line through those of a front."""
    names = [*points]
    marks: Figure = {
        "mode": "markers",
        "x": [points[name][0] for name in names],
        "y": [points[name][1] for name in names],
        "text": [points[name][2] for name in names],
        "marker": {"color": [COLOURS[0] if name in front else COLOURS[-1] for name in names], "size": 9},
        "hovertemplate": "%{text}<br>%{x:.3~g}, %{y:.5~g}<extra></extra>",
    }
    line: Figure = {"mode": "lines", "x": [points[name][0] for name in front], "y": [points[name][1] for name in front]}
    line |= {"line": {"color": COLOURS[0], "dash": "dot", "width": 1}, "hoverinfo": "skip"}
    layout = {
        "title": {"text": label(title)},
        "height": 330,
        "xaxis": {"title": {"text": label(x)}},
        "yaxis": {"title": {"text": label(y)}},
        "showlegend": False,
    }
    return {"data": [{"type": "scatter", **own} for own in (line, marks)], "layout": layout}


def draw_bars(rows: Mapping[str, float], title: str) -> Figure:
    """Draw a bar for each row."""
    shown = {label(name): value for name, value in rows.items()}
    bars = {"type": "bar", "orientation": "h", "x": [*shown.values()], "y": [*shown], "marker": {"color": COLOURS[0]}}
    yaxis = {"type": "category", "autorange": "reversed"}
    layout = {"title": {"text": label(title)}, "height": 110 + 24 * len(shown), "yaxis": yaxis, "showlegend": False}
    return {"data": [bars], "layout": layout}


def draw_heat(steps: Sequence[Heat], rows: Sequence[str], columns: Sequence[str], title: str) -> Figure:
    """Draw heat maps as frames of one figure, on one scale. The page begins with the last frame."""
    frames: list[Figure] = []
    for place, step in enumerate(steps):
        marked_rows = [row for row, _ in step.marks]
        marked_columns = [column for _, column in step.marks]
        frames.append({"name": str(place), "data": [{"z": step.values}, {"x": marked_columns, "y": marked_rows}]})
    numbers = [value for step in steps for row in step.values for value in row if value is not None]
    heat = {"x": list(columns), "y": list(rows), "zmin": min(numbers), "zmax": max(numbers)}
    marker = {"symbol": "circle-open", "size": 11, "color": "#e5383b", "line": {"width": 2.5}}
    rings = {"mode": "markers", "marker": marker, "hovertemplate": "%{y}, %{x}: kept<extra></extra>"}
    axis = {"type": "category", "fixedrange": True, "showgrid": False}
    layout = {
        "title": {"text": label(title)},
        "height": 92 + 18 * len(rows),
        "margin": {"t": 82, "b": 10},
        "xaxis": axis | {"side": "top", "range": [-0.5, len(columns) - 0.5]},
        "yaxis": axis | {"range": [len(rows) - 0.5, -0.5], "tickmode": "array", "tickvals": list(rows)},
        "showlegend": False,
    }
    last = frames[-1]["data"]
    data = [{"type": "heatmap", **heat, **last[0]}, {"type": "scatter", **rings, **last[1]}]
    return {"data": data, "layout": layout, "frames": frames}
