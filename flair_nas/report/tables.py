"""Sections on tables of layers by corpora."""

from __future__ import annotations

from flair_nas.drawing.figures import Detail, draw_seeds
from flair_nas.experiments.ledger import Ledger
from flair_nas.report.page import Section, table
from flair_nas.report.reading import TABLE, RunFolder, list_settings
from flair_nas.tables.showing import make_grid, make_panels
from flair_nas.tables.spec import load_table


def describe_table(run: RunFolder, detail: Detail) -> Section:
    """Return the section on a table: each seed as a point, and the figures of all rows."""
    spec, ledger = load_table(str(run.folder / TABLE)), Ledger(run.folder / "ledger.json")
    section = Section(spec.title, f"flair-nas tables run, {run.folder}")
    grid, panels = make_grid(spec, ledger), make_panels(spec, ledger)
    if spec.note:
        section.add(spec.note)
    drawn = {f"column-{place}": (title, rows) for place, (title, rows) in enumerate(panels.items(), start=1)}
    figures = {name: draw_seeds(rows, title) for name, (title, rows) in drawn.items() if any(rows.values())}
    if figures:
        section.draw(**figures)
        section.add("A point is a seed; a diamond and its bar are mean and standard deviation.", "note")
    else:
        section.add("No run has ended yet, so there is nothing to draw.", "remark")
    section.parts.append(table(grid.rows, grid.headers))
    for remark in grid.remarks:
        section.add(remark, "note")
    section.fold("Settings", list_settings(run.settings))
    return section
