"""The picture of a search's progress."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flair_nas.drawing.curves import Panel, list_health, metric_curve
from flair_nas.runs.epoch_record import Line
from flair_nas.runs.metric import Metric
from flair_nas.storage.files import whole_file


def draw_progress(history: Sequence[Line], path: str | Path, metric: Metric) -> None:
    """Draw the panels of a search as SVG: the metric of its supernet, and MAD and drift of its architecture weights.

    Equal histories give equal files.

    Raises:
        OSError: the file cannot be written.
    """
    import matplotlib

    supernet = Panel("supernet", f"{metric.title} on dev", [metric_curve(history, metric)], metric.log)
    panels = [supernet, *list_health(history)]
    with matplotlib.rc_context({"svg.hashsalt": "flair-nas", "svg.fonttype": "none"}):
        from matplotlib.figure import Figure  # needs no display, unlike pyplot

        figure = Figure(figsize=(5 * len(panels), 3.6), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels):
            for curve in panel.curves:  # a value of None leaves a gap
                axes.plot(curve.xs, curve.ys, marker="." if len(curve.xs) < 100 else "", label=curve.name)
            axes.set(title=panel.title, xlabel="epoch", ylabel=panel.y, yscale="log" if panel.log else "linear")
            axes.grid(alpha=0.3)
            if len(axes.lines) > 1:
                axes.legend(fontsize="small")
        with whole_file(path) as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None})
