"""Runs of a table: every seed of every row on every column, in processes, with a ledger to go on from.

OUT/config.yaml     the settings        OUT/runs/NAME/    a run of `tag train`, `lm train` or `search`
OUT/ledger.json     runs, time spent    OUT/table.yaml    a copy of the table          OUT/table.md    what it shows
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError, brief, did_you_mean
from flair_nas.experiments.config import parse_time
from flair_nas.experiments.jobs import Job, Pool
from flair_nas.experiments.layers import identity
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.local_pool import not_while_imported
from flair_nas.experiments.pool import make_pool
from flair_nas.experiments.tasks import TASKS
from flair_nas.library.layer_spec import advised_learning_rate, warn_of_risks
from flair_nas.library.named import LAYER_NAMES
from flair_nas.runs.duration import duration
from flair_nas.runs.run import Run, open_run
from flair_nas.settings.fields import flatten
from flair_nas.storage.files import write_text
from flair_nas.storage.paths import user_path
from flair_nas.tables.config import TableConfig
from flair_nas.tables.sizing import size_by_count, size_by_time
from flair_nas.tables.spec import (
    Column,
    Row,
    Table,
    bundled_tables,
    load_table,
    run_settings,
    search_settings,
    slug,
    table_file,
)

log = logging.getLogger("flair_nas")

COPY = "table.yaml"
_MAY_CHANGE = tuple(field.name for field in dataclasses.fields(TableConfig) if field.name != "table")
_PLACES = ("data_root", "text", "device")  # places on a machine, which do not change a run
_BEFORE = {**dict.fromkeys(("init_range", "storage", "delimiter", "comment")), "frequency_bias": False, "min_steps": 0}
"""Settings that older tables lack, with their values."""


def run_table(config: TableConfig, out: str | Path) -> tuple[Table, Ledger, str]:
    """Run what a table needs, as far as the budget goes.

    Args:
        config: the settings.
        out: a folder that is new or empty, or one of an earlier call. The table goes on there: what has changed in it
            is run anew, the rest is kept.

    Returns:
        The table, its runs, and in words what is left to do, or an empty string.

    Raises:
        FlairNasError: table, settings, corpus or folder cannot be used.
        RunStopped: Ctrl-C; the message says how to go on.
        OSError: the folder cannot be written, or the disk is full.
    """
    not_while_imported()
    copy = user_path(out) / COPY
    exists = config.table in bundled_tables() or user_path(config.table).exists() or not copy.exists()
    source = config.table if exists else str(copy)
    table = load_table(source)
    with (
        open_run(out, config, may_change=_MAY_CHANGE, quantity="table", command="flair-nas tables run") as run,
        make_pool(config) as pool,
    ):
        running = _Running(run, pool, table)
        for text in dict.fromkeys(row.rnn for row in running.rows if row.rnn):
            warn_of_risks(text, LAYER_NAMES)
        for column in table.columns:
            running.read(column)  # a fault found here leaves no folder behind
        run.accept()
        write_text(run.folder / COPY, table_file(source).read_text(encoding="utf-8"))
        return table, running.ledger, running.run_all()


class _Running:
    """A table in its folder."""

    def __init__(self, run: Run[TableConfig], pool: Pool, table: Table) -> None:
        self.run, self.pool, self.table = run, pool, table
        self.config: TableConfig = run.config
        self.rows = _select_rows(table, self.config.rows)
        self.ledger = Ledger(run.folder / "ledger.json")
        self.data: dict[str, Any] = {}  # by column

    def run_all(self) -> str:
        from flair_nas.tables.showing import make_grid, to_markdown

        self.ledger.begin(self.config.budget or "")
        (self.run.folder / "runs").mkdir(exist_ok=True)
        cells = [(row, column) for row in self.rows for column in self.table.columns]
        searches = [self._search_job(row, column) for row, column in cells if row.search is not None]
        seeds = self.config.seeds or self.table.seeds
        self._note_cells(seeds)
        self._prepare(seeds)
        self._do(searches, "searches")
        self._do([job for row, column in cells if (job := self._size_job(row, column)) is not None], "hidden sizes")
        self._note_cells(seeds)
        known = [(r, c) for c in self.table.columns for r in self.rows if self._first_job(r, c) is None]
        self._do([self._job(row, column, seed) for seed in seeds for row, column in known], "runs")
        write_text(self.run.folder / "table.md", to_markdown(self.table, make_grid(self.table, self.ledger)))
        open_searches = sum(not self._is_done(job) for job in searches)
        left = sum(not self._is_done(self._job(row, column, seed)) for row, column in cells for seed in seeds)
        parts = [f"{open_searches} searches"] * bool(open_searches) + [f"{left} runs"] * bool(left)
        return f"{' and '.join(parts)} are still to be done" if parts else ""

    def _note_cells(self, seeds: Sequence[int]) -> None:
        """Write down the runs of each cell of the table, done or not, from which it is shown.

        In their place is the job that they wait for, as its failure is shown.
        """
        cells: dict[str, list[str]] = {}
        measured: dict[str, str] = {}
        for row in self.table.rows:
            for column in self.table.columns:
                names = (self._job(row, column, seed).name for seed in seeds)
                cells[f"{row.name} / {column.name}"] = list(dict.fromkeys(names))
                if (size := self._size_job(row, column)) is not None:
                    measured[f"{row.name} / {column.name}"] = size.name
        self.ledger.plan |= {"cells": cells, "measured": measured}
        self.ledger.save()

    def _prepare(self, seeds: Sequence[int]) -> None:
        """Describe the data of columns that have runs left, and do once what each run would do."""
        for column in self.table.columns:
            jobs = (self._job(row, column, seed) for row in self.rows for seed in seeds)
            if not self._is_spent() and not all(map(self._is_done, jobs)):
                settings = run_settings(self.rows[0], self._placed(column), "lstm")
                TASKS[column.task].work.prepare(settings, self.read(column), progress=False)

    def _is_spent(self) -> bool:
        limit = parse_time(self.config.budget) if self.config.budget else None
        return limit is not None and self.ledger.seconds > limit

    def _do(self, jobs: Sequence[Job], kind: str) -> None:
        """Do the jobs that are not done, until the time is spent."""
        pending = [job for job in jobs if not self._is_done(job)]
        if not pending or self._is_spent():
            return
        started = time.perf_counter()
        log.info("%s: %d of %d %s are to be done", self.table.title, len(pending), len(jobs), kind)
        with contextlib.closing(self.pool.run(pending)) as outcomes:
            for done, outcome in enumerate(outcomes, start=1):
                worked, spent = self.ledger.note(outcome), self.ledger.seconds
                each = (time.perf_counter() - started) / done
                if worked:
                    rest = duration(each * (len(pending) - done))
                    name = outcome.job.name
                    log.info("%d of %d %s, %s; %s, %s left", done, len(pending), kind, name, duration(spent), rest)
                if self._is_spent():  # jobs at work go on from their checkpoints next time
                    return

    def _is_done(self, job: Job) -> bool:
        """Return True if a job failed, or has a layer, a size, or scores, which older ledgers lack for texts."""
        return not {"error", "genotype", "hidden_size", "counts"}.isdisjoint(self.ledger.runs.get(job.name, {}))

    def _search_job(self, row: Row, column: Column) -> Job:
        settings = flatten(search_settings(row, self._placed(column)))
        name = f"search-{_name(row, column, settings, self._fingerprint(column))}"
        return Job(name, TASKS[column.task].work.search, (settings, str(self.run.folder / "runs" / name)), column.name)

    def _first_job(self, row: Row, column: Column) -> Job | None:
        """Return the job that a row's runs on a column wait for: its search, then its size; None if nothing is left."""
        if row.search is not None and self._find_layer(row, column) is None:
            return self._search_job(row, column)
        size = self._size_job(row, column)
        return None if size is None or "hidden_size" in self.ledger.runs.get(size.name, {}) else size

    def _find_layer(self, row: Row, column: Column) -> str | None:
        """Return the layer spec of a row; None if its search failed or has not ended."""
        if row.rnn is not None:
            return row.rnn
        genotype: str | None = self.ledger.runs.get(self._search_job(row, column).name, {}).get("genotype")
        return genotype

    def _size_job(self, row: Row, column: Column) -> Job | None:
        """Return the job that finds a size; None if the row has its own, or its layer is unknown."""
        column, rnn, reference = self._placed(column), self._find_layer(row, column), row.time_of or row.size_of
        if reference is None or rnn is None:
            return None
        key, find = ("time_of", size_by_time) if row.time_of else ("size_of", size_by_count)
        other, data = next(row for row in self.table.rows if row.name == reference), self._fingerprint(column)
        both = _layer_settings(row, column, rnn), _layer_settings(other, column, other.rnn or "")
        own, others = (dataclasses.asdict(TASKS[column.task].settings(**settings)) for settings in both)
        name = f"size-{_name(row, column, {**own, key: _name(other, column, others, data)}, data)}"
        return Job(name, find, (column.task, own, others))

    def _job(self, row: Row, column: Column, seed: int) -> Job:
        """Return a run, or the job that it waits for."""
        if (first := self._first_job(row, column)) is not None:
            return first
        column, task = self._placed(column), TASKS[column.task]
        settings = _layer_settings(row, column, self._find_layer(row, column) or "")
        if (sizing := self._size_job(row, column)) is not None:  # a budget forgets the plan, not the runs
            settings["hidden_size"] = self.ledger.runs[sizing.name]["hidden_size"]
        whole = dataclasses.asdict(task.settings(**{**settings, **task.work.seeded(seed)}))
        name = f"{_name(row, column, whole, self._fingerprint(column))}-seed{seed}"
        return Job(name, task.work.train, (whole, str(self.run.folder / "runs" / name), True), column.name)

    def _placed(self, column: Column) -> Column:
        """Return a column with the places that the settings name."""
        config = self.config
        places: dict[str, Any] = {"device": config.device}
        if column.task == "tagging":
            places |= {"data_root": config.data_root, "embeddings": config.embeddings}
        elif "text" not in column.settings:
            places["text"] = config.text
        settings = {**column.settings, **{name: value for name, value in places.items() if value}}
        if column.task == "text" and not settings.get("text"):
            raise FlairNasError(f"column {column.name} is of a text that the table does not name: give --text")
        return dataclasses.replace(column, settings=settings)

    def _fingerprint(self, column: Column) -> str:
        """Return the fingerprint of a column's data."""
        return TASKS[column.task].work.fingerprint(self.read(column))

    def read(self, column: Column) -> Any:
        """Return the data of a column, read once."""
        if column.name not in self.data:
            self.data[column.name] = TASKS[column.task].work.read(self._placed(column).settings)
        return self.data[column.name]


