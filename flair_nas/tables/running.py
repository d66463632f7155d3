"""Running a table: every seed of every row on every column, in processes, with a ledger to go on from.

OUT/config.yaml     the settings        OUT/runs/NAME/    a run of `tag train`, `lm train` or `search`
OUT/ledger.json     runs, time spent    OUT/table.md      the table so far
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
from typing import TYPE_CHECKING, Any

import torch

from flair_nas.errors import FlairNasError
from flair_nas.files import write_text
from flair_nas.runs import Run, open_run
from flair_nas.search.display import duration
from flair_nas.select.candidates import Layer, matched_size, parameters
from flair_nas.select.config import seconds_of
from flair_nas.select.ledger import Ledger
from flair_nas.select.training import search
from flair_nas.select.workers import Job, Pool, make_pool
from flair_nas.tables.config import TableConfig
from flair_nas.tables.spec import TASKS, Column, Row, Table, load_table, search_settings, settings_of, slug
from flair_nas.tables.work import search_on_text, train_on_tags, train_on_text

if TYPE_CHECKING:
    from flair_nas.select.ray_pool import RayPool

log = logging.getLogger("flair_nas")

_MAY_CHANGE = tuple(field.name for field in dataclasses.fields(TableConfig) if field.name != "table")
_PLACES = ("data_root", "text", "device")  # where something is on a machine; a run is the same wherever they lie
_WORK = {"tagging": (train_on_tags, search), "text": (train_on_text, search_on_text)}


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
    table = load_table(config.table)
    with (
        open_run(out, config, may_change=_MAY_CHANGE, quantity="table", command="flair-nas tables run") as run,
        make_pool(config) as pool,
    ):
        running = _Running(run, pool, table)
        return table, running.ledger, running.run_all()


class _Running:
    """A table in its folder."""

    def __init__(self, run: Run, pool: Pool | RayPool, table: Table) -> None:
        self.run, self.pool, self.table = run, pool, table
        self.config: TableConfig = run.config
        self.ledger = Ledger(run.folder / "ledger.json")
        self.before, self.started = self.ledger.seconds, time.perf_counter()

    def run_all(self) -> str:
        from flair_nas.tables.showing import grid_of, to_markdown

        self.run.accept()
        self.ledger.begin(self.config.budget or "")
        (self.run.folder / "runs").mkdir(exist_ok=True)
        searches = [(row, column) for row in self.table.rows for column in self.table.columns if row.search is not None]
        self._do([self._search_job(row, column) for row, column in searches])
        jobs = []
        for seed in self.config.seeds or self.table.seeds:  # the whole table with one seed comes first
            for column in self.table.columns:
                for row in self.table.rows:
                    if job := self._job(row, column, seed):
                        jobs.append(job)
        self._do(jobs)
        left = sum(job.name not in self.ledger.runs for job in jobs)
        self.ledger.plan["cells"] = cells_of(self.table, self.ledger, jobs)
        self._save()
        write_text(self.run.folder / "table.md", to_markdown(self.table, grid_of(self.table, self.ledger)))
        return f"{left} of {len(jobs)} runs are still to be done" if left else ""

    def _do(self, jobs: Sequence[Job]) -> None:
        """Does the jobs that are not done, until the time is spent."""
        wanted = [job for job in jobs if job.name not in self.ledger.runs]
        limit = seconds_of(self.config.budget) if self.config.budget else None
        if not wanted or (limit is not None and self._spent() > limit):
            return
        log.info("%s: %d of %d runs are to be done", self.table.title, len(wanted), len(jobs))
        with contextlib.closing(self.pool.run(wanted)) as outcomes:
            for done, outcome in enumerate(outcomes, start=1):
                worked = self.ledger.note(outcome)
                self._save()
                spent = self._spent()
                each = (time.perf_counter() - self.started) / done
                if worked:
                    rest = duration(each * (len(wanted) - done))
                    log.info("%d of %d, %s; %s, %s left", done, len(wanted), outcome.job.name, duration(spent), rest)
                if limit is not None and spent > limit:  # what is at work goes on from its checkpoint next time
                    return

    def _search_job(self, row: Row, column: Column) -> Job:
        settings = dataclasses.asdict(search_settings(row, self._placed(column)))
        name = f"search-{_name(row, column, settings)}"
        return Job(name, _WORK[column.task][1], (settings, str(self.run.folder / "runs" / name)))

    def _job(self, row: Row, column: Column, seed: int) -> Job | None:
        """A run; None where its layer was searched in vain, or not yet."""
        column, rnn = self._placed(column), row.rnn
        if rnn is None:
            rnn = self.ledger.runs.get(self._search_job(row, column).name, {}).get("genotype")
            if rnn is None:
                return None
        settings = settings_of(row, column, rnn)
        if row.size_of is not None:
            other = next(other for other in self.table.rows if other.name == row.size_of)
            settings["hidden_size"] = self._size_like(settings, settings_of(other, column, other.rnn or ""), column)
        seeds = {"seeds": [seed], "storage": "disk"} if column.task == "tagging" else {"seed": seed}
        whole = dataclasses.asdict(TASKS[column.task][0](**{**settings, **seeds}))
        name = f"{_name(row, column, whole)}-seed{seed}"
        return Job(name, _WORK[column.task][0], (whole, str(self.run.folder / "runs" / name)))

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

    def _size_like(self, settings: dict[str, Any], other: dict[str, Any], column: Column) -> int:
        """The hidden size with which a layer has as many parameters as another one."""
        plan = self.ledger.plan.setdefault("sizes", {})
        key = hashlib.sha256(json.dumps([settings, other], sort_keys=True).encode()).hexdigest()[:16]
        if key not in plan:
            count = _count_on_tags(settings, other) if column.task == "tagging" else _count_on_text(settings)
            plan[key] = matched_size(lambda size: count(settings["rnn"], size), count(other["rnn"], None))
            self._save()
        return int(plan[key])

    def _spent(self) -> float:
        return self.before + time.perf_counter() - self.started

    def _save(self) -> None:
        self.ledger.seconds = self._spent()
        self.ledger.save()


def cells_of(table: Table, ledger: Ledger, jobs: Sequence[Job]) -> dict[str, list[str]]:
    """The names of the runs of each cell that are there, by ``ROW / COLUMN``; a table is shown from these alone."""
    found: dict[str, list[str]] = {}
    for row in table.rows:
        for column in table.columns:
            start = f"{slug(column.name)}-{slug(row.name)}-"
            names = [job.name for job in jobs if job.name.startswith(start) and job.name in ledger.runs]
            found[f"{row.name} / {column.name}"] = names
    return found


def _name(row: Row, column: Column, settings: dict[str, Any]) -> str:
    """Of a run, but for its seed: other settings give another name."""
    kept = {name: value for name, value in settings.items() if name not in (*_PLACES, "seed", "seeds")}
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:8]
    return f"{slug(column.name)}-{slug(row.name)}-{digest}"


def _count_on_tags(settings: dict[str, Any], other: dict[str, Any]) -> Any:
    from flair_nas.tagging.config import TaggerConfig
    from flair_nas.tagging.embeddings import build_embeddings
    from flair_nas.tagging.training import load_corpus_of

    config = TaggerConfig(**settings)
    length = build_embeddings(config.embeddings, load_corpus_of(config).corpus).embedding_length
    own_size = TaggerConfig(**other).hidden_size

    def count(rnn: str, size: int | None) -> int:
        return parameters(Layer("", rnn, size or own_size), length, config.layers)

    return count


def _count_on_text(settings: dict[str, Any]) -> Any:
    from flair_nas.language_model.config import LanguageModelConfig
    from flair_nas.language_model.corpus import load_text_of
    from flair_nas.language_model.saved import build_language_model

    types = len(load_text_of(LanguageModelConfig(**settings)).vocabulary)

    def count(rnn: str, size: int | None) -> int:
        config = LanguageModelConfig(**{**settings, "rnn": rnn, **({"hidden_size": size} if size else {})})
        with torch.device("meta"):
            return sum(weight.numel() for weight in build_language_model(config, types).parameters())

    return count
