"""What layers are compared on: the tags of a corpus, or a text. Another task is a module and a line here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flair_nas.experiments.successive_halving import Rule
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.search.config import SearchConfig
from flair_nas.search.flair_config import TaggingSearchConfig
from flair_nas.tagging.config import TaggerConfig

if TYPE_CHECKING:
    import numpy.typing as npt


class TaskModule(Protocol):
    """What the module of a task offers; settings are those of one run, as a dictionary.

    Attributes:
        LAYERS: PyTorch's own recurrent layers that can be compared.
    """

    LAYERS: tuple[str, ...]

    def read(self, settings: Mapping[str, Any]) -> Any:
        """The data that settings name."""

    def fingerprint(self, data: Any) -> str:
        """Of data, wherever they lie."""

    def seeded(self, seed: int) -> dict[str, Any]:
        """The settings that a run has beyond those of its layer."""

    def counter(self, data: Any) -> Callable[[Mapping[str, Any]], int]:
        """Gives a function that tells how many weights the layer of a run has, or its model if it learns embeddings."""

    def stepper(self, settings: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Callable[[], None]]:
        """Gives a function that gives, for the settings of a run on the same data, what does some steps of training.

        The steps are those of the layer, or of the whole model if the layer's size decides how large the rest is.
        """

    def estimate(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Time a few batches of training and evaluation, in seconds rather than minutes.

        Returns:
            ``seconds`` of one epoch and ``around_seconds``, as of `train`; ``embedding_seconds``, that `prepare` takes.
        """

    def shortage(self, data: Any) -> str:
        """What data have too little of to choose on; empty if nothing."""

    def prepare(self, settings: Mapping[str, Any], data: Any, progress: bool) -> None:
        """Says what the data are, and does once what each run would do."""

    def train(self, settings: Mapping[str, Any], folder: str, score: bool) -> dict[str, Any]:
        """Trains a model, or goes on with it, in a folder of its own; what it gives is for the ledger, as JSON data.

        Returns:
            ``dev`` and ``dev_loss``, the figure and the loss on dev after each epoch; ``seconds`` of these, with
            evaluation; ``around_seconds``, of what was done now besides; ``exhausted``, whether it has come to its end
            before its last epoch; ``scored``; ``parameters``, as `counter` counts; ``peak_memory_mb`` of this job. With
            `score`: ``test``, the figure on test, None if there is none; ``counts`` of each sentence there (else of
            dev), `packed`; where it can be told ``unseen``: entities that training did not have, right ones and all.
        """

    def place(self, model: Path, folder: Path) -> None:
        """Makes the ``model.pt`` of a run that of a folder."""

    def search(self, settings: Mapping[str, Any], folder: str) -> dict[str, Any]:
        """Searches a cell, or goes on with it; gives ``genotype``, on one line."""

    def usage(self, settings: Mapping[str, Any]) -> list[str]:
        """How the layer of a run is used, as lines of Markdown."""


@dataclass(frozen=True)
class Task:
    """Something that layers are compared on.

    Args:
        name: in files.
        settings: of one run.
        search_settings: of a search on its data.
        presets: the kind of its presets.
        data: the setting that names its data.
        title: of its figure.
        higher_is_better: whether a larger figure is a better one.
        most: the largest figure that there can be.
        score: what makes it of counts: a function of `flair_nas.experiments.counts`.
        rule: which candidates go on; chosen on learning curves of its kind (docs/figures.md has what it is worth).
        dev: what its users call the part that layers are compared on.
        model: what its users call what is trained.
        module: of this package, a `TaskModule`.
    """

    name: str
    settings: type
    search_settings: type
    presets: str
    data: str
    title: str
    higher_is_better: bool
    most: float
    score: str
    rule: Rule
    dev: str
    model: str
    module: str

    @property
    def work(self) -> TaskModule:
        """What does it; loads PyTorch, and Flair where it is of tags."""
        found: Any = import_module(f"flair_nas.experiments.{self.module}")
        return found  # type: ignore[no-any-return]

    def best(self, figures: Sequence[float]) -> float:
        """The best of some figures."""
        return max(figures) if self.higher_is_better else min(figures)

    def gain(self, figure: Any, other: Any) -> Any:
        """By how much a figure is better than another one, or several are."""
        return figure - other if self.higher_is_better else other - figure

    def cost(self, run: Mapping[str, Any], epochs: int) -> float:
        """The smaller, the better a run of the ledger is after so many epochs; where figures are level, its loss."""
        figure = float(self.gain(0.0, self.best(run["dev"][:epochs])))
        return figure + 1e-6 * float(min(run["dev_loss"][:epochs]))

    def early_cost(self, run: Mapping[str, Any], epochs: int) -> float:
        """As `cost`, on the way: by the loss, as F1 jumps then and hardly tells of the end (docs/figures.md)."""
        loss = float(min(run["dev_loss"][:epochs]))
        return loss if loss > 0 else self.cost(run, epochs)  # 0 where dev has labels that are not in train

    def figure(self, counts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The figure that counts come to, in each place but their last axis."""
        made: npt.NDArray[Any] = getattr(import_module("flair_nas.experiments.counts"), self.score)(counts)
        return made


TAGGING = Task(
    "tagging",
    TaggerConfig,
    TaggingSearchConfig,
    "tagging",
    "corpus",
    "F1",
    True,
    100.0,
    "f1",
    Rule(first=0.35, keep=0.5),
    "dev",
    "tagger",
    "tagging_task",
)
TEXT = Task(
    "text", LanguageModelConfig, SearchConfig, "language_model", "text", "perplexity", False, math.inf, "perplexity",
    Rule(first=0.1, keep=0.25), "valid", "language model", "text_task",
)  # fmt: skip
TASKS = {task.name: task for task in (TAGGING, TEXT)}
"""All of them, by name."""
