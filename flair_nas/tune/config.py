"""Settings of a tuning: those of its runs, and those of the search and the comparison."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from flair_nas.errors import did_you_mean
from flair_nas.experiments.config import PoolSettings
from flair_nas.experiments.tasks import TAGGING, TEXT, Task
from flair_nas.language_model.config import LanguageModelSettings
from flair_nas.runs.duration import check_time, parse_time
from flair_nas.settings.fields import (
    COUNT,
    find_problems,
    get_kinds,
    make_settings,
    raise_problems,
    setting,
    takes_flair_names,
)
from flair_nas.tagging.config import TaggerConfig, all_different
from flair_nas.tagging.data.column_rows import ColumnFormat
from flair_nas.tune.parts import parts_of

SAMPLERS = ("tpe", "random")


@dataclass
class TuneSettings(PoolSettings):
    """Settings of a tuning on any task.

    The settings of a training are the baseline. `seeds` choose, `fresh_seeds` others judge.

    Attributes:
        task: task of the models.
        verb: verb of the command.
    """

    task: ClassVar[Task]
    verb: ClassVar[str] = "tune"
    may_change: ClassVar[tuple[str, ...]] = (
        *("budget", "vary", "candidates", "random", "nodes", "trials", "sampler", "fresh_seeds", "at_most_ms"),
        *("learn_from", "optuna_storage"),
        *("workers", "device"),
        *("data_root", "text", *get_kinds(ColumnFormat)),  # place and format of the data; the ledger has a fingerprint
    )

    budget: str = setting("2h", "time for everything: 90m, 2h; it says how many settings are tried", check=check_time)
    vary: list[str] = setting([], "parts to vary, as listed below (all)", check=all_different)
    rnn: str = setting("lstm", "the baseline's layer")
    hidden_size: int = setting(256, "hidden size H, in each direction", **COUNT)
    learning_rate: float = setting(0.2, "learning rate", low=1e-12, high=1e6)
    epochs: int = setting(40, "epochs of a full training, at most", **COUNT, flair="max_epochs")
    candidates: list[str] = setting(
        [], "layers to try, as for --rnn (small cells, the layers with a name, bundled genotypes)"
    )
    random: int = setting(8, "random cells to try, too", low=0, high=10_000)
    nodes: list[int] = setting(
        [1, 2, 3, 4, 6], "numbers of nodes of random cells, in turn", low=1, high=100, check=all_different
    )
    trials: int | None = setting(None, "settings to try at most (as many as the budget is enough for)", **COUNT)
    at_most_ms: float | None = setting(
        None, "the second answer takes at most so many milliseconds a sentence", low=1e-6, high=1e6
    )
    learn_from: list[str] = setting([], "folders of earlier runs of tune, whose best settings are tried first")
    sampler: str | None = setting(
        None, "how settings are drawn: tpe, by Optuna (extra tune), or random (tpe if Optuna is installed)",
        choices=SAMPLERS,
    )  # fmt: skip
    optuna_storage: str | None = setting(
        None, "address of an Optuna storage that gets a copy of all trials, as sqlite:///trials.db"
    )
    seeds: list[int] = setting(
        [1, 2, 3], "these choose: the first alone, then all among the best, as far as there is time",
        low=0, high=2**32 - 1, check=all_different,
    )  # fmt: skip
    fresh_seeds: int = setting(
        3, "so many others judge the best and the baseline: both are scored on test", low=1, high=1000
    )

    def tune_problems(self) -> list[str]:
        """Return a sentence for each contradiction; without `vary`, all parts vary."""
        known = [*parts_of(self.task)]
        self.vary = self.vary or known
        problems = self.pool_problems()
        for name in self.vary:
            if name not in known:
                hint = did_you_mean(name, known)
                problems.append(f"vary has no part {name}; {hint}the parts are {', '.join(known)}")
        return problems

    @property
    def seconds(self) -> float:
        """Seconds of the budget."""
        return parse_time(self.budget) or 0.0

    def fresh(self) -> list[int]:
        """Return the seeds that take no part in the choice: the first from 1 on that are not in `seeds`."""
        others = (number for number in itertools.count(1) if number not in self.seeds)
        return list(itertools.islice(others, self.fresh_seeds))

    def run_settings(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of a run, without its seed.

        Raises:
            FlairNasError: a change is no setting of a run, or is out of range.
        """
        names = [field.name for field in fields(self) if field.name in get_kinds(self.task.settings)]
        settings = {name: getattr(self, name) for name in names} | changes
        make_settings(self.task.settings, settings)
        return settings


