"""Tables as YAML files of columns (corpora, texts), rows (layers) and seeds; each fault is reported with its line.

title: Layers on WNUT-2017
seeds: [1, 2, 3]
columns:
  WNUT-2017:
    tagging: {corpus: wnut_17, hidden_size: 256, epochs: 20}      # settings of `tag train`, `preset` among them
  PTB:
    text: {preset: ptb-small}                                     # settings of `lm train`
rows:
  LSTM: {rnn: lstm}
  large LSTM: {rnn: lstm, size_of: I-DARTS}                       # as many parameters as that row
  quick LSTM: {rnn: lstm, time_of: I-DARTS}                       # a step takes as long as that row's
  I-DARTS: {rnn: i-darts-ptb, published: {WNUT-2017: 50.34}}
  found: {search: {relaxation: i-darts, epochs: 5}}               # searched on the column's own corpus or text
  random: {rnn: "random:1", settings: {learning_rate: 0.2}}       # `random_genotype(1)`
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from flair_nas.errors import FlairNasError, brief, did_you_mean
from flair_nas.experiments.tasks import TASKS
from flair_nas.genotype import random_genotype
from flair_nas.settings.fields import get_all_kinds, get_kinds, make_settings
from flair_nas.settings.resolve import load_preset, read_mapping
from flair_nas.storage.paths import user_path
from flair_nas.storage.resources import resource_path
from flair_nas.tagging.config import CorpusSettings

Place = tuple[object, ...]
"""Keys that lead to a place in a table."""
_TABLE_KEYS = ("about", "title", "note", "seeds", "columns", "rows")
_ROW_KEYS = ("rnn", "search", "size_of", "time_of", "settings", "published")
_RANDOM = "random:"
_PLACES = (*get_kinds(CorpusSettings), "embeddings", "text", "vocabulary_size", "min_count",
           "lowercase", "valid_share", "unit", "device")  # fmt: skip  # settings of a search that its column gives


@dataclass(frozen=True)
class Column:
    """A corpus or a text, with the settings that all layers share there and that are not the defaults."""

    name: str
    task: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """A layer: with a layer spec, or searched with settings that are not the defaults."""

    name: str
    rnn: str | None = None
    search: Mapping[str, Any] | None = None
    size_of: str | None = None  # row whose number of parameters this one gets
    time_of: str | None = None  # row whose time of a training step this one gets, by a measured hidden size
    settings: Mapping[str, Any] = field(default_factory=dict)  # in place of the column's
    published: Mapping[str, float] = field(default_factory=dict)  # metrics of papers, by column


@dataclass(frozen=True)
class Table:
    """A table, with a note below its title; all rows are compared with the first."""

    title: str
    note: str
    seeds: Sequence[int]
    columns: Sequence[Column]
    rows: Sequence[Row]


def bundled_tables() -> tuple[str, ...]:
    """Return the names of the bundled tables."""
    return tuple(sorted(path.stem for path in resource_path("tables").glob("*.yaml")))


def table_file(source: str) -> Path:
    """Return the file of a table: a bundled name, or a YAML file.

    Raises:
        FlairNasError: there is no such table.
    """
    path = resource_path("tables", f"{source}.yaml") if source in bundled_tables() else user_path(source)
    if not path.exists():
        hint = did_you_mean(source, bundled_tables())
        raise FlairNasError(
            f"unknown table {brief(source)}: {hint}give a YAML file, or one of {', '.join(bundled_tables())}"
        )
    return path


def load_table(source: str) -> Table:
    """Read a table: a bundled name, or a YAML file.

    Raises:
        FlairNasError: there is no such table, or something in it cannot be used; the message has its line.
    """
    return _Reader(table_file(source)).table()


class _Reader:
    """A reader of one file that reports each fault with its line."""

    def __init__(self, path: Path) -> None:
        self.path, self.data = path, read_mapping(path)
        self.lines = dict(_lines(yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader)))

    def table(self) -> Table:
        self._known((), self.data, _TABLE_KEYS)
        seeds = self.data.get("seeds", [1, 2, 3])
        numbers = isinstance(seeds, list) and all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds)
        if not (numbers and seeds and len(set(seeds)) == len(seeds)):
            raise self._fault(("seeds",), f"seeds must be a list of different whole numbers, got {brief(seeds)}")
        columns = [self._column(name, entry) for name, entry in self._entries("columns")]
        rows = [self._row(name, entry, columns) for name, entry in self._entries("rows")]
        for row in rows:
            self._check_size(row, rows)
        table = Table(str(self.data.get("title", self.path.stem)), str(self.data.get("note", "")), seeds, columns, rows)
        for row in rows:
            for column in columns:
                self._check(row, column)
        return table

    def _entries(self, part: str) -> list[tuple[str, dict[str, Any]]]:
        entries = self.data.get(part)
        if not isinstance(entries, dict) or not entries:
            raise self._fault((part,), f"{part} must be a mapping of names, with one at least")
        for name, entry in entries.items():
            if not isinstance(name, str) or not isinstance(entry, dict):
                raise self._fault((part, name), f"{part}: {brief(name)} must be a text with a mapping")
            if not slug(name) or sum(slug(str(other)) == slug(name) for other in entries) > 1:
                raise self._fault((part, name), f"{part}: the name {brief(name)} is too like another one")
        return list(entries.items())

    def _column(self, name: str, entry: dict[str, Any]) -> Column:
        self._known(("columns", name), entry, tuple(TASKS))
        if len(entry) != 1 or not isinstance(next(iter(entry.values())), dict):
            raise self._fault(("columns", name), f"column {brief(name)} must have one of {', '.join(TASKS)}, a mapping")
        ((name_of_task, settings),) = entry.items()
        task, place = TASKS[name_of_task], ("columns", name, name_of_task)
        settings = self._with_preset(place, settings, task.presets, task.settings)
        self._known(place, settings, tuple(get_kinds(task.settings)))
        return Column(name, name_of_task, settings)

    def _with_preset(self, place: Place, settings: dict[str, Any], kind: str, config_type: type) -> dict[str, Any]:
        """Return settings with those of the preset that they name."""
        own = {key: value for key, value in settings.items() if key != "preset"}
        if "preset" not in settings:
            return own
        try:
            return {**load_preset(kind, settings["preset"], config_type), **own}
        except FlairNasError as error:
            raise self._fault((*place, "preset"), str(error)) from None

    def _row(self, name: str, entry: dict[str, Any], columns: Sequence[Column]) -> Row:
        place = ("rows", name)
        self._known(place, entry, _ROW_KEYS)
        for key in ("search", "settings", "published"):
            if not isinstance(entry.get(key, {}), dict):
                raise self._fault((*place, key), f"{key} must be a mapping")
        if ("rnn" in entry) == ("search" in entry) or not isinstance(entry.get("rnn", ""), str):
            raise self._fault(place, f"row {brief(name)} must have one of rnn, a text, and search, a mapping")
        for key in entry.get("settings", {}):
            if key in (*_PLACES, "rnn", "seed", "seeds"):
                message = f"settings: {key} is the same for a whole column, or has a key of its own"
                raise self._fault((*place, "settings", key), message)
        for column, figure in entry.get("published", {}).items():
            if isinstance(figure, bool) or not isinstance(figure, (int, float)):
                message = f"published: {brief(column)} must have a number, got {brief(figure)}"
                raise self._fault((*place, "published", column), message)
        self._known((*place, "published"), entry.get("published", {}), [column.name for column in columns])
        if "preset" in entry.get("search", {}):
            search_type = TASKS[columns[0].task].search_settings
            search = self._with_preset((*place, "search"), entry["search"], "search", search_type)
            entry = {**entry, "search": {key: value for key, value in search.items() if key not in _PLACES}}
        row = Row(name, **entry)
        if row.rnn is not None and row.rnn.startswith(_RANDOM):
            number = row.rnn[len(_RANDOM) :]
            if not re.fullmatch("[0-9]{1,9}", number):
                raise self._fault((*place, "rnn"), f"rnn {brief(row.rnn)}: {_RANDOM} must be followed by a number")
            row = Row(name, **{**entry, "rnn": random_genotype(int(number)).one_line()})
        return row

    def _check_size(self, row: Row, rows: Sequence[Row]) -> None:
        """Raise an error if the row that a size is taken from has none."""
        if row.size_of is not None and row.time_of is not None:
            message = f"row {brief(row.name)} must have one of size_of and time_of"
            raise self._fault(("rows", row.name, "time_of"), message)
        names = [row.name for row in rows]
        sized = [row.name for row in rows if row.size_of is None and row.time_of is None and row.rnn is not None]
        for key, other in (("size_of", row.size_of), ("time_of", row.time_of)):
            if other is not None and other not in sized:
                what = "has no rnn, or a size that is taken from another row" if other in names else "is no row"
                message = f"{key}: {brief(other)} {what}; it may be {', '.join(sized)}"
                raise self._fault(("rows", row.name, key), message)

    def _check(self, row: Row, column: Column) -> None:
        """Raise an error if the settings of a run cannot be used, or the layer is unknown."""
        from flair_nas.library.layer_spec import parse_layer_spec  # needs torch

        place, task = ("rows", row.name), TASKS[column.task]
        self._known(
            (*place, "settings"), row.settings, [n for task in TASKS.values() for n in get_kinds(task.settings)]
        )
        try:
            task.settings(**run_settings(row, column, row.rnn or "i-darts-ptb"))
        except FlairNasError as error:
            raise self._fault(place, f"row {brief(row.name)} with column {brief(column.name)}: {error}") from None
        torch_layers = task.work.LAYERS
        if row.rnn is not None and row.rnn.upper() not in torch_layers:
            try:
                parse_layer_spec(row.rnn, torch_layers)
            except FlairNasError as error:
                raise self._fault((*place, "rnn"), str(error)) from None
        if row.search is not None:
            self._known((*place, "search"), row.search, tuple(get_all_kinds(task.search_settings)))
            try:
                search_settings(row, column)
            except FlairNasError as error:
                raise self._fault((*place, "search"), str(error)) from None

    def _known(self, place: Place, entry: Mapping[Any, Any], names: Sequence[str]) -> None:
        for key in entry:
            if key not in names:
                hint = did_you_mean(str(key), names)
                raise self._fault((*place, key), f"unknown key {brief(key)}: {hint}known: {', '.join(names)}")

    def _fault(self, place: Place, message: str) -> FlairNasError:
        while place and place not in self.lines:
            place = place[:-1]
        return FlairNasError(f"{self.path}:{self.lines.get(place, 1)}: {message}")


def _lines(node: yaml.Node | None, place: Place = ()) -> Iterator[tuple[Place, int]]:
    """Yield the keys that lead to each key, with its line."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield (*place, key.value), key.start_mark.line + 1
            yield from _lines(value, (*place, key.value))


def slug(name: str) -> str:
    """Return the name of a row or column for names of files."""
    return re.sub(r"[^\w.]+", "_", name)[:40].strip("_.")


def run_settings(row: Row, column: Column, rnn: str) -> dict[str, Any]:
    """Return the settings of a row's run on a column, without its seed and the other task's settings."""
    known = get_kinds(TASKS[column.task].settings)
    return {**column.settings, **{name: value for name, value in row.settings.items() if name in known}, "rnn": rnn}


def search_settings(row: Row, column: Column) -> Any:
    """Return the settings of a row's search on a column's data; sizes and rates are the search's own defaults.

    Raises:
        FlairNasError: the settings cannot be used.
    """
    search_type = TASKS[column.task].search_settings
    entry = run_settings(row, column, "")
    known = {name: entry[name] for name in _PLACES if name in entry and name in get_all_kinds(search_type)}
    if "embeddings" in known:
        known["embeddings"] = [name.removeprefix("pooled-") for name in known["embeddings"]]
    return make_settings(search_type, {**known, **(row.search or {})})
