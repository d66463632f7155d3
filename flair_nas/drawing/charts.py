"""Charts of searches, and of metric against time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from flair_nas.drawing.curves import Panel, list_health, metric_curve
from flair_nas.runs.epoch_record import Line
from flair_nas.runs.metric import Metric
from flair_nas.storage.files import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextlib.contextmanager
def _figure_file(path: str | Path, width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure, sized in inches, and write it when the block ends. Equal figures give equal SVG files."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "flair-nas", "svg.fonttype": "none"}):
        from matplotlib.figure import Figure  # needs no display, unlike pyplot

        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        suffix = Path(path).suffix.removeprefix(".").lower()
        with whole_file(path) as temporary:
            figure.savefig(temporary, format=suffix, metadata={"Date": None} if suffix == "svg" else None)


class Point(NamedTuple):
    """A layer in a picture of metric and time."""

    name: str
    seconds: float
    figure: float  # its metric
    marked: bool = False  # it is a baseline


def draw_seconds(points: Sequence[Point], path: str | Path, labels: tuple[str, str], higher_is_better: bool) -> None:
    """Draw the metric of layers against their time. A line joins the layers that no other beats in both.

    Args:
        points: the layers; marked ones are drawn as squares.
        path: the file, whose suffix is the format: .svg, .png or .pdf.
        labels: labels of time and metric.
        higher_is_better: a higher metric is better.

    Raises:
        OSError: the file cannot be written.
    """
    front = find_front(points, higher_is_better)
    with _figure_file(path, 7.2, 4.6) as figure:
        axes = figure.add_subplot()
        axes.plot([p.seconds for p in front], [p.figure for p in front], "--", color="#0072b2", linewidth=1)
        for point in points:
            colour = "#d55e00" if point.marked else "#0072b2" if point in front else "#777777"
            axes.plot(point.seconds, point.figure, "s" if point.marked else "o", color=colour, markersize=6)
            axes.annotate(point.name, point[1:3], (5, 4), textcoords="offset points", fontsize=8, color=colour)
        axes.set(xlabel=labels[0], ylabel=labels[1])
        axes.margins(x=0.15)
        if not higher_is_better:
            axes.invert_yaxis()
        axes.grid(alpha=0.3)


def find_front(points: Sequence[Point], higher_is_better: bool) -> list[Point]:
    """Return the points that no other point beats in both time and metric, fastest first."""
    sign = 1 if higher_is_better else -1
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.seconds, -sign * point.figure)):
        if not front or sign * point.figure > sign * front[-1].figure:
            front.append(point)
    return front


def draw_progress(history: Sequence[Line], path: str | Path, metric: Metric) -> None:
    """Draw the panels of a search: the metric of its supernet, and MAD and drift of its architecture weights.

    Raises:
        OSError: the file cannot be written.
    """
    supernet = Panel("supernet", f"{metric.title} on dev", [metric_curve(history, metric)], metric.log)
    panels = [supernet, *list_health(history)]
    with _figure_file(path, 5 * len(panels), 3.6) as figure:
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels):
            for curve in panel.curves:  # a value of None leaves a gap
                axes.plot(curve.xs, curve.ys, marker="." if len(curve.xs) < 100 else "", label=curve.name)
            axes.set(title=panel.title, xlabel="epoch", ylabel=panel.y, yscale="log" if panel.log else "linear")
            axes.grid(alpha=0.3)
            if len(axes.lines) > 1:
                axes.legend(fontsize="small")
