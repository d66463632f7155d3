"""Presentation of a table: metrics with their spread, how likely each beats the first row, costs, and a picture."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import matplotlib
from matplotlib.figure import Figure

from benchmarks.tables.spec import Column, Row, Table
from flair_nas.errors import as_markdown
from flair_nas.experiments.counts import unpack_counts
from flair_nas.experiments.ledger import Run
from flair_nas.experiments.statistics import compare, epoch_seconds, mean_and_spread
from flair_nas.experiments.tasks import TASKS, Task
from flair_nas.runs.duration import duration

Runs = list[Run]
_CHANCE = "P(better)"


class Results(Protocol):
    """The runs of a table by name, and the names of each cell: a `Ledger`, or what is kept of one."""

    runs: dict[str, Run]
    plan: dict[str, Any]
    seconds: float


class Grid(NamedTuple):
    """The texts of a table: headers, cells of each row, and sentences below them."""

    headers: list[str]
    rows: list[list[str]]
    remarks: list[str]


def make_grid(table: Table, ledger: Results) -> Grid:
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


def _column_figures(table: Table, ledger: Results, column: Column) -> tuple[str, list[list[float]]]:
    """Return the header of a column, and the metrics of its runs, row by row."""
    good, task = _good([_runs(ledger, row, column) for row in table.rows]), TASKS[column.task]
    part = "test" if any(run["test"] is not None for cell in good for run in cell) else task.dev
    figures = [
        [float(task.figure(unpack_counts(run["counts"]).sum(0, dtype="float64"))) for run in cell] for cell in good
    ]
    return f"{column.name}, {part} {task.title}", figures


def make_panels(table: Table, ledger: Results) -> dict[str, dict[str, list[float]]]:
    """Return the metrics of a table by column and row, as `draw_comparison` takes them."""
    columns = [_column_figures(table, ledger, column) for column in table.columns]
    return {title: {row.name: values for row, values in zip(table.rows, figures)} for title, figures in columns}


def _good(runs: Sequence[Runs]) -> list[Runs]:
    """Return the runs that have scores, by cell."""
    return [[run for run in cell if "counts" in run] for cell in runs]


def _runs(ledger: Results, row: Row, column: Column) -> Runs:
    names = ledger.plan.get("cells", {}).get(f"{row.name} / {column.name}", [])
    return [ledger.runs[name] for name in names if name in ledger.runs]


def _describe_size(ledger: Results, row: Row, column: Column) -> str:
    """Return a sentence on the hidden size that was found for a row, or an empty string."""
    sizing = ledger.runs.get(ledger.plan.get("measured", {}).get(f"{row.name} / {column.name}", ""), {})
    if "hidden_size" not in sizing:
        return ""
    size, ratio = sizing["hidden_size"], sizing["size_ratio"]
    return f"{row.name} on {column.name} has a hidden size of {size}, and {ratio:.2f} of the weights of {row.size_of}."


def _chance(runs: Runs, first: Runs, task: Task) -> str:
    """Return how likely a layer is better than the first one."""
    own, others = ([unpack_counts(run["counts"]) for run in cell] for cell in (runs, first))
    if min(len(own), len(others)) < 2 or not any(task.figure(one.sum(0)) for one in [*own, *others]):
        return "-"  # one seed does not tell, nor do layers that learnt nothing
    return f"{compare(own, others, task.figure, task.gain(1.0, 0.0)).probability:.2f}"


def _recalls(runs: Runs) -> list[float]:
    return [100 * run["unseen"][0] / run["unseen"][1] for run in runs if run.get("unseen", [0, 0])[1]]


def to_markdown(table: Table, grid: Grid) -> str:
    """Return the table as Markdown."""
    lines = [f"## {as_markdown(table.title)}", ""] + ([table.note, ""] if table.note else [])
    for cells in (grid.headers, ["---"] * len(grid.headers), *grid.rows):
        lines.append(f"| {' | '.join(map(as_markdown, cells))} |")
    return (
        "\n".join([*lines, "", *(line for remark in grid.remarks for line in (as_markdown(remark), ""))]).rstrip()
        + "\n"
    )


def draw_comparison(panels: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    """Draw the figures of layers, a panel for each column of a table: seeds as points, mean and deviation as a bar.

    A panel has the figures of all seeds by layer; layers without figures are left out. Equal figures give equal files.
    """
    drawn = {title: {name: seeds for name, seeds in layers.items() if seeds} for title, layers in panels.items()}
    drawn = {title: layers for title, layers in drawn.items() if layers}
    max_layers = max(map(len, drawn.values()), default=1)
    with matplotlib.rc_context({"svg.hashsalt": "flair-nas", "svg.fonttype": "none"}):
        figure = Figure(figsize=(5.2 * max(1, len(drawn)), 0.7 + 0.36 * max_layers), layout="constrained")
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
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
