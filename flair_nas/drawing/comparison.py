"""How layers compare, as one picture: each seed a point, mean and standard deviation a bar."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from flair_nas.storage.files import whole_file


def draw_comparison(panels: Mapping[str, Mapping[str, Sequence[float]]], path: str | Path) -> None:
    """Draws the figures of layers, a panel for each column of a table.

    Args:
        panels: by what they show (``WNUT-2017, test F1``), the figures of all seeds by layer; layers without any are
            left out.
        path: of the picture; its ending says the format: .svg, .png or .pdf.

    Raises:
        OSError: it cannot be written.
    """
    import matplotlib

    drawn = {title: {name: of for name, of in layers.items() if of} for title, layers in panels.items()}
    drawn = {title: layers for title, layers in drawn.items() if layers}
    most = max((len(layers) for layers in drawn.values()), default=1)
    with matplotlib.rc_context({"svg.hashsalt": "flair-nas", "svg.fonttype": "none"}):  # equal figures, equal files
        from matplotlib.figure import Figure  # needs no display, as pyplot may

        figure = Figure(figsize=(5.2 * max(1, len(drawn)), 0.7 + 0.36 * most), layout="constrained")
        for place, (title, layers) in enumerate(drawn.items(), start=1):
            axes = figure.add_subplot(1, len(drawn), place)
            for height, of in enumerate(layers.values()):
                axes.plot(of, [height] * len(of), "o", color="#777777", markersize=3.5, alpha=0.7)
                spread = statistics.stdev(of) if len(of) > 1 else None
                axes.errorbar(
                    statistics.mean(of), height, xerr=spread, fmt="D", color="#0072b2", markersize=5, capsize=4
                )
            axes.set_yticks(range(len(layers)), [f"{name} ({len(of)})" for name, of in layers.items()])
            axes.invert_yaxis()
            axes.set_xlabel(title)
            axes.grid(axis="x", alpha=0.3)
        form = Path(path).suffix.removeprefix(".")
        with whole_file(path) as temporary:
            figure.savefig(temporary, format=form, metadata={"Date": None} if form == "svg" else None)
