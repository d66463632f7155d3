"""Tables whose runs are kept in benchmarks/results/, a line for each run: only what the published figures need.

A line has the row, the column and the seed of a run, and its figures; or the error or the hidden size of a row; or the
mean counts of a column, from which those of its runs are kept as differences. Losses are kept to a fifth of a nat a
sentence, and their sum to a tenth.
"""

from __future__ import annotations

import base64
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.json_lines import RESULTS, lines_in, replace_lines
from benchmarks.tables.showing import make_grid, to_markdown
from benchmarks.tables.spec import Table, load_table
from flair_nas.experiments.counts import Counts, pack_counts, unpack_counts
from flair_nas.experiments.ledger import Ledger

STEP = 0.2  # nats
FILTERS = [{"id": lzma.FILTER_LZMA1, "preset": 9, "lc": 0, "pb": 0}]
SIZES = ("hidden_size", "size_ratio")
FIGURES = ("test", "seconds", "parameters", "peak_memory_mb", "unseen", "error")
CURVES = ("dev", "dev_loss", "exhausted")
WITH_CURVES = ("wnut-small", "zoo-small")
"""Tables whose figures on dev of each epoch are used, too."""
WITHOUT_COUNTS = ("eight_nodes",)
"""Tables that nothing compares."""


class Kept(NamedTuple):
    """The kept runs of a table, with the attributes of a `Ledger` that show it."""

    runs: dict[str, dict[str, Any]]
    plan: dict[str, dict[str, Any]]
    seconds: float


def file_of(name: str) -> Path:
    """Return the file of a table; the tables of small cells share one."""
    return RESULTS / f"{'small_cells' if name.startswith('small_cells') else name}.jsonl"


def lines_of(name: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a table."""
    for line in lines_in(file_of(name)):
        if line.get("table", name) == name:
            yield line


def kept(name: str) -> tuple[Table, Kept]:
    """Return a table and its runs."""
    table, runs = load_table(name), dict[str, dict[str, Any]]()
    scales = {column.name: np.array([STEP, 1] if column.task == "text" else [1, 1, 1]) for column in table.columns}
    means: dict[str, Counts] = {}
    plan: dict[str, dict[str, Any]] = {"cells": {}, "measured": {}}
    seconds = 0.0
    for line in lines_of(name):
        seconds = line.get("table_seconds", seconds)
        if "mean_counts" in line:
            column = line["column"]
            means[column] = _unpack(line["mean_counts"], len(scales[column]))
        if "row" not in line:
            continue
        cell, run = f"{line['row']} / {line['column']}", f"{line['column']}-{line['row']}-seed{line.get('seed', 0)}"
        if "hidden_size" in line:
            run = plan["measured"][cell] = f"size-{run}"
        else:
            plan["cells"].setdefault(cell, []).append(run)
        if "counts" in line:
            column, scale = line["column"], scales[line["column"]]
            line["counts"] = pack_counts((means[column] + _unpack(line["counts"], len(scale))) * scale)
        runs[run] = line
    return table, Kept(runs, plan, seconds)


def keep(name: str, ledger: Ledger) -> None:
    """Write the runs of a table to benchmarks/results/, in place of those that are there."""
    counts = {
        run_name: _to_whole(unpack_counts(run["counts"]))
        for run_name, run in ledger.runs.items()
        if "counts" in run and name not in WITHOUT_COUNTS
    }
    lines: list[dict[str, Any]] = [{"table_seconds": ledger.seconds}]
    means: dict[str, Counts] = {}
    for cell, names in ledger.plan["cells"].items():
        row, column = cell.split(" / ")
        place = {"row": row, "column": column}
        if counts and column not in means:
            means[column] = _mean_of(column, ledger.plan["cells"], counts)
            lines.append({"column": column, "mean_counts": _pack(means[column])})
        size = ledger.runs.get(ledger.plan["measured"].get(cell, ""))
        if size is not None:
            lines.append(place | {key: size[key] for key in (*SIZES, "error") if key in size})
        for run_name in names:
            run = ledger.runs.get(run_name)
            if run is None or run is size:
                continue
            line = place | ({"seed": int(run_name.rpartition("-seed")[2])} if "-seed" in run_name else {})
            line |= {key: run[key] for key in (*FIGURES, *(CURVES if name in WITH_CURVES else ())) if key in run}
            if run_name in counts:
                line["counts"] = _pack(counts[run_name] - means[column])
            lines.append(line)
    shared = {"table": name} if name.startswith("small_cells") else {}
    replace_lines(
        file_of(name),
        [shared | line for line in lines],
        lambda line: line.get("table", name) == name and bool({"row", "column", "table_seconds"} & line.keys()),
    )


def _mean_of(column: str, cells: dict[str, list[str]], counts: dict[str, Counts]) -> Counts:
    """Return the mean counts of the runs of a column, as whole numbers."""
    names = [name for cell, names in cells.items() if cell.endswith(f" / {column}") for name in names]
    return np.rint(np.mean([counts[name] for name in names if name in counts], axis=0))


def _to_whole(counts: Counts) -> Counts:
    """Return counts as whole numbers; losses in steps that are rounded so that their sums are right."""
    if counts.shape[1] != 2:
        return counts
    steps = np.diff(np.rint(np.cumsum(counts[:, 0], dtype=np.float64) / STEP), prepend=0)
    return np.stack([steps, counts[:, 1]], axis=1)


def _pack(counts: Counts) -> str:
    """Return whole numbers [sentences, K] as a text."""
    small = np.ascontiguousarray(counts.T, "<i2")  # [K, sentences]
    zigzag = ((small << 1) ^ (small >> 15)).view(np.uint8).reshape(*small.shape, 2)  # numbers near 0 have one byte
    data = lzma.compress(zigzag.transpose(0, 2, 1).tobytes(), lzma.FORMAT_RAW, filters=FILTERS)
    return base64.b85encode(data).decode()


def _unpack(text: str, kinds: int) -> Counts:
    """Return the counts of a text of `_pack`, [sentences, kinds]."""
    data = lzma.decompress(base64.b85decode(text), lzma.FORMAT_RAW, filters=FILTERS)
    planes = np.frombuffer(data, np.uint8).reshape(kinds, 2, -1).transpose(0, 2, 1)  # [kinds, sentences, 2]
    zigzag = np.ascontiguousarray(planes).view("<u2")[..., 0].T.astype(np.int64)  # [sentences, kinds]
    return (zigzag >> 1) ^ -(zigzag & 1)


def table(name: str) -> str:
    """Return a table as Markdown."""
    spec, ledger = kept(name)
    grid = make_grid(spec, ledger)
    run = [row for row in grid.rows if row[1] != "-"]  # --rows may have left some out
    return to_markdown(spec, grid._replace(rows=run)).partition("\n\n")[2]  # the page has headings of its own


def report(name: str) -> str:
    """Return the report of the selection before a table, as `flair-nas select` wrote it, without its heading."""
    (text,) = (line["report"] for line in lines_of(f"select-{name}") if "report" in line)
    return str(text).partition("\n\n")[2]
