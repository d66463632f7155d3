"""The settings of a search: those of its strategy, of a continual search, and of its objective."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from flair_nas.language_model.config import check_rising
from flair_nas.language_model.text.config import TextSettings
from flair_nas.search.registry import strategy_settings
from flair_nas.search.settings import CommonSettings, ContinualSettings, StrategySettings
from flair_nas.settings.fields import COUNT, PROBABILITY, choice, find_problems, flatten, part, raise_problems, setting


@dataclass
class SearchSettings(CommonSettings):
    """Settings of every search.

    The defaults are those of I-DARTS on Penn Treebank, as far as they are published. Initialisation and learning rate
    differ, to suit any size.
    """

    strategy: StrategySettings | str = choice("gradient", strategy_settings, "search strategy")
    continual: ContinualSettings = part(ContinualSettings, "continual search")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check()

    def check(self) -> None:
        """Raise a FlairNasError that names all settings that cannot be used, or contradict each other."""
        problems = find_problems(self)
        if type(self.strategy) in strategy_settings().values():
            with contextlib.suppress(TypeError, ValueError, AttributeError):  # a wrong type contradicts nothing
                problems += self.contradictions()
        raise_problems(problems)

    @property
    def own(self) -> StrategySettings:
        """Settings of the strategy."""
        assert isinstance(self.strategy, StrategySettings)  # a name has become the settings
        return self.strategy

    @property
    def strategy_name(self) -> str:
        """Name of the strategy."""
        name: str = flatten(self)["strategy"]
        return name

    @property
    def unshared(self) -> str:
        """Setting that lets the cells of one task share no weights, in words; empty if they do."""
        return f"strategy {self.strategy_name}" if self.own.trained_alone else ""

    @property
    def is_extendable(self) -> bool:
        """True if a search can go on with more epochs."""
        return self.own.extendable(self) and not self.continual.retrain_epochs

    def contradictions(self) -> list[str]:
        """Return a sentence for each contradiction; settings out of range may have any type."""
        return [
            *self.common_problems(),
            *self.own.problems(self),
            *self.transformer.problems(self, self.own),
            *self.continual.problems(self, self.own, self.unshared),
            *self.batch_problems(),
        ]

    def batch_problems(self, processes: int = 1) -> list[str]:
        """Return a sentence if parts and processes do not divide a batch, or leave a relaxed cell one sequence."""
        parts = f"{self.parts} parts" + f" for each of {processes} processes" * (processes > 1)
        sequences, rest = divmod(self.batch_size, max(self.parts, 1) * processes)  # 0 is out of range already
        is_normalised = self.own.relaxation is not None and self.learn != "inter"
        checks = [
            (rest, f"batch_size {self.batch_size} cannot be divided into {parts}"),
            (not rest and sequences == 1 and is_normalised,
             f"batch_size {self.batch_size} leaves less than 2 sequences in a part, with {parts}: batch normalisation "
             "needs 2"),
        ]  # fmt: skip
        return [message for wrong, message in checks if wrong]


@dataclass
class SearchConfig(SearchSettings, TextSettings):
    """Settings of `search_genotype` on a text; each is also a flag of ``flair-nas search`` and a key of ``--config``.

    Raises:
        FlairNasError: settings that cannot be used or contradict each other; it names all of them.

    Example:
        >>> from flair_nas import SearchConfig
        >>> SearchConfig(text="demo", strategy="random-shared", epochs=2).strategy.samples
        100
    """

    adaptive_cutoffs: list[int] = setting(
        [], "adaptive softmax, for large vocabularies: types up to each cluster's end", check=check_rising, **COUNT
    )
    bptt: int = setting(35, "words of a segment of truncated back-propagation", **COUNT)
    min_steps: int = setting(
        0, "fewest optimizer steps of an epoch: on a short text segments have fewer words than bptt, down to 5",
        low=0, high=1_000_000,
    )  # fmt: skip
    vary_length: bool = setting(True, "draw the segments' lengths, as AWD-LSTM does, and scale the learning rate")
    dropout: float = setting(0.75, "variational dropout of the layer's output", **PROBABILITY)
    embedding_dropout: float = setting(0.2, "variational dropout of the embedding's output", **PROBABILITY)
    slowness: float = setting(
        1e-3, "beta, weight of the mean square of h_t - h_{t-1} in the training loss", low=0, high=1e6
    )
    embedding_init_range: float = setting(
        0.1, "embedding and softmax start uniform in +-this (the papers' code: 0.04)", low=1e-12, high=10
    )
    frequency_bias: bool = setting(
        True, "the bias of a plain softmax starts at the logarithms of word frequencies (the papers' code: 0)"
    )
