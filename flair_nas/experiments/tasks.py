"""Tasks that layers are compared on: the tags of a corpus, or a text. Another task is a module and an entry here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flair_nas.experiments.config import Settings
from flair_nas.experiments.successive_halving import Rule
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.tagging.config import TaggerConfig

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class TaskModule(Protocol):
    """Functions of a task's module.

    Attributes:
        LAYERS: names of layers without a genotype that can be compared.
    """

    LAYERS: tuple[str, ...]

    def read(self, settings: Settings) -> Any:
        """Return the data that settings name."""

    def fingerprint(self, data: Any) -> str:
        """Return the fingerprint of data, which does not depend on their place."""

    def seeded(self, seed: int) -> dict[str, Any]:
        """Return the settings of a run with a seed, besides those of its layer."""

    def counter(self, data: Any) -> Callable[[Settings], int]:
        """Return a function that counts the weights of a run's layer, or of its model if that learns embeddings."""

    def stepper(self, settings: Settings) -> Callable[[Settings], Callable[[], None]]:
        """Return a function from the settings of a run on the same data to a function that trains a few steps.

        The steps are those of the layer, or of the whole model if the layer's size decides how large the rest is.
        """

    def estimate(self, settings: Settings) -> dict[str, Any]:
        """Time a few batches of training and evaluation, in seconds rather than minutes.

        Returns:
            ``seconds`` of one epoch and ``around_seconds`` as of `train`; ``embedding_seconds`` that `prepare` takes.
        """

    def shortage(self, data: Any) -> str:
        """Return what the data have too little of to choose on, or an empty string."""

    def prepare(self, settings: Settings, data: Any, progress: bool) -> None:
        """Describe the data, and do once what each run would do."""

    def train(self, settings: Settings, folder: str, score: bool) -> dict[str, Any]:
        """Train a model, or go on with it, in a folder of its own.

        Returns:
            JSON data for the ledger. ``dev`` and ``dev_loss``: metric and loss on dev after each epoch. ``seconds``:
            time of these, with evaluation. ``around_seconds``: time of this job besides. ``exhausted``: True if it
            ended before its last epoch. ``scored``. ``parameters``: weights as `counter` counts them.
            ``peak_memory_mb``: memory of this job. With `score` also ``test``: metric on test, None without test.
            ``counts``: packed counts of each sentence there, or of dev.
        """

    def place(self, model: Path, folder: Path) -> None:
        """Copy the ``model.pt`` of a run into a folder."""

    def search(self, settings: Settings, folder: str) -> dict[str, Any]:
        """Search a cell, or go on with it; return its ``genotype`` as a layer spec."""

    def usage(self, settings: Settings) -> list[str]:
        """Return how to use the layer of a run, as lines of Markdown."""


@dataclass(frozen=True)
class Task:
    """A task that layers are compared on."""

    name: str  # in files
    settings: type  # of one run
    presets: str  # kind of its presets
    data: str  # setting that names its data
    title: str  # name of its metric
    higher_is_better: bool
    most: float  # largest metric that is possible
    score: str  # function of `flair_nas.experiments.counts` that computes the metric
    rule: Rule  # chosen on learning curves of the task (docs/results.md)
    dev: str  # name of the part that layers are compared on
    model: str  # name of what is trained
    module: str  # `TaskModule` in this package

    @property
    def work(self) -> TaskModule:
        """Module of the task; it loads PyTorch, and for tags Flair."""
        module: Any = import_module(f"flair_nas.experiments.{self.module}")
        return module  # type: ignore[no-any-return]

    def best(self, figures: Sequence[float]) -> float:
        """Return the best of some metrics."""
        return max(figures) if self.higher_is_better else min(figures)

    def gain(self, figure: float, other: float) -> float:
        """Return by how much a metric is better than another one."""
        return figure - other if self.higher_is_better else other - figure

    def cost(self, run: Mapping[str, Any], epochs: int) -> float:
        """Return the cost of a run after some epochs, by its metric, and where metrics are level by its loss."""
        figure = self.gain(0.0, self.best(run["dev"][:epochs]))
        return figure + 1e-6 * float(min(run["dev_loss"][:epochs]))

    def early_cost(self, run: Mapping[str, Any], epochs: int) -> float:
        """Return the cost on the way, by the loss: early F1 jumps and hardly tells of the end (docs/results.md)."""
        loss = float(min(run["dev_loss"][:epochs]))
        return loss if loss > 0 else self.cost(run, epochs)  # 0 if dev has labels that are not in train

    def figure(self, counts: npt.NDArray[np.number]) -> npt.NDArray[np.float64]:
        """Compute the metric of counts, [..., K] -> [...]."""
        metric: npt.NDArray[np.float64] = getattr(import_module("flair_nas.experiments.counts"), self.score)(counts)
        return metric


TAGGING = Task(
    name="tagging",
    settings=TaggerConfig,
    presets="tagging",
    data="corpus",
    title="F1",
    higher_is_better=True,
    most=100.0,
    score="f1",
    rule=Rule(first=0.35, keep=0.5),
    dev="dev",
    model="tagger",
    module="tagging_task",
)
TEXT = Task(
    name="text",
    settings=LanguageModelConfig,
    presets="language_model",
    data="text",
    title="perplexity",
    higher_is_better=False,
    most=math.inf,
    score="perplexity",
    rule=Rule(first=0.1, keep=0.25),
    dev="valid",
    model="language model",
    module="text_task",
)
TASKS = {task.name: task for task in (TAGGING, TEXT)}
"""All tasks by name."""
