"""Settings of a table's runs that the table itself does not give."""

from __future__ import annotations

from dataclasses import dataclass

from flair_nas.experiments.config import PoolSettings, check_time
from flair_nas.settings.fields import find_problems, raise_problems, setting
from flair_nas.tagging.config import all_different


@dataclass
class TableConfig(PoolSettings):
    """Settings of `run_table`; each is also a flag of ``flair-nas tables run``.

    Raises:
        FlairNasError: settings cannot be used; the message names all of them.
    """

    table: str = setting("wnut-small", "a YAML file, or the name of a bundled table")
    text: str | None = setting(None, "the text of language models, where the table names none: as for lm train")
    data_root: str | None = setting(None, "folder with the named corpora (Flair's cache)")
    embeddings: list[str] = setting([], "in place of those of the table, for all taggers")
    rows: list[str] = setting(["all"], "only these of the table's rows", check=all_different)
    seeds: list[int] = setting([], "in place of those of the table", low=0, high=2**32 - 1, check=all_different)
    budget: str | None = setting(
        None, "stop when the first run ends after this time, such as 2h; --resume goes on", check=check_time
    )

    def __post_init__(self) -> None:
        raise_problems([*find_problems(self), *self.pool_problems()])