@takes_flair_names
@dataclass
class TuneConfig(TuneSettings, TaggerConfig):  # type: ignore[misc]  # its learning rate is never None
    """Settings of `tune_tagger`; each is also a flag of ``flair-nas tune`` and a key of a ``--config`` file.

    Raises:
        FlairNasError: settings cannot be used; the message names all of them.

    Example:
        >>> from flair_nas import TuneConfig
        >>> TuneConfig(corpus="demo", vary=["layer", "rate"], budget="20m").rnn
        'lstm'
    """

    task = TAGGING

    embeddings: list[str] = setting(
        ["english", "one-hot", "char"],
        "embeddings, as for tag train; if this part varies, each subset of them may be used",
    )

    def __post_init__(self) -> None:
        problems = [*find_problems(self), *self.tune_problems()]
        if self.train_with_dev is True:
            problems.append("train_with_dev must be left out: dev is what settings are compared on")
        raise_problems(problems)


@takes_flair_names
@dataclass
class DistilConfig(TuneConfig):
    """Settings of `distil_tagger`; each is also a flag of ``flair-nas distil`` and a key of a ``--config`` file.

    Raises:
        FlairNasError: settings cannot be used; the message names all of them.

    Example:
        >>> from flair_nas import DistilConfig
        >>> DistilConfig(teacher=["runs/large"], text="raw.txt", corpus="demo").taught_weight
        0.0
    """

    verb = "distil"
    may_change: ClassVar[tuple[str, ...]] = ("taught", *(name for name in TuneConfig.may_change if name != "text"))

    teacher: list[str] = setting([], "taggers to learn from, as for tag predict --model; the mean of several counts")
    text: str | None = setting(None, "raw text that they label, a sentence a line: a file, or a folder of files")
    rnn: str = setting("small-relu-tanh", "the student's layer")
    taught: str | None = setting(None, "made in the folder of the run")
    taught_weight: float = setting(0.0, "weight of what teachers say, of the baseline", low=0, high=1000)

    def __post_init__(self) -> None:
        self.vary = self.vary or ["taught"]
        super().__post_init__()
        raise_problems([f"give {name}" for name in ("teacher", "text") if not getattr(self, name)])


@dataclass
class TextTuneConfig(TuneSettings, LanguageModelSettings):
    """Settings of `tune_language_model`; each is also a flag of ``flair-nas tune --text``.

    Raises:
        FlairNasError: settings cannot be used; the message names all of them.

    Example:
        >>> from flair_nas import TextTuneConfig
        >>> TextTuneConfig(text="demo", budget="20m").unit
        'word'
    """

    task = TEXT

    hidden_size: int = setting(200, "hidden size H", **COUNT)
    learning_rate: float = setting(20.0, "learning rate", low=1e-12, high=1e6)
    nodes: list[int] = setting([8], "numbers of nodes of random cells, in turn", low=1, high=100, check=all_different)

    def __post_init__(self) -> None:
        super().__post_init__()
        raise_problems(self.tune_problems())

    def run_settings(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of a run, without its seed; tied embeddings are as wide as the layer."""
        tied = {"embedding_size": None} if self.embedding_size == self.hidden_size else {}
        return super().run_settings(tied | changes)
