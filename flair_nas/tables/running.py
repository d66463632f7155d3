"""Running a table: every seed of every row on every column, in processes, with a ledger to go on from.

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
from flair_nas.experiments.config import seconds_of
from flair_nas.experiments.jobs import Job, Pool
from flair_nas.experiments.layers import identity
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.local_pool import not_while_imported
from flair_nas.experiments.pool import make_pool
from flair_nas.experiments.tasks import TASKS
from flair_nas.library.layer_spec import say_risks
from flair_nas.runs.duration import duration
from flair_nas.runs.run import Run, open_run
from flair_nas.storage.files import write_text
from flair_nas.storage.paths import user_path
from flair_nas.tables.config import TableConfig
from flair_nas.tables.sizing import count_size, measure_size
from flair_nas.tables.spec import (
    Column,
    Row,
    Table,
    bundled_tables,
    load_table,
    search_settings,
    settings_of,
    slug,
    table_file,
)
from flair_nas.tagging.config import FLAIR_TYPES

log = logging.getLogger("flair_nas")

COPY = "table.yaml"
_MAY_CHANGE = tuple(field.name for field in dataclasses.fields(TableConfig) if field.name != "table")
_PLACES = ("data_root", "text", "device")  # where something is on a machine; a run is the same wherever they lie
_BEFORE_DERIVED = {"frequency_bias": False, "min_steps": 0}
"""Settings that follow from the text, and what they were in searches before there were any."""
_BEFORE = {"init_range": None, "storage": None, "delimiter": None, "comment": None, **_BEFORE_DERIVED}
"""Settings that tables once did not have, and what they stood for."""


def run_table(config: TableConfig, out: str | Path) -> tuple[Table, Ledger, str]:
    """Runs what a table needs, as far as the budget goes.

    Args:
        config: the settings.
        out: a folder that is new or empty, or one of an earlier call: it goes on there. What has changed in the table
            is run anew, the rest is kept.

    Returns:
        The table, its runs, and what is still to be done, in words; empty if nothing is.

    Raises:
        FlairNasError: a table, settings, corpus or folder that cannot be used.
        RunStopped: after Ctrl-C; the message says how to go on.
        OSError: the folder cannot be written, or the disk is full.
    """
    not_while_imported()
    kept = user_path(out) / COPY
    there = config.table in bundled_tables() or user_path(config.table).exists() or not kept.exists()
    source = config.table if there else str(kept)
    table = load_table(source)
    with (
        open_run(out, config, may_change=_MAY_CHANGE, quantity="table", command="flair-nas tables run") as run,
        make_pool(config) as pool,
    ):
        running = _Running(run, pool, table)
        for text in dict.fromkeys(row.rnn for row in running.rows if row.rnn):
            say_risks(text, FLAIR_TYPES)
        run.accept()
        write_text(run.folder / COPY, table_file(source).read_text(encoding="utf-8"))
        return table, running.ledger, running.run_all()


class _Running:
    """A table in its folder."""

    def __init__(self, run: Run, pool: Pool, table: Table) -> None:
        self.run, self.pool, self.table = run, pool, table
        self.config: TableConfig = run.config
        self.rows = _rows_named(table, self.config.rows)
        self.ledger = Ledger(run.folder / "ledger.json")
        self.data: dict[str, Any] = {}  # by column

    def run_all(self) -> str:
        from flair_nas.tables.showing import grid_of, to_markdown

        self.ledger.begin(self.config.budget or "")
        (self.run.folder / "runs").mkdir(exist_ok=True)
        cells = [(row, column) for row in self.rows for column in self.table.columns]
        searches = [self._search_job(row, column) for row, column in cells if row.search is not None]
        seeds = self.config.seeds or self.table.seeds
        self._note_cells(self._jobs(self.table.rows, seeds))
        self._prepare(seeds)
        self._do(searches, "searches")
        self._do([job for row, column in cells if (job := self._size_job(row, column)) is not None], "hidden sizes")
        self._note_cells(self._jobs(self.table.rows, seeds))
        jobs = self._jobs(self.rows, seeds)
        self._do(jobs, "runs")
        write_text(self.run.folder / "table.md", to_markdown(self.table, grid_of(self.table, self.ledger)))
        open_searches = sum(not self._is_done(job) for job in searches)
        before = [job for row, column in cells if (job := self._first_job(row, column)) is not None]
        left = sum(not self._is_done(job) for job in jobs) + sum(not self._is_done(job) for job in before) * len(seeds)
        parts = [f"{open_searches} searches"] * bool(open_searches) + [f"{left} runs"] * bool(left)
        return f"{' and '.join(parts)} are still to be done" if parts else ""

    def _jobs(self, rows: Sequence[Row], seeds: Sequence[int]) -> list[Job]:
        """The runs of rows whose layer and size are known; all of them with one seed come first."""
        cells = [(row, column) for column in self.table.columns for row in rows]
        found = [self._job(row, column, seed) for seed in seeds for row, column in cells]
        return [job for job in found if job is not None]

    def _note_cells(self, jobs: Sequence[Job]) -> None:
        """Writes down which runs each cell of the table has, done or not; a table is shown from these alone."""
        cells: dict[str, list[str]] = {}
        measured: dict[str, str] = {}
        for row in self.table.rows:
            for column in self.table.columns:
                start = f"{slug(column.name)}-{slug(row.name)}-"
                found = [job.name for job in jobs if job.name.startswith(start)]
                first = None if found else self._first_job(row, column)
                if first is not None:  # if it fails, that is what there is to be told
                    found = [first.name]
                cells[f"{row.name} / {column.name}"] = found
                if (size := self._size_job(row, column)) is not None:
                    measured[f"{row.name} / {column.name}"] = size.name
        self.ledger.plan |= {"cells": cells, "measured": measured}
        self.ledger.save()

    def _prepare(self, seeds: Sequence[int]) -> None:
        """Does once what each run on a column would do, and says what there is to say of it, where runs are left."""
        for column in self.table.columns:
            if not self._is_spent() and any(self._is_open(row, column, seed) for row in self.rows for seed in seeds):
                settings = settings_of(self.rows[0], self._placed(column), "lstm")
                TASKS[column.task].work.prepare(settings, self._read(column), progress=False)

    def _is_open(self, row: Row, column: Column, seed: int) -> bool:
        """Whether a run, or the search before it, is still to be done."""
        job = self._job(row, column, seed) or self._first_job(row, column)
        return job is not None and not self._is_done(job)

    def _is_spent(self) -> bool:
        limit = seconds_of(self.config.budget) if self.config.budget else None
        return limit is not None and self.ledger.seconds > limit

    def _do(self, jobs: Sequence[Job], what: str) -> None:
        """Does the jobs that are not done, until the time is spent; what they are is said."""
        wanted = [job for job in jobs if not self._is_done(job)]
        if not wanted or self._is_spent():
            return
        started = time.perf_counter()
        log.info("%s: %d of %d %s are to be done", self.table.title, len(wanted), len(jobs), what)
        with contextlib.closing(self.pool.run(wanted)) as outcomes:
            for done, outcome in enumerate(outcomes, start=1):
                worked, spent = self.ledger.note(outcome), self.ledger.seconds
                each = (time.perf_counter() - started) / done
                if worked:
                    rest = duration(each * (len(wanted) - done))
                    name = outcome.job.name
                    log.info("%d of %d %s, %s; %s, %s left", done, len(wanted), what, name, duration(spent), rest)
                if self._is_spent():  # what is at work goes on from its checkpoint next time
                    return

    def _is_done(self, job: Job) -> bool:
        """Whether it has what it is for: a failure, a layer, a size, or scores, which older ledgers lack for texts."""
        return not {"error", "genotype", "hidden_size", "counts"}.isdisjoint(self.ledger.runs.get(job.name, {}))

    def _search_job(self, row: Row, column: Column) -> Job:
        now = dataclasses.asdict(search_settings(row, self._placed(column)))
        older = {name: _BEFORE_DERIVED.get(name, value) for name, value in now.items()}
        for settings in (older, now):  # a search that began before there was the setting stays
            name = f"search-{_name(row, column, settings, self._data_of(column))}"
            folder = self.run.folder / "runs" / name
            if name in self.ledger.runs or folder.exists():
                break
        return Job(name, TASKS[column.task].work.search, (settings, str(folder)), column.name)

    def _first_job(self, row: Row, column: Column) -> Job | None:
        """What a row's runs on a column wait for: its search, then its size; None if there is nothing."""
        if row.search is not None and self._layer_of(row, column) is None:
            return self._search_job(row, column)
        size = self._size_job(row, column)
        return None if size is None or "hidden_size" in self.ledger.runs.get(size.name, {}) else size

    def _layer_of(self, row: Row, column: Column) -> str | None:
        """What ``rnn`` is for a row; None where it was searched in vain, or not yet."""
        if row.rnn is not None:
            return row.rnn
        found: str | None = self.ledger.runs.get(self._search_job(row, column).name, {}).get("genotype")
        return found

    def _size_job(self, row: Row, column: Column) -> Job | None:
        """The job that finds a size; None where the row has one of its own, or its layer is not known."""
        column, rnn, of = self._placed(column), self._layer_of(row, column), row.time_of or row.size_of
        if of is None or rnn is None:
            return None
        key, find = ("time_of", measure_size) if row.time_of else ("size_of", count_size)
        other, data = next(row for row in self.table.rows if row.name == of), self._data_of(column)
        settings, of_other = settings_of(row, column, rnn), settings_of(other, column, other.rnn or "")
        whole, of_other = (dataclasses.asdict(TASKS[column.task].settings(**given)) for given in (settings, of_other))
        name = f"size-{_name(row, column, {**whole, key: _name(other, column, of_other, data)}, data)}"
        return Job(name, find, (column.task, whole, of_other))

    def _job(self, row: Row, column: Column, seed: int) -> Job | None:
        """A run; None where its layer or its size was looked for in vain, or not yet."""
        column, rnn, task = self._placed(column), self._layer_of(row, column), TASKS[column.task]
        if rnn is None:
            return None
        settings = settings_of(row, column, rnn)
        sizing = self._size_job(row, column)
        if sizing is not None:  # it is kept with the runs: a plan is forgotten with another budget
            size = self.ledger.runs.get(sizing.name, {}).get("hidden_size")
            if size is None:
                return None
            settings["hidden_size"] = size
        whole = dataclasses.asdict(task.settings(**{**settings, **task.work.seeded(seed)}))
        name = f"{_name(row, column, whole, self._data_of(column))}-seed{seed}"
        return Job(name, task.work.train, (whole, str(self.run.folder / "runs" / name), True), column.name)

    def _placed(self, column: Column) -> Column:
        """A column with the places that the settings give."""
        config = self.config
        given: dict[str, Any] = {"device": config.device}
        if column.task == "tagging":
            given |= {"data_root": config.data_root, "embeddings": config.embeddings}
        elif "text" not in column.settings:
            given["text"] = config.text
        settings = {**column.settings, **{name: value for name, value in given.items() if value}}
        if column.task == "text" and not settings.get("text"):
            raise FlairNasError(f"column {column.name} is of a text that the table does not name: give --text")
        return dataclasses.replace(column, settings=settings)

    def _data_of(self, column: Column) -> str:
        """What the data of a column are, wherever they lie."""
        return TASKS[column.task].work.fingerprint(self._read(column))

    def _read(self, column: Column) -> Any:
        """The data of a column, read once."""
        if column.name not in self.data:
            self.data[column.name] = TASKS[column.task].work.read(self._placed(column).settings)
        return self.data[column.name]


def _rows_named(table: Table, names: Sequence[str]) -> list[Row]:
    """The rows of these names, in the table's order; all of them if that is what is said."""
    if names == ["all"]:
        return list(table.rows)
    known = [row.name for row in table.rows]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise FlairNasError(f"rows: {table.title} has no row {brief(name)}: {hint}its rows: {', '.join(known)}")
    return [row for row in table.rows if row.name in names]


def _name(row: Row, column: Column, settings: dict[str, Any], data: str) -> str:
    """Of a run, but for its seed: other settings, another layer or other data give another name."""
    kept = {
        name: value
        for name, value in settings.items()
        if name not in (*_PLACES, "seed", "seeds") and not (name in _BEFORE and value == _BEFORE[name])
    }
    if "rnn" in kept:
        kept["rnn"] = identity(kept["rnn"])
    digest = hashlib.sha256(json.dumps([kept, data], sort_keys=True).encode()).hexdigest()[:8]
    return f"{slug(column.name)}-{slug(row.name)}-{digest}"
