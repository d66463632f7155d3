"""Settings of a selection: those of its runs, and those of the comparison."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from flair_nas.experiments.config import PoolSettings
from flair_nas.experiments.tasks import TAGGING, TEXT, Task
from flair_nas.language_model.config import LanguageModelSettings
from flair_nas.language_model.text.config import TextSettings
from flair_nas.runs.duration import check_time
from flair_nas.search.config import SearchConfig
from flair_nas.search.flair_config import TaggingSearchConfig
from flair_nas.settings.fields import COUNT, find_problems, get_kinds, raise_problems, setting, takes_flair_names
from flair_nas.settings.resolve import load_preset
from flair_nas.tagging.config import TaggerConfig, all_different
from flair_nas.tagging.data.column_rows import ColumnFormat

SEARCHES: dict[str, dict[str, Any]] = {
    "i-darts": {"relaxation": "i-darts"},
    "darts": {"relaxation": "darts"},
    "gdas": {"sampling": "straight-through", "arch_clip": 0.03, "arch_beta2": 0.99, "arch_learning_rate": 0.01},
    "ess": {"relaxation": "darts", "learn": "joint", "history": 3},
}
"""Settings of each of `searches`, on tags."""
ON_TEXT = ("local-search",)
"""Further names of `searches` on a text. On tags, a child trains too few steps to be judged."""


@dataclass
class SelectSettings(PoolSettings):
    """Settings of a selection on any task.

    The settings of a training hold for all candidates. `rnn` is the baseline. `seeds` choose, `fresh_seeds` others
    judge. Each of `rates` multiplies `learning_rate`.

    Attributes:
        task: task that layers are compared on.
    """

    task: ClassVar[Task]
    may_change: ClassVar[tuple[str, ...]] = (
        *("budget", "candidates", "searches", "search_epochs", "random", "rates", "match", "fresh_seeds"),
        *("nodes", "at_most_seconds"),
        *("workers", "device"),
        *("data_root", "text", *get_kinds(ColumnFormat)),  # place and format of the data; the ledger has a fingerprint
    )

    rnn: str = setting("lstm", "the baseline, which always comes to the end")
    hidden_size: int = setting(256, "hidden size H, in each direction", **COUNT)
    learning_rate: float = setting(0.2, "learning rate", low=1e-12, high=1e6)
    epochs: int = setting(40, "epochs of a full training, at most", **COUNT, flair="max_epochs")
    seeds: list[int] = setting(
        [1, 2, 3], "these choose: the first alone, then all among the best, as far as there is time",
        low=0, high=2**32 - 1, check=all_different,
    )  # fmt: skip
    fresh_seeds: int = setting(
        3, "so many others judge the chosen layer and the baseline: both are scored on test", low=1, high=1000
    )
    budget: str = setting("2h", "time for everything: 90m, 2h; it says how many cells are compared", check=check_time)
    candidates: list[str] = setting(
        [],
        "layers to compare with it besides random cells, as for --rnn (as many of small cells, gru and bundled "
        "genotypes as the budget is enough for)",
    )
    searches: list[str] = setting(
        [], "also a cell that is searched on the same data, by each of these: i-darts, darts, gdas, ess (with gates); "
        "on a text also local-search",
        choices=(*SEARCHES, *ON_TEXT), check=all_different,
    )  # fmt: skip
    search_epochs: int = setting(5, "epochs of each of these searches", **COUNT)
    match: bool = setting(True, "also an LSTM with as many parameters as the largest layer")
    random: int | None = setting(
        None, "random cells to compare (as many as the budget is enough for)", low=0, high=10_000
    )
    nodes: list[int] = setting(
        [1, 2, 3, 4, 6], "numbers of nodes of random cells, in turn", low=1, high=100, check=all_different
    )
    at_most_seconds: float | None = setting(
        None, "leave out layers whose training step takes more than this times that of an LSTM", low=1e-6, high=1e6
    )
    gates: int = setting(
        0, "history length m of random gates, with which each cell is compared, too; 0: without", low=0, high=100
    )
    rates: list[float] = setting(
        [1.0, 0.5], "each layer is tried with the learning rate times each", low=1e-6, high=1e6, check=all_different
    )

    def select_problems(self) -> list[str]:
        """Return a sentence for each contradiction."""
        untimed = "random gates are not timed: at_most_seconds or gates must be left out"
        return [*self.pool_problems(), *([untimed] if self.gates and self.at_most_seconds is not None else [])]

    def fresh(self) -> list[int]:
        """Return the seeds that take no part in the choice: the first from 1 on that are not in `seeds`."""
        others = (number for number in itertools.count(1) if number not in self.seeds)
        return list(itertools.islice(others, self.fresh_seeds))

    def one(self, **changes: Any) -> dict[str, Any]:
        """Return the settings of one run, without its seed."""
        names = [field.name for field in fields(self) if field.name in get_kinds(self.task.settings)]
        return {name: getattr(self, name) for name in names} | changes

    def search(self, method: str) -> dict[str, Any]:
        """Return the settings of one of `searches`, on the same data."""
        raise NotImplementedError


@takes_flair_names
@dataclass
class SelectConfig(SelectSettings, TaggerConfig):  # type: ignore[misc]  # its learning rate is never None
    """Settings of `select_layer` on tags; each is also a flag of ``flair-nas select`` and a key of a ``--config`` file.

    Raises:
        FlairNasError: settings cannot be used; the message names all of them.

    Example:
        >>> from flair_nas import SelectConfig
        >>> SelectConfig(corpus="demo", embeddings=["one-hot"], budget="20m").rnn
        'lstm'
    """

    task = TAGGING

    def __post_init__(self) -> None:
        problems = [*find_problems(self), *self.select_problems()]
        if self.train_with_dev is True:
            problems.append("train_with_dev must be left out: dev is what layers are compared on")
        if on_text := [name for name in self.searches if name in ON_TEXT]:
            problems.append(
                f"searches {', '.join(on_text)} needs a text (--text): on tags there are {', '.join(SEARCHES)}"
            )
        raise_problems(problems)

    def search(self, method: str) -> dict[str, Any]:
        """Return the settings of one of `searches`, with a tagger of the same settings."""
        # a supernet has its own initialisation bound, and the job chooses the storage of embeddings
        own = {"embeddings", "epochs", "init_range", "storage"}
        shared = set(get_kinds(TaggerConfig)) & set(get_kinds(TaggingSearchConfig)) - own
        return {
            **{name: getattr(self, name) for name in shared},
            **SEARCHES[method],
            "embeddings": [name.removeprefix("pooled-") for name in self.embeddings],
            "epochs": self.search_epochs,
            "seed": self.seeds[0],
        }


@dataclass
class TextSelectConfig(SelectSettings, LanguageModelSettings):
    """Settings of `select_layer` on a text; each is also a flag of ``flair-nas select --text``.

    Raises:
        FlairNasError: settings cannot be used; the message names all of them.

    Example:
        >>> from flair_nas import TextSelectConfig
        >>> TextSelectConfig(text="demo", budget="20m").unit
        'word'
    """

    task = TEXT

    hidden_size: int = setting(200, "hidden size H", **COUNT)
    learning_rate: float = setting(20.0, "learning rate", low=1e-12, high=1e6)
    nodes: list[int] = setting([8], "numbers of nodes of random cells, in turn", low=1, high=100, check=all_different)

    def __post_init__(self) -> None:
        super().__post_init__()
        raise_problems(self.select_problems())

    def one(self, **changes: Any) -> dict[str, Any]:
        """Return the settings of one run, without its seed; tied embeddings are as wide as the layer."""
        settings = super().one(**changes)
        return settings | {"embedding_size": None} if self.embedding_size == self.hidden_size else settings

    def search(self, method: str) -> dict[str, Any]:
        """Return the settings of one of `searches`, by its small preset."""
        names = [*get_kinds(TextSettings), "device"]
        return {
            **load_preset("search", f"{method}-small", SearchConfig),
            **{name: getattr(self, name) for name in names},
            "epochs": self.search_epochs,
            "seed": self.seeds[0],
        }
