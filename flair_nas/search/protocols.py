"""Interfaces of objectives and strategies."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from flair_nas.genotype import Genotype
from flair_nas.nn.init import papers_range
from flair_nas.runs.metric import Evaluation

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import Tensor, nn

    from flair_nas.runs.metric import Guess, Measure
    from flair_nas.search.bilevel import Reduce
    from flair_nas.search.config import SearchSettings
    from flair_nas.supernet import Supernet


class Objective(Protocol):
    """What trainer and strategies need. A batch is whatever the objective makes of it; a step has one or more parts.

    Where a part of training data has an attribute `scale`, the learning rate of its step is multiplied by it.

    Attributes:
        measure: the figure that it is judged by.
        data: what its data are, in a word, for messages.
        derived: the settings that follow from the data, in words; empty for none.
    """

    measure: Measure
    data: str = "data"
    derived: str = ""

    @property
    def name(self) -> str:
        """What it learns from, in a few words, for a genotype's origin."""

    @property
    def fingerprint(self) -> str:
        """Of its data: a search does not go on with other data."""

    @property
    def module(self) -> nn.Module:
        """The whole model."""

    @property
    def supernet(self) -> Supernet:
        """Its supernet."""

    def model_parameters(self) -> list[nn.Parameter]:
        """The model weights: everything that is learned but for the architecture weights."""
        architecture = {id(parameter) for parameter in self.architecture_parameters()}
        return [parameter for parameter in self.module.parameters() if id(parameter) not in architecture]

    def architecture_parameters(self) -> list[nn.Parameter]:
        """All architecture weights."""
        return [parameter for group in self.supernet.architecture().values() for parameter in group]

    def buffers(self) -> list[Tensor]:
        """What passes in training mode change besides: running statistics."""
        return list(self.module.buffers())

    def steps(self, epoch: int) -> int:
        """The number of steps of an epoch, counted from 1."""

    def training_batch(self, epoch: int, step: int) -> list[Any]:
        """The parts of a step's training data; `step` counts from 0."""

    def validation_batch(self, epoch: int, step: int) -> list[Any]:
        """The parts of a step's validation data, in a cycle."""

    def training_loss(self, batch: Any, keep_state: bool = False) -> Tensor:
        """The loss that model weights descend, with its penalties; `keep_state` carries the state to the next step."""

    def validation_loss(self, batch: Any, keep_state: bool = False) -> Tensor:
        """The loss that architecture weights descend."""

    def evaluate(self, progress: bool = False) -> Evaluation:
        """Loss and measure on the whole validation part, in evaluation mode."""

    def evaluation_seconds(self) -> float:
        """Measure how long `evaluate` takes."""
        started = time.perf_counter()
        self.evaluate()
        return time.perf_counter() - started

    def guess(self, part: str = "valid") -> Guess | None:
        """Return what a search has to surpass to have learned anything; None where there is no such figure.

        Args:
            part: ``valid``, or ``train`` where a training loss is compared.
        """
        return None

    def state_dict(self) -> dict[str, Any]:
        """Carried states, at the end of an epoch."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts them back."""


class ObjectiveModule(Protocol):
    """What a module of this package offers."""

    def read(self, config: SearchSettings, data: Any = None, progress: bool = False) -> Any:
        """The data that the settings name, or the given one; the main process reads first and may fill a cache."""

    def build(self, config: SearchSettings, data: Any, accelerator: Accelerator) -> Objective:
        """The objective with the supernet of `flair_nas.search.build`, on the accelerator's device."""


class StepFigures(NamedTuple):
    """What a step tells.

    Args:
        training_loss: with penalties; None when nothing was trained.
        validation_loss: None when the step looked at no validation data.
        gradient_norm: norm of the training loss' gradient, before it was clipped.
    """

    training_loss: float | None
    validation_loss: float | None
    gradient_norm: float


class Strategy(Protocol):
    """What the trainer asks of a strategy. What it declares of itself has a default here; the methods it must have.

    Args:
        objective: losses and supernet.
        config: the settings.
        reduce: averages tensors over processes, in place; None for one process.
    """

    bears_nan: ClassVar[bool] = False
    """Whether a search goes on when the valid loss after an epoch is not finite, as it is of one cell of many."""

    judged_on: str = "valid"
    """The part that `cost` is a figure of."""

    objective: Objective

    finishing: str = ""
    """What `finish` does, in a few words, where it takes a while."""

    def __init__(self, objective: Objective, config: SearchSettings, reduce: Reduce | None) -> None: ...

    # --- what it declares of itself, before there is anything to search ---

    @staticmethod
    def contradictions(config: SearchSettings) -> list[str]:
        """What of the settings it cannot do or would ignore, and what they must be; of any type, if out of range."""
        return []

    @staticmethod
    def extendable(config: SearchSettings) -> bool:
        """Whether its first epochs are the same whatever the number of epochs is."""
        return config.schedule == "constant"  # otherwise the learning rate falls until the last

    @staticmethod
    def least_sequences(config: SearchSettings) -> int:
        """How many sequences a part of a batch must have; 2 where the supernet normalises over them."""
        return 1

    @staticmethod
    def range_of(width: int) -> float:
        """What the weights of a supernet of a cell start in where the settings do not say."""
        return papers_range(width)

    @staticmethod
    def method(config: SearchSettings) -> str:
        """How it searched, in a few words, for a genotype's origin."""
        return f"{config.strategy} search, seed {config.seed}"

    # --- the search ---

    @abstractmethod
    def steps(self, epoch: int) -> int:
        """The number of steps of an epoch, counted from 1."""

    @abstractmethod
    def step(self, epoch: int, step: int) -> StepFigures:
        """Does one step; `step` counts from 0."""

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """What the history says of this strategy at the end of an epoch, as JSON data."""

    def end_epoch(self) -> dict[str, Any]:
        """The same, where the end of an epoch has more to say; called once an epoch."""
        return self.figures()

    def cost(self, history: Sequence[Mapping[str, Any]]) -> float | None:
        """Return what the search came to, as `Measure.cost` of a guess; None where the two cannot be compared.

        Args:
            history: a line for each epoch, at least one.
        """
        measure, last = self.objective.measure, history[-1]
        loss, value = (math.inf if last[key] is None else last[key] for key in ("valid_loss", measure.key))
        return measure.cost(Evaluation(loss, value))

    def verdict(self, history: Sequence[Mapping[str, Any]]) -> str:
        """Return a plain sentence on how far the genotype can be relied on; empty where there is nothing to say.

        Args:
            history: a line for each epoch; its losses are None where they were not finite.
        """
        return ""

    @abstractmethod
    def converged(self) -> bool:
        """Whether nothing is left to learn; asked before each epoch, the first one too."""

    @abstractmethod
    def finish(self, progress: bool) -> None:
        """What is left to do after the last epoch, such as comparing candidates."""

    @abstractmethod
    def genotype(self) -> Genotype:
        """The best genotype at this moment."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """What the strategy needs to go on after the last epoch; without the model's weights."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts it back."""
