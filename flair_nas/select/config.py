"""The settings of a selection: those of the taggers that are compared, and of how they are compared."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

from flair_nas.search.tagging_config import TaggingSearchConfig
from flair_nas.settings import COUNT, problems_of, raise_problems, setting
from flair_nas.tagging.config import TaggerConfig, all_different

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(budget: str) -> float | None:
    """The time that a text such as ``90m`` stands for, in seconds; None if it stands for none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", budget.strip())
    return float(found[1]) * _UNITS[found[2]] if found else None


def is_time(budget: str) -> str:
    """What is wrong with a text that is to be a time."""
    return "" if seconds_of(budget) else "must be a time such as 90m, 2h or 1.5h"


@dataclass
class PoolSettings:
    """Which processes do the work."""

    workers: int | None = setting(None, "processes that train side by side (one a core)", low=1, high=1000)
    engine: str = setting(
        "processes", "where they are: processes of this machine, or ray, a Ray cluster", choices=("processes", "ray")
    )
    ray_address: str | None = setting(
        None, "engine ray: the address of a cluster, as auto (one is started on this machine)"
    )
    device: str | None = setting(None, "cpu, cuda or cuda:N (a GPU when there is one)")

    def pool_problems(self) -> list[str]:
        """What contradicts itself."""
        if self.ray_address is not None and self.engine != "ray":
            return ["ray_address belongs to engine ray"]
        return []


@dataclass
class SelectConfig(PoolSettings, TaggerConfig):
    """Settings of `select_layer`; each is also a flag of ``flair-nas select`` and a key of a ``--config`` file.

    Those of a tagger hold for all candidates; `rnn` is the layer to beat, `seeds` are those of the candidates that come
    to the end, and `learning_rate` is multiplied by each of `rates`.

    Raises:
        FlairNasError: settings that cannot be used, all of them named at once.
    """

    rnn: str = setting("lstm", "the layer to beat, which is always among those that come to the end")
    epochs: int = setting(40, "epochs of a full training, at most", **COUNT)
    seeds: list[int] = setting(
        [1, 2, 3], "each layer that comes to the end is trained with each; the first alone before that",
        low=0, high=2**32 - 1, check=all_different,
    )  # fmt: skip
    budget: str = setting(
        "2h", "time for everything: 90m, 2h; it says how many random cells are compared", check=is_time
    )
    candidates: list[str] = setting(
        [], "layers to compare with it besides random cells, as for --rnn (gru and all bundled genotypes)"
    )
    searches: list[str] = setting(
        [], "compare also a cell that is searched on this corpus, with each of these relaxations: i-darts, darts",
        choices=("i-darts", "darts"), check=all_different,
    )  # fmt: skip
    search_epochs: int = setting(5, "epochs of each of these searches", **COUNT)
    match: bool = setting(True, "also an LSTM with as many parameters as the largest layer")
    random: int | None = setting(
        None, "random cells to compare (as many as the budget is enough for)", low=0, high=10_000
    )
    gates: int = setting(
        0, "history length m of random gates, with which each cell is compared, too; 0: without", low=0, high=100
    )
    rates: list[float] = setting(
        [1.0, 2.0], "each layer is tried with the learning rate times each", low=1e-6, high=1e6, check=all_different
    )

    def __post_init__(self) -> None:
        problems = [*problems_of(self), *self.pool_problems()]
        if self.train_with_dev is True:
            problems.append("train_with_dev must be left out: dev is what layers are compared on")
        raise_problems(problems)

    def search(self, relaxation: str) -> TaggingSearchConfig:
        """The settings of a search on the same corpus, with a tagger of the same settings."""
        own = {field.name for field in dataclasses.fields(TaggingSearchConfig)}
        shared = [
            field.name for field in dataclasses.fields(TaggerConfig) if field.name in own - {"embeddings", "epochs"}
        ]
        return TaggingSearchConfig(
            **{name: getattr(self, name) for name in shared},
            embeddings=[name.removeprefix("pooled-") for name in self.embeddings],
            relaxation=relaxation,
            epochs=self.search_epochs,
            seed=self.seeds[0],
        )

    def tagger(self, **changes: Any) -> TaggerConfig:
        """The settings of one candidate's tagger."""
        names = [field.name for field in dataclasses.fields(TaggerConfig)]
        return TaggerConfig(**{**{name: getattr(self, name) for name in names}, "storage": "disk", **changes})
