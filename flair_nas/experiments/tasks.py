"""Tasks that models are trained for: the tags of a corpus, or a text.

To add a task, add a module and an entry here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flair_nas.experiments.config import Settings
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
        """Return the data that settings name, with a `fingerprint` of their content."""

    def seeded(self, seed: int) -> dict[str, Any]:
        """Return the settings of a seed."""

    def predictor(self, settings: Settings) -> tuple[Callable[[], object], int]:
        """Return a function that applies an untrained model to a few sentences of dev, and the number of these."""

    def estimate(self, settings: Settings) -> dict[str, Any]:
        """Time a few batches of training and evaluation, in seconds rather than minutes.

        Returns:
            ``seconds`` of one epoch and ``around_seconds``, as `train`; ``embedding_seconds``, the time of `prepare`.
        """

    def shortage(self, data: Any) -> str:
        """Return a clause if the data are too small to choose on, else an empty string."""

    def prepare(self, settings: Settings, data: Any, progress: bool) -> None:
        """Describe the data, and compute once what all runs share."""

    def train(self, settings: Settings, folder: str, score: bool) -> dict[str, Any]:
        """Train a model, or go on with it, in a folder of its own.

        Returns:
            JSON data for the ledger. By epoch: ``dev`` and ``dev_loss``, metric and loss on dev, and ``seconds``,
            with evaluation. ``around_seconds``: time outside epochs. ``exhausted``: True if it ended early.
            ``parameters``: weights of a tagger's layer, or of a language model. ``peak_memory_mb``: memory of this
            job. With `score`, ``test``: metric on test, or None, and ``counts``: packed counts of each sentence of
            test, or else of dev.
        """

    def place(self, model: Path, folder: Path) -> None:
        """Copy the ``model.pt`` of a run into a folder."""

    def usage(self, settings: Settings) -> list[str]:
        """Return how to train or use the model of a run, as lines of Markdown."""


@dataclass(frozen=True)
class Rule:
    """A rule of successive halving: after each rung, the better candidates go on."""

    first: float  # epochs of the first rung, as a fraction of all
    keep: float  # fraction of candidates that go on; epochs of a rung divided by it are those of the next

    def rungs(self, epochs: int) -> list[int]:
        """Return the epochs after which candidates are compared; the last entry is `epochs`."""
        rungs = []
        reached = max(1, math.ceil(self.first * epochs))
        while reached < epochs:
            rungs.append(reached)
            reached = max(reached + 1, math.floor(reached / self.keep))
        return [*rungs, epochs]


@dataclass(frozen=True)
class Task:
    """A task that settings are compared on."""

    name: str  # its module is NAME_task in this package
    settings: type  # of one run
    presets: str  # kind of its presets
    data: str  # setting that names its data
    title: str  # name of its metric
    higher_is_better: bool
    most: float  # largest metric that is possible
    near: float  # models whose metrics differ by less are about as good
    score: str  # function of `flair_nas.experiments.counts` that computes the metric
    rule: Rule  # rule of successive halving, chosen on learning curves (docs/results.md)
    dev: str  # name of the part that settings are compared on
    model: str  # name of a trained model

    @property
    def work(self) -> TaskModule:
        """Module of the task. It loads PyTorch, and for tags Flair."""
        module: Any = import_module(f"flair_nas.experiments.{self.name}_task")
        return module  # type: ignore[no-any-return]

    def best(self, figures: Sequence[float]) -> float:
        """Return the best of some metrics."""
        return max(figures) if self.higher_is_better else min(figures)

    def gain(self, figure: float, other: float) -> float:
        """Return by how much one metric is better than another."""
        return figure - other if self.higher_is_better else other - figure

    def cost(self, run: Mapping[str, Any], epochs: int) -> float:
        """Return the cost of a run after some epochs, by its metric; by its loss if metrics are level."""
        figure = self.gain(0.0, self.best(run["dev"][:epochs]))
        return figure + 1e-6 * float(min(run["dev_loss"][:epochs]))

    def early_cost(self, run: Mapping[str, Any], epochs: int) -> float:
        """Return the cost of an unfinished run, by its loss: early F1 hardly predicts the last (docs/results.md)."""
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
    near=1.0,
    score="f1",
    rule=Rule(first=0.35, keep=0.5),
    dev="dev",
    model="tagger",
)
TEXT = Task(
    name="text",
    settings=LanguageModelConfig,
    presets="language_model",
    data="text",
    title="perplexity",
    higher_is_better=False,
    most=math.inf,
    near=1.0,
    score="perplexity",
    rule=Rule(first=0.1, keep=0.25),
    dev="valid",
    model="language model",
)
TASKS = {task.name: task for task in (TAGGING, TEXT)}
"""All tasks by name."""
