"""Writing of a report: its page, and its figures as pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from flair_nas.drawing.curves import load_template
from flair_nas.drawing.figures import Detail, Figure
from flair_nas.errors import FlairNasError, shown
from flair_nas.report.page import MAX_BYTES, Section, load_plotly, to_page
from flair_nas.report.reading import RunFolder, list_settings, read_runs
from flair_nas.report.searches import describe_search
from flair_nas.report.trainings import compare_runs, describe_training
from flair_nas.report.tunings import describe_tuning
from flair_nas.storage.files import write_text

_DETAILS = (Detail(1000, 60), Detail(500, 25), Detail(200, 10), Detail(60, 4))
"""Details of a page, from the finest. A report takes the first that makes it small enough."""

_SECTIONS = {"search": describe_search, "tune": describe_tuning, "distil": describe_tuning}
"""Functions that describe a run, by its kind. `describe_training` describes all others."""


def write_report(paths: Sequence[str], out: Path, pictures: Path | None = None) -> list[Section]:
    """Write a report on run folders to an HTML file. Return its sections.

    Args:
        paths: run folders.
        out: the file.
        pictures: a folder for the figures as PNG; None writes none.

    Raises:
        FlairNasError: Plotly or its browser is missing, a folder holds no run, or the page would be too large.
        OSError: a file cannot be read or written.
    """
    plotly, runs = load_plotly(), read_runs(paths)
    title = ", ".join(run.name for run in runs)
    for detail in _DETAILS:
        sections = list(_make_sections(runs, detail))
        page = to_page(f"flair-nas report: {title}", sections, plotly)
        if len(page.encode()) <= MAX_BYTES:
            write_text(out, page)
            if pictures is not None:
                write_pictures(sections, pictures)
            return sections
    raise FlairNasError(f"a report on {len(runs)} runs is larger than {MAX_BYTES // 10**6} MB; give fewer of them")


def _make_sections(runs: Sequence[RunFolder], detail: Detail) -> Iterator[Section]:
    """Yield the curves of searches, then of trainings, then a section for each run."""
    for is_search in (True, False):
        curves = [run for run in runs if run.histories and (run.kind == "search") is is_search]
        yield from compare_runs(curves, detail)
    for run in runs:
        try:
            section = _SECTIONS.get(run.kind, describe_training)(run, detail)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise FlairNasError(f"{run.folder}: its files are not as flair-nas writes them ({shown(error)})") from error
        section.fold("Settings", list_settings(run.settings))
        yield section


def write_pictures(sections: Sequence[Section], folder: Path) -> None:
    """Write the figures of sections as PNG.

    Raises:
        FlairNasError: Kaleido or its browser is missing.
        OSError: the folder cannot be written.
    """
    import plotly.io

    template, figures, files = load_template(), list[Figure](), list[Path]()
    for place, section in enumerate(sections, start=1):
        for name, figure in section.figures.items():
            layout = figure["layout"] | {"paper_bgcolor": "#ffffff", "template": template}
            figures.append({"data": figure["data"], "layout": layout})
            files.append(folder / (re.sub(r"[^\w.-]+", "-", f"{place}-{section.title}-{name}").strip("-") + ".png"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        plotly.io.write_images(figures, files, scale=3, validate=False)
    except (ValueError, RuntimeError, ImportError, AttributeError) as error:
        raise FlairNasError(
            f"--png needs Kaleido and Chrome or Chromium: pip install 'flair-nas[report-png]' ({shown(error)})"
        ) from None
