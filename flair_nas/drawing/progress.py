"""A picture of how searches went: the metric and MAD over epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from flair_nas.drawing.figure import figure_file
from flair_nas.runs.metric import Metric

Epoch: TypeAlias = Mapping[str, Any]
"""An epoch as in ``history.jsonl``."""


def draw_progress(histories: Mapping[str, Sequence[Epoch]], path: str | Path, metric: Metric) -> None:
    """Draw the validation metric of supernets and the MAD of their mixing weights over epochs.

    Args:
        histories: the epochs of each search by its name.
        path: of the picture; its suffix is the format: .svg, .png or .pdf.
        metric: the metric; its `key` is in the histories.

    Raises:
        OSError: the file cannot be written.
    """
    with figure_file(path, 10, 3.6) as figure:
        values, deviations = figure.subplots(1, 2)
        for name, history in histories.items():
            epochs = [line["epoch"] for line in history]
            # a value of None leaves a gap
            (curve,) = values.plot(epochs, [line[metric.key] for line in history], marker=".", label=name)
            for part, (xs, ys) in deviation_curves(history).items():
                style = "--" if part == "inter" else "-"
                deviations.plot(xs, ys, style, color=curve.get_color(), label=f"{name}, {part}" if name else part)
        values.set(xlabel="epoch", ylabel=f"valid {metric.title} of the supernet", yscale=metric.scale)
        deviations.set(xlabel="epoch", ylabel="MAD of the mixing weights")
        for axes in (values, deviations):
            axes.grid(alpha=0.3)
            if len(axes.lines) > 1:
                axes.legend(fontsize="small")


def deviation_curves(history: Sequence[Epoch]) -> dict[str, tuple[list[float], list[float]]]:
    """Return the curves of MAD by part, ``intra`` and ``inter``: times in epochs, and values."""
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for line in history:
        for point in line.get("mad_curve", []):
            time = line["epoch"] - 1 + point["step"] / line["steps"]
            for part in line["mad"]:
                xs, ys = curves.setdefault(part, ([], []))
                xs.append(time)
                ys.append(point[part])
    return curves
