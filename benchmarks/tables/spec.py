"""Tables as YAML files of columns (corpora, texts), rows (layers) and seeds.

title: Layers on WNUT-2017
seeds: [1, 2, 3]
columns:
  WNUT-2017:
    tagging: {corpus: wnut_17, hidden_size: 256, epochs: 20}      # settings of `tag train`, `preset` among them
  PTB:
    text: {preset: ptb-small}                                     # settings of `lm train`
rows:
  LSTM: {rnn: lstm}                                               # all rows are compared with the first
  large LSTM: {rnn: lstm, size_of: I-DARTS}                       # as many parameters as that row
  I-DARTS: {rnn: i-darts-ptb, published: {WNUT-2017: 50.34}}
  found: {search: {relaxation: i-darts, epochs: 5}}               # searched on the column's own corpus or text
  random: {rnn: "random:1", settings: {learning_rate: 0.2}}       # `random_genotype(1)`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flair_nas import random_genotype
from flair_nas.experiments.tasks import TASKS
from flair_nas.search.config import SearchConfig
from flair_nas.search.flair_config import TaggingSearchConfig
from flair_nas.settings.fields import get_all_kinds, get_kinds, make_settings
from flair_nas.settings.resolve import load_preset, read_mapping
from flair_nas.tagging.config import CorpusSettings

FOLDER = Path(__file__).parent
SEARCHES = {"tagging": TaggingSearchConfig, "text": SearchConfig}
"""Settings of a search by the task of its column."""
DATA = (*get_kinds(CorpusSettings), "embeddings", "text", "vocabulary_size", "min_count", "lowercase", "valid_share",
        "unit", "device")  # fmt: skip
"""Settings of a search that its column gives."""


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


def table_names() -> list[str]:
    """Return the names of the tables in this folder."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_table(source: str) -> Table:
    """Read a table: the name of one in this folder, or a YAML file."""
    path = FOLDER / f"{source}.yaml"
    data = read_mapping(path if path.exists() else source)
    columns = [_make_column(name, **entry) for name, entry in data["columns"].items()]
    rows = [_make_row(name, entry, columns[0].task) for name, entry in data["rows"].items()]
    table = Table(data["title"], data.get("note", ""), data["seeds"], columns, rows)
    for column in columns:
        for row in rows:
            TASKS[column.task].settings(**run_settings(row, column, row.rnn or "lstm"))  # raises what is wrong
    return table


def _make_column(name: str, **tasks: Mapping[str, Any]) -> Column:
    ((task, settings),) = tasks.items()
    return Column(name, task, _with_preset(settings, TASKS[task].presets, TASKS[task].settings))


def _make_row(name: str, entry: Mapping[str, Any], task: str) -> Row:
    row = Row(name, **entry)
    if row.search is not None:
        search = _with_preset(row.search, "search", SEARCHES[task])
        return Row(name, **{**entry, "search": {key: value for key, value in search.items() if key not in DATA}})
    assert row.rnn is not None, f"{name} has neither rnn nor search"
    kind, _, number = row.rnn.partition(":")
    return Row(name, **{**entry, "rnn": random_genotype(int(number)).one_line()}) if kind == "random" else row


def _with_preset(settings: Mapping[str, Any], kind: str, config_type: type) -> dict[str, Any]:
    """Return settings with those of the preset that they name."""
    own = {key: value for key, value in settings.items() if key != "preset"}
    return {**load_preset(kind, settings["preset"], config_type), **own} if "preset" in settings else own


def run_settings(row: Row, column: Column, rnn: str) -> dict[str, Any]:
    """Return the settings of a row's run on a column, without its seed and the other task's settings."""
    known = get_kinds(TASKS[column.task].settings)
    return {**column.settings, **{name: value for name, value in row.settings.items() if name in known}, "rnn": rnn}


def search_settings(row: Row, column: Column) -> Any:
    """Return the settings of a row's search on a column's data; sizes and rates are the search's own defaults."""
    search_type, entry = SEARCHES[column.task], run_settings(row, column, "")
    data = {name: entry[name] for name in DATA if name in entry and name in get_all_kinds(search_type)}
    if "embeddings" in data:
        data["embeddings"] = [name.removeprefix("pooled-") for name in data["embeddings"]]
    return make_settings(search_type, {**data, **(row.search or {})})
