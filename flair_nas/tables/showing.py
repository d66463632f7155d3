"""A table as it is shown: figures with their spread, how likely each is better than the first row, and costs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

from flair_nas.experiments.counts import unpacked
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.statistics import compare, epoch_seconds, mean_and_spread
from flair_nas.experiments.tasks import TASKS, Task
from flair_nas.runs.duration import duration
from flair_nas.tables.spec import Column, Row, Table

Runs = list[dict[str, Any]]
_CHANCE = "P(better)"


class Grid(NamedTuple):
    """What is shown, as texts.

    Args:
        headers: of the columns.
        rows: as many texts each.
        remarks: below it.
    """

    headers: list[str]
    rows: list[list[str]]
    remarks: list[str]


def grid_of(table: Table, ledger: Ledger) -> Grid:
    """A table from its runs.

    Args:
        table: the table.
        ledger: of its folder, or a copy of that file.
    """
    headers, rows = ["layer"], [[row.name] for row in table.rows]

    def add(header: str, cells: Sequence[str]) -> None:
        if any(cell != "-" for cell in cells):
            headers.append(header)
            for row, cell in zip(rows, cells):
                row.append(cell)

    remarks = []
    for column in table.columns:
        runs = [_runs(ledger, row, column) for row in table.rows]
        good, task = _good(runs), TASKS[column.task]
        title, figures = figures_of(table, ledger, column)
        add(title, [mean_and_spread(of) for of in figures])
        add("seeds", [str(len(of)) if of else "-" for of in figures])
        add(_CHANCE, ["-", *(_chance(of, good[0], task) for of in good[1:])])
        add("published", [_plain(row.published.get(column.name)) for row in table.rows])
        add("recall of unseen entities", [mean_and_spread(_recalls(of)) for of in good])
        add("weights", [f"{of[0]['parameters']:,}" if of else "-" for of in good])
        add("s / epoch", [f"{epoch_seconds(of):.1f}" if of else "-" for of in good])
        add("MB", [f"{max(run['peak_memory_mb'] for run in of):,.0f}" if of else "-" for of in good])
        remarks += [_size_said(ledger, row, column) for row in table.rows]
        for row, of in zip(table.rows, runs):
            failed = {run["error"] for run in of if "error" in run}
            remarks += [f"{row.name} on {column.name} failed: {' '.join(error.split())}" for error in sorted(failed)]
    cells = [_runs(ledger, row, column) for row in table.rows for column in table.columns]
    compared = sum(row[place] != "-" for place, header in enumerate(headers) if header == _CHANCE for row in rows)
    said = _said_of({len(of) for of in _good(cells)} - {0}, table.rows[0].name, compared)
    remarks.insert(0, f"{said} {duration(ledger.seconds)} in all.")
    return Grid(headers, rows, [remark for remark in remarks if remark])


def _said_of(seeds: set[int], first: str, compared: int) -> str:
    """Describe the figures, by how many seeds rows have and how many rows are compared with the first."""
    if not seeds:
        return "Nothing is done yet."
    if max(seeds) == 1:
        return "One seed each: differences of several points are chance. P(better) wants two."
    spread = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
    shown = f"Mean ± sample standard deviation over {spread} seeds."
    if compared:
        shown += f" P(better): how likely a layer is better than {first}, by Student's t over seeds and sentences."
    if compared > 1:
        shown += f" If none of {compared} were better, {compared / 20:.1f} would have 0.95 or more by chance, often "
        shown += f"together, as all are compared with the same runs of {first}."
    return shown


def figures_of(table: Table, ledger: Ledger, column: Column) -> tuple[str, list[list[float]]]:
    """What a column shows, and the figures of its runs, row by row."""
    good, task = _good([_runs(ledger, row, column) for row in table.rows]), TASKS[column.task]
    part = "test" if any(run["test"] is not None for of in good for run in of) else task.dev
    figures = [[float(task.figure(unpacked(run["counts"]).sum(0, dtype="float64"))) for run in of] for of in good]
    return f"{column.name}, {part} {task.title}", figures


def panels_of(table: Table, ledger: Ledger) -> dict[str, dict[str, list[float]]]:
    """The figures of a table by column and row, as `flair_nas.drawing.comparison.draw_comparison` takes them."""
    of_columns = [figures_of(table, ledger, column) for column in table.columns]
    return {title: {row.name: of for row, of in zip(table.rows, figures)} for title, figures in of_columns}


def _good(runs: Sequence[Runs]) -> list[Runs]:
    """Those that did not fail, and are no searches."""
    return [[run for run in of if "counts" in run] for of in runs]


def _runs(ledger: Ledger, row: Row, column: Column) -> Runs:
    names = ledger.plan.get("cells", {}).get(f"{row.name} / {column.name}", [])
    return [ledger.runs[name] for name in names if name in ledger.runs]


def _size_said(ledger: Ledger, row: Row, column: Column) -> str:
    """The hidden size that was found for a row, if it was."""
    found = ledger.runs.get(ledger.plan.get("measured", {}).get(f"{row.name} / {column.name}", ""), {})
    if "hidden_size" not in found:
        return ""
    said = f"{row.name} on {column.name} has a hidden size of {found['hidden_size']}, at which "
    if row.time_of is not None:
        return f"{said}its steps took {found['time_ratio']:.2f} of the time of those of {row.time_of}."
    return f"{said}it has {found['size_ratio']:.2f} of the weights of {row.size_of}."


def _chance(runs: Runs, first: Runs, task: Task) -> str:
    """Return how likely a layer is better than the first one."""
    if min(len(runs), len(first)) < 2:  # of one seed alone it cannot be told
        return "-"
    counts, of_first = ([unpacked(run["counts"]) for run in of] for of in (runs, first))
    return f"{compare(counts, of_first, task.figure, task.gain(1.0, 0.0)).probability:.2f}"


def _recalls(runs: Runs) -> list[float]:
    return [100 * run["unseen"][0] / run["unseen"][1] for run in runs if run.get("unseen", [0, 0])[1]]


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


# --- forms ---


def to_markdown(table: Table, grid: Grid) -> str:
    """The table for a page of Markdown."""
    lines = [f"## {table.title}", ""] + ([table.note, ""] if table.note else [])
    for cells in (grid.headers, ["---"] * len(grid.headers), *grid.rows):
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join([*lines, "", *(line for remark in grid.remarks for line in (remark, ""))]).rstrip() + "\n"


def to_csv(table: Table, grid: Grid) -> str:
    """The table as comma-separated values: plain numbers, a column for each mean and spread, no title and remarks."""
    columns: list[list[str]] = [[grid.headers[0], *(row[0] for row in grid.rows)]]
    for place, header in enumerate(grid.headers[1:], start=1):
        parts = [row[place].replace(",", "").split(" ± ") for row in grid.rows]
        columns.append([header, *("" if of[0] == "-" else of[0] for of in parts)])
        if any(len(of) > 1 for of in parts):
            columns.append([f"{header}, sd", *(of[1] if len(of) > 1 else "" for of in parts)])
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(zip(*columns))
    return stream.getvalue()


def to_latex(table: Table, grid: Grid) -> str:
    """The table as a tabular of LaTeX's booktabs."""
    rows = [" & ".join(map(_escaped, cells)) + r" \\" for cells in (grid.headers, *grid.rows)]
    lines = [r"% \usepackage{booktabs}", rf"\begin{{tabular}}{{l{'r' * (len(grid.headers) - 1)}}}", r"\toprule"]
    lines += [rows[0], r"\midrule", *rows[1:], r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*lines, *(f"% {remark}" for remark in grid.remarks)]) + "\n"


_SIGNS = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"±": r"$\pm$", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
}


def _escaped(text: str) -> str:
    return "".join(_SIGNS.get(sign, sign) for sign in text)


FORMATS = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}
"""How a table may be shown."""
