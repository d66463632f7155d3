"""Presentation of a table: metrics with their spread, how likely each beats the first row, and costs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

from flair_nas.errors import as_markdown
from flair_nas.experiments.counts import unpack_counts
from flair_nas.experiments.ledger import Ledger, Run
from flair_nas.experiments.statistics import compare, epoch_seconds, mean_and_spread
from flair_nas.experiments.tasks import TASKS, Task
from flair_nas.runs.duration import duration
from flair_nas.tables.spec import Column, Row, Table

Runs = list[Run]
_CHANCE = "P(better)"


class Grid(NamedTuple):
    """The texts of a table: headers, cells of each row, and sentences below them."""

    headers: list[str]
    rows: list[list[str]]
    remarks: list[str]


def make_grid(table: Table, ledger: Ledger) -> Grid:
    """Return a table with the metrics of its runs."""
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
        title, figures = _column_figures(table, ledger, column)
        add(title, [mean_and_spread(values) for values in figures])
        add("seeds", [str(len(values)) if values else "-" for values in figures])
        add(_CHANCE, ["-", *(_chance(cell, good[0], task) for cell in good[1:])])
        published = [row.published.get(column.name) for row in table.rows]
        add("published", ["-" if figure is None else f"{figure:.2f}" for figure in published])
        add("recall of unseen entities", [mean_and_spread(_recalls(cell)) for cell in good])
        add("weights", [f"{cell[0]['parameters']:,}" if cell else "-" for cell in good])
        add("s / epoch", [f"{epoch_seconds(cell):.1f}" if cell else "-" for cell in good])
        add("MB", [f"{max(run['peak_memory_mb'] for run in cell):,.0f}" if cell else "-" for cell in good])
        zeros = [row.name for row, values in zip(table.rows, figures) if values and not any(values)]
        remarks += [f"Nothing was learnt on {column.name} by {', '.join(zeros)}: train longer."] * bool(zeros)
        remarks += [_describe_size(ledger, row, column) for row in table.rows]
        for row, cell in zip(table.rows, runs):
            errors = {run["error"] for run in cell if "error" in run}
            remarks += [f"{row.name} on {column.name} failed: {' '.join(error.split())}" for error in sorted(errors)]
    cells = [_runs(ledger, row, column) for row in table.rows for column in table.columns]
    compared = sum(row[place] != "-" for place, header in enumerate(headers) if header == _CHANCE for row in rows)
    summary = _describe_figures({len(cell) for cell in _good(cells)} - {0}, table.rows[0].name, compared)
    remarks.insert(0, f"{summary} {duration(ledger.seconds)} in all.")
    return Grid(headers, rows, [remark for remark in remarks if remark])


def _describe_figures(seeds: set[int], first: str, compared: int) -> str:
    """Describe the figures of rows with these numbers of seeds; so many are compared with the first."""
    if not seeds:
        return "Nothing is done yet."
    if max(seeds) == 1:
        return "One seed each: differences of several points are chance. P(better) needs two."
    spread = " to ".join(map(str, sorted({min(seeds), max(seeds)})))
    shown = f"Mean ± sample standard deviation over {spread} seeds."
    if compared:
        shown += f" P(better): how likely a layer is better than {first}, by Student's t over seeds and sentences."
    if compared > 1:
        shown += f" If none of {compared} were better, {compared / 20:.1f} would have 0.95 or more by chance, often "
        shown += f"together, as all are compared with the same runs of {first}."
    return shown


def _column_figures(table: Table, ledger: Ledger, column: Column) -> tuple[str, list[list[float]]]:
    """Return the header of a column, and the metrics of its runs, row by row."""
    good, task = _good([_runs(ledger, row, column) for row in table.rows]), TASKS[column.task]
    part = "test" if any(run["test"] is not None for cell in good for run in cell) else task.dev
    figures = [
        [float(task.figure(unpack_counts(run["counts"]).sum(0, dtype="float64"))) for run in cell] for cell in good
    ]
    return f"{column.name}, {part} {task.title}", figures


def make_panels(table: Table, ledger: Ledger) -> dict[str, dict[str, list[float]]]:
    """Return the metrics of a table by column and row, as `flair_nas.drawing.charts.draw_comparison` takes them."""
    columns = [_column_figures(table, ledger, column) for column in table.columns]
    return {title: {row.name: values for row, values in zip(table.rows, figures)} for title, figures in columns}


def _good(runs: Sequence[Runs]) -> list[Runs]:
    """Return the runs that have scores, by cell."""
    return [[run for run in cell if "counts" in run] for cell in runs]


def _runs(ledger: Ledger, row: Row, column: Column) -> Runs:
    names = ledger.plan.get("cells", {}).get(f"{row.name} / {column.name}", [])
    return [ledger.runs[name] for name in names if name in ledger.runs]


def _describe_size(ledger: Ledger, row: Row, column: Column) -> str:
    """Return a sentence on the hidden size that was found for a row, or an empty string."""
    sizing = ledger.runs.get(ledger.plan.get("measured", {}).get(f"{row.name} / {column.name}", ""), {})
    if "hidden_size" not in sizing:
        return ""
    size = f"{row.name} on {column.name} has a hidden size of {sizing['hidden_size']}, at which "
    if row.time_of is not None:
        return f"{size}its steps took {sizing['time_ratio']:.2f} of the time of those of {row.time_of}."
    return f"{size}it has {sizing['size_ratio']:.2f} of the weights of {row.size_of}."


def _chance(runs: Runs, first: Runs, task: Task) -> str:
    """Return how likely a layer is better than the first one."""
    own, others = ([unpack_counts(run["counts"]) for run in cell] for cell in (runs, first))
    if min(len(own), len(others)) < 2 or not any(task.figure(counts.sum(0)) for counts in [*own, *others]):
        return "-"  # one seed does not tell, nor do layers that learnt nothing
    return f"{compare(own, others, task.figure, task.gain(1.0, 0.0)).probability:.2f}"


def _recalls(runs: Runs) -> list[float]:
    return [100 * run["unseen"][0] / run["unseen"][1] for run in runs if run.get("unseen", [0, 0])[1]]


# --- forms ---


def to_markdown(table: Table, grid: Grid) -> str:
    """Return the table as Markdown."""
    lines = [f"## {as_markdown(table.title)}", ""] + ([table.note, ""] if table.note else [])
    for cells in (grid.headers, ["---"] * len(grid.headers), *grid.rows):
        lines.append(f"| {' | '.join(map(as_markdown, cells))} |")
    return (
        "\n".join([*lines, "", *(line for remark in grid.remarks for line in (as_markdown(remark), ""))]).rstrip()
        + "\n"
    )


def to_csv(table: Table, grid: Grid) -> str:
    """Return the table as comma-separated values: plain numbers, mean and spread apart, no title and remarks."""
    columns: list[list[str]] = [[grid.headers[0], *(row[0] for row in grid.rows)]]
    for place, header in enumerate(grid.headers[1:], start=1):
        parts = [row[place].replace(",", "").split(" ± ") for row in grid.rows]
        columns.append([header, *("" if cell[0] == "-" else cell[0] for cell in parts)])
        if any(len(cell) > 1 for cell in parts):
            columns.append([f"{header}, sd", *(cell[1] if len(cell) > 1 else "" for cell in parts)])
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(zip(*columns))
    return stream.getvalue()


def to_latex(table: Table, grid: Grid) -> str:
    """Return the table as a tabular of LaTeX's booktabs."""
    rows = [" & ".join(cell.translate(_SIGNS) for cell in cells) + r" \\" for cells in (grid.headers, *grid.rows)]
    lines = [r"% \usepackage{booktabs}", rf"\begin{{tabular}}{{l{'r' * (len(grid.headers) - 1)}}}", r"\toprule"]
    lines += [rows[0], r"\midrule", *rows[1:], r"\bottomrule", r"\end{tabular}"]
    return "\n".join([*lines, *(f"% {remark}" for remark in grid.remarks)]) + "\n"


_SIGNS = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        **{"±": r"$\pm$", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    }
)

FORMATS = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}
"""Functions that format a table, by name."""
