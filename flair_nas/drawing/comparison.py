"""A picture of how layers compare: each seed a point, mean and standard deviation a bar."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from flair_nas.drawing.figure import figure_file


def draw_comparison(panels: Mapping[str, Mapping[str, Sequence[float]]], path: str | Path) -> None:
    """Draw the figures of layers, a panel for each column of a table.

    Args:
        panels: by title (``WNUT-2017, test F1``), the figures of all seeds by layer; layers without figures are left
            out.
        path: of the picture; its suffix is the format: .svg, .png or .pdf.

    Raises:
        OSError: the file cannot be written.
    """
    drawn = {title: {name: seeds for name, seeds in layers.items() if seeds} for title, layers in panels.items()}
    drawn = {title: layers for title, layers in drawn.items() if layers}
    max_layers = max(map(len, drawn.values()), default=1)
    with figure_file(path, 5.2 * max(1, len(drawn)), 0.7 + 0.36 * max_layers) as figure:
        for column, (title, layers) in enumerate(drawn.items(), start=1):
            axes = figure.add_subplot(1, len(drawn), column)
            for row, seeds in enumerate(layers.values()):
                axes.plot(seeds, [row] * len(seeds), "o", color="#777777", markersize=3.5, alpha=0.7)
                mean, deviation = statistics.mean(seeds), statistics.stdev(seeds) if len(seeds) > 1 else None
                axes.errorbar(mean, row, xerr=deviation, fmt="D", color="#0072b2", markersize=5, capsize=4)
            axes.set_yticks(range(len(layers)), [f"{name} ({len(seeds)})" for name, seeds in layers.items()])
            axes.invert_yaxis()
            axes.set_xlabel(title)
            axes.grid(axis="x", alpha=0.3)
