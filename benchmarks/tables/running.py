"""Runs of a table: every seed of every row on every column, in processes, with a ledger to go on from.

OUT/ledger.json     runs, time spent    OUT/runs/NAME/    a run of `tag train`, `lm train` or `search`
OUT/table.md        what it shows
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqeval.scheme import IOB2, Entities

from benchmarks.tables.showing import make_grid, to_markdown
from benchmarks.tables.sizing import size_by_count
from benchmarks.tables.spec import SEARCHES, Column, Row, Table, run_settings, search_settings
from flair_nas.experiments.config import PoolSettings
from flair_nas.experiments.jobs import Job, Pool
from flair_nas.experiments.ledger import Ledger
from flair_nas.experiments.local_pool import not_while_imported
from flair_nas.experiments.pool import make_pool
from flair_nas.experiments.tasks import TASKS
from flair_nas.library.layer_spec import advised_learning_rate, identity
from flair_nas.search.trainer import search_genotype
from flair_nas.settings.fields import flatten, make_settings

log = logging.getLogger("flair_nas")

_PLACES = ("data_root", "text", "device")  # places on a machine, which do not change a run


def run_table(
    table: Table,
    out: Path,
    *,
    rows: Sequence[str] = (),
    seeds: Sequence[int] = (),
    pool: PoolSettings | None = None,
    **places: Any,
) -> Ledger:
    """Run what a table needs.

    Args:
        table: the table.
        out: a new folder, or one of an earlier call. What has changed in the table is run anew, the rest is kept.
        rows: names of rows, if not all are wanted.
        seeds: in place of those of the table.
        pool: settings of the processes.
        places: `data_root`, `embeddings`, `text` and `device` in place of those of the columns, where not None.
    """
    not_while_imported()
    chosen = [row for row in table.rows if not rows or row.name in rows]
    places = {name: value for name, value in places.items() if value}
    columns = [_placed(column, places) for column in table.columns]
    table = dataclasses.replace(table, columns=columns, seeds=seeds or table.seeds)
    (out / "runs").mkdir(parents=True, exist_ok=True)
    ledger = Ledger(out / "ledger.json")
    ledger.begin("")
    with make_pool(pool or PoolSettings()) as processes:
        running = _Running(table, out, ledger, processes)
        cells = [(row, column) for row in chosen for column in columns]
        running.do([running.search_job(row, column) for row, column in cells if row.search is not None], "searches")
        sizes = [running.size_job(row, column) for row, column in cells]
        running.do([job for job in sizes if job is not None], "hidden sizes")
        running.note_cells()
        ready = [(row, column) for row, column in cells if running.is_sized(row, column)]
        running.do([running.job(row, column, seed) for seed in table.seeds for row, column in ready], "runs")
    (out / "table.md").write_text(to_markdown(table, make_grid(table, ledger)), encoding="utf-8")
    return ledger


def _placed(column: Column, places: Mapping[str, Any]) -> Column:
    """Return a column with the places on this machine; a text that the table names stays."""
    taken = ("data_root", "embeddings", "device") if column.task == "tagging" else ("text", "device")
    given = {name: value for name, value in places.items() if name in taken}
    if "text" in column.settings:
        given.pop("text", None)
    return dataclasses.replace(column, settings={**column.settings, **given})


class _Running:
    """A table in its folder."""

    def __init__(self, table: Table, out: Path, ledger: Ledger, pool: Pool) -> None:
        self.table, self.out, self.ledger, self.pool = table, out, ledger, pool

    def do(self, jobs: Sequence[Job], kind: str) -> None:
        """Do the jobs that are not done."""
        pending = [job for job in jobs if job.name not in self.ledger.runs]
        with contextlib.closing(self.pool.run(pending)) as outcomes:
            for done, outcome in enumerate(outcomes, start=1):
                if self.ledger.note(outcome):
                    log.info("%d of %d %s: %s", done, len(pending), kind, outcome.job.name)

    def note_cells(self) -> None:
        """Write down the runs of each cell of the table, from which it is shown."""
        cells: dict[str, list[str]] = {}
        sizes: dict[str, str] = {}
        for row in self.table.rows:
            for column in self.table.columns:
                cell = f"{row.name} / {column.name}"
                if (size := self.size_job(row, column)) is not None:
                    sizes[cell] = size.name
                if self.is_sized(row, column):
                    cells[cell] = [self.job(row, column, seed).name for seed in self.table.seeds]
                else:  # the failure of what the runs wait for is shown
                    cells[cell] = [size.name if size is not None else self.search_job(row, column).name]
        self.ledger.plan |= {"cells": cells, "measured": sizes}
        self.ledger.save()

    def search_job(self, row: Row, column: Column) -> Job:
        """Return the search of a row on a column."""
        settings = flatten(search_settings(row, column))
        name = f"search-{_name(row, column, settings)}"
        return Job(name, search, (column.task, settings, str(self.out / "runs" / name)), column.name)

    def find_layer(self, row: Row, column: Column) -> str | None:
        """Return the layer spec of a row; None if its search failed or has not ended."""
        if row.rnn is not None:
            return row.rnn
        layer: str | None = self.ledger.runs.get(self.search_job(row, column).name, {}).get("genotype")
        return layer

    def size_job(self, row: Row, column: Column) -> Job | None:
        """Return the job that finds a size; None if the row has its own, or its layer is unknown."""
        rnn = self.find_layer(row, column)
        if row.size_of is None or rnn is None:
            return None
        other = next(other for other in self.table.rows if other.name == row.size_of)
        both = _layer_settings(row, column, rnn), _layer_settings(other, column, other.rnn or "")
        own, others = (dataclasses.asdict(TASKS[column.task].settings(**settings)) for settings in both)
        name = f"size-{_name(row, column, {**own, 'like': _name(other, column, others)})}"
        return Job(name, size_by_count, (column.task, own, others))

    def is_sized(self, row: Row, column: Column) -> bool:
        """Return True if the layer of a row, and its size, are known."""
        size = self.size_job(row, column)
        known = size is None or "hidden_size" in self.ledger.runs.get(size.name, {})
        return known and self.find_layer(row, column) is not None

    def job(self, row: Row, column: Column, seed: int) -> Job:
        """Return the run of a row that is sized."""
        task, settings = TASKS[column.task], _layer_settings(row, column, self.find_layer(row, column) or "")
        if (size := self.size_job(row, column)) is not None:
            settings["hidden_size"] = self.ledger.runs[size.name]["hidden_size"]
        whole = dataclasses.asdict(task.settings(**{**settings, **task.work.seeded(seed)}))
        name = f"{_name(row, column, whole)}-seed{seed}"
        return Job(name, train, (column.task, whole, str(self.out / "runs" / name)), column.name)


def search(task: str, settings: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Search a cell, or go on with it; return its ``genotype`` as a layer spec."""
    shared = {"storage": "disk"} if task == "tagging" else {}  # all processes read vectors from the same files
    config = make_settings(SEARCHES[task], {**settings, **shared})
    return {"genotype": search_genotype(config, folder, progress=False).genotype.spec()}