def _select_rows(table: Table, names: Sequence[str]) -> list[Row]:
    """Return the rows of these names, or all for ``all``, in the table's order."""
    if names == ["all"]:
        return list(table.rows)
    known = [row.name for row in table.rows]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise FlairNasError(f"rows: {table.title} has no row {brief(name)}: {hint}its rows: {', '.join(known)}")
    return [row for row in table.rows if row.name in names]


def _layer_settings(row: Row, column: Column, rnn: str) -> dict[str, Any]:
    """Return the settings of a run, with the learning rate that its layer is stored with if they have none."""
    settings = run_settings(row, column, rnn)
    if column.task == "tagging" and rnn and settings.get("learning_rate") is None:
        settings["learning_rate"] = advised_learning_rate(rnn, LAYER_NAMES)
    return settings


def _name(row: Row, column: Column, settings: dict[str, Any], data: str) -> str:
    """Return the name of a run without its seed; it depends on settings, layer and data."""
    kept = {
        name: value
        for name, value in settings.items()
        if name not in (*_PLACES, "seed", "seeds") and not (name in _BEFORE and value == _BEFORE[name])
    }
    if "rnn" in kept:
        kept["rnn"] = identity(kept["rnn"])
    digest = hashlib.sha256(json.dumps([kept, data], sort_keys=True).encode()).hexdigest()[:8]
    return f"{slug(column.name)}-{slug(row.name)}-{digest}"
