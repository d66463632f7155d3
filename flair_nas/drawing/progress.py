"""How searches went: what they are judged by, and MAD, over epochs, as one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flair_nas.runs.metric import Measure
from flair_nas.storage.files import whole_file


def draw_progress(histories: Mapping[str, Sequence[Mapping[str, Any]]], path: str | Path, measure: Measure) -> None:
    """Draws a measure of supernets on the validation part, and the MAD of their architecture weights, over epochs.

    Args:
        histories: for each search its history, a dictionary per epoch as in ``history.jsonl``.
        path: of the picture; its ending says the format: .svg, .png or .pdf.
        measure: by which they are judged; its `key` is in the histories.

    Raises:
        OSError: it cannot be written.
    """
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "flair-nas", "svg.fonttype": "none"}):  # equal figures, equal files
        from matplotlib.figure import Figure  # needs no display, as pyplot may

        figure = Figure(figsize=(10, 3.6), layout="constrained")
        values, deviations = figure.subplots(1, 2)
        for name, history in histories.items():
            epochs = [line["epoch"] for line in history]
            (drawn,) = values.plot(epochs, [line[measure.key] for line in history], marker=".", label=name)
            # None leaves a gap
            for part, (xs, ys) in deviation_curves(history).items():
                style = "--" if part == "inter" else "-"
                deviations.plot(xs, ys, style, color=drawn.get_color(), label=f"{name}, {part}" if name else part)
        values.set(xlabel="epoch", ylabel=f"valid {measure.title} of the supernet", yscale=measure.scale)
        deviations.set(xlabel="epoch", ylabel="MAD of the mixing weights")
        for axes in (values, deviations):
            axes.grid(alpha=0.3)
            if len(axes.lines) > 1:
                axes.legend(fontsize="small")
        form = Path(path).suffix.removeprefix(".")
        with whole_file(path) as temporary:
            figure.savefig(temporary, format=form, metadata={"Date": None} if form == "svg" else None)


def deviation_curves(history: Sequence[Mapping[str, Any]]) -> dict[str, tuple[list[float], list[float]]]:
    """The points of MAD by part, ``intra`` and ``inter``: times in epochs, and values; empty for random searches."""
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for line in history:
        for point in line.get("mad_curve", []):
            time = line["epoch"] - 1 + point["step"] / line["steps"]
            for part in line["mad"]:
                xs, ys = curves.setdefault(part, ([], []))
                xs.append(time)
                ys.append(point[part])
    return curves