def train(task: str, settings: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Train a model; return its figures, for tags with ``unseen``, how many entities training did not have.

    They are the right ones among them, and all.
    """
    work = TASKS[task].work
    figures = work.train(settings, folder, True)
    return figures | ({"unseen": count_unseen(settings, Path(folder))} if task == "tagging" else {})


def count_unseen(settings: Mapping[str, Any], folder: Path) -> tuple[int, int]:
    """Count the right entities of a tagger's predictions among those that training did not have, and all of these."""
    from flair_nas.experiments.tagging_task import read
    from flair_nas.tagging.data.corpora import sentences_of

    data = read(settings)
    labels = (label for sentence in sentences_of(data.corpus.train) for label in sentence.get_labels(data.label_type))
    seen = {label.data_point.text.lower() for label in labels}
    (run,) = folder.glob("seed-*")
    path = run / ("test.txt" if data.corpus.test else "dev.txt")
    right = total = 0
    for block in path.read_text(encoding="utf-8").strip("\n").split("\n\n"):
        words, gold, predicted = zip(*(line.rsplit("\t", 2) for line in block.split("\n")))
        for start, end, tag in _entities(gold):
            if " ".join(words[start:end]).lower() not in seen:
                total += 1
                right += (start, end, tag) in _entities(predicted)
    return right, total


def _entities(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    (entities,) = Entities([[*tags]], IOB2).entities
    return {(entity.start, entity.end, entity.tag) for entity in entities}


def _layer_settings(row: Row, column: Column, rnn: str) -> dict[str, Any]:
    """Return the settings of a run, with the learning rate that its layer is stored with if they have none."""
    settings = run_settings(row, column, rnn)
    if column.task == "tagging" and rnn and settings.get("learning_rate") is None:
        settings["learning_rate"] = advised_learning_rate(rnn)
    return settings


def _name(row: Row, column: Column, settings: Mapping[str, Any]) -> str:
    """Return the name of a run without its seed; it depends on settings and layer."""
    kept = {name: value for name, value in settings.items() if name not in (*_PLACES, "seed", "seeds")}
    if "rnn" in kept:
        kept["rnn"] = identity(kept["rnn"])
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:8]
    return f"{_slug(column.name)}-{_slug(row.name)}-{digest}"


def _slug(name: str) -> str:
    return re.sub(r"[^\w.]+", "_", name)[:40].strip("_.")
