"""Figures of matplotlib as files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flair_nas.storage.files import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextlib.contextmanager
def figure_file(path: str | Path, width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure, and write it to a file when the block ends; equal figures give equal SVG files.

    Args:
        path: of the file; its suffix is the format: .svg, .png or .pdf.
        width: in inches.
        height: in inches.

    Raises:
        OSError: the file cannot be written.
    """
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "flair-nas", "svg.fonttype": "none"}):
        from matplotlib.figure import Figure  # needs no display, unlike pyplot

        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        suffix = Path(path).suffix.removeprefix(".")
        with whole_file(path) as temporary:
            figure.savefig(temporary, format=suffix, metadata={"Date": None} if suffix == "svg" else None)
