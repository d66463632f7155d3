"""Tables and selections whose runs are kept in benchmarks/results/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.tables.showing import make_grid, to_markdown
from benchmarks.tables.spec import load_table
from flair_nas.experiments.ledger import Ledger

RESULTS = Path(__file__).parents[1] / "results"


def kept(name: str) -> Any:
    """Return a table and its ledger."""
    folder = RESULTS / ("tables" if (RESULTS / "tables" / name).exists() else ".") / name
    return load_table(name), Ledger(folder / "ledger.json")


def table(name: str) -> str:
    """Return a table as Markdown."""
    spec, ledger = kept(name)
    grid = make_grid(spec, ledger)
    run = [row for row in grid.rows if row[1] != "-"]  # --rows may have left some out
    return to_markdown(spec, grid._replace(rows=run)).partition("\n\n")[2]  # the page has headings of its own


def report(name: str) -> str:
    """Return the report of a `flair-nas select`, as it wrote it, without its heading."""
    return (RESULTS / "select" / name / "report.md").read_text(encoding="utf-8").partition("\n\n")[2]
