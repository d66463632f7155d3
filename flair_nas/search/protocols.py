"""Interfaces of objectives and strategies."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

from flair_nas.runs.metric import Evaluation, Guess, Metric
from flair_nas.search.settings import CommonSettings, StrategySettings

if TYPE_CHECKING:
    from torch import Tensor, nn

    from flair_nas.supernet import Supernet

JSON: TypeAlias = dict[str, Any]  # or the like for a checkpoint
BatchPart: TypeAlias = Any  # its type is known to its objective alone
Candidate: TypeAlias = Any  # a `Genotype`, or an `Order` of sublayers
Data: TypeAlias = Any  # of an objective, such as a text or a corpus
REMEDY = "A lower --learning-rate, a tighter --clip or --precision float32 may help."
"""Advice after a loss that is not finite."""


@dataclass
class Batch:
    """Data of one step."""

    parts: Sequence[BatchPart]  # of equal size; they are computed one by one, and their gradients add up
    scale: float = 1.0  # factor of the learning rate of the step
    clip: float | None = None  # largest norm of the gradient of the model weights; None for that of the settings
    weights: Sequence[nn.Parameter] | None = None  # the model weights that the step changes; None for all


class Objective(Protocol):
    """Model, data and losses of a search."""

    metric: Metric  # that it is judged by
    name: str  # of its data, in a few words, for a genotype's provenance
    fingerprint: str  # of its data: a search does not go on with other data
    module: nn.Module  # the whole model
    supernet: Supernet  # in the model
    derived: str = ""  # the settings that follow from the data, in words; empty for none
    tasks: Mapping[str, Objective] = {}  # by name, if there are several
    penalty: Callable[[Tensor], Tensor] | None = None  # adds a term of the weights to the training loss

    @abstractmethod
    def steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch, counted from 1."""

    @abstractmethod
    def training_batch(self, epoch: int, step: int) -> Batch:
        """Return a step's training data; `step` counts from 0."""

    @abstractmethod
    def validation_batch(self, epoch: int, step: int) -> Batch:
        """Return a step's validation data, in a cycle."""

    @abstractmethod
    def training_loss(self, part: BatchPart, keep_state: bool = False) -> Tensor:
        """Compute the loss of the model weights on a part; `keep_state` for the next step."""

    @abstractmethod
    def validation_loss(self, part: BatchPart, keep_state: bool = False) -> Tensor:
        """Compute the loss of the architecture weights on a part."""

    @abstractmethod
    def evaluate(self) -> Evaluation:
        """Compute loss and metric on the whole validation part, in evaluation mode."""

    def evaluation_seconds(self) -> float:
        """Measure the time of `evaluate`."""
        started = time.perf_counter()
        self.evaluate()
        return time.perf_counter() - started

    def guess(self, part: str = "valid") -> Guess | None:
        """Return the prediction without a model to surpass, on ``valid`` or ``train``; None if there is none."""
        return None

    def restart(self) -> None:
        """Forget carried states: the streams of data begin anew."""
        return None


def carry_step(objective: Objective, epoch: int, step: int) -> tuple[int, int]:
    """Return the epoch and the step in it, for a step that may be counted beyond the end of its epoch."""
    while step >= (count := objective.steps(epoch)):
        epoch, step = epoch + 1, step - count
    return epoch, step


class StepFigures(NamedTuple):
    """Figures of a step."""

    training_loss: float | None  # with penalties; None when nothing was trained
    validation_loss: float | None  # None when the step used no validation data
    gradient_norm: float  # of the training loss, before it was clipped
    mad: Mapping[str, float] = {}  # of the architecture weights, by part; empty if there are none


class Strategy(Protocol):
    """Strategy of a search, as the trainer calls it, and what it says of its genotype."""

    settings: ClassVar[type[StrategySettings]]  # the dataclass of its own settings
    bears_nan: bool = False  # True if a search goes on after an epoch whose valid loss is not finite
    judged_on: str = "valid"  # part of the data that `cost` is a figure of, ``valid`` or ``train``
    finishing: str = ""  # the work of `finish` in a few words, if it takes a while
    longer: str = ""  # advice, in a sentence, that gives each candidate more training, if each is trained alone

    def __init__(self, objective: Objective, config: CommonSettings, settings: Any) -> None: ...

    @abstractmethod
    def step(self, epoch: int, step: int) -> StepFigures:
        """Make one step; epochs count from 1, steps from 0."""

    @abstractmethod
    def end_epoch(self) -> JSON:
        """Return the strategy's entries in the history, as JSON data; called once at the end of an epoch."""

    @abstractmethod
    def genotype(self) -> Candidate:
        """Return the best genotype at this moment."""

    @abstractmethod
    def state_dict(self) -> JSON:
        """Return the state after an epoch, without the model's weights."""

    @abstractmethod
    def load_state_dict(self, state: JSON) -> None:
        """Restore a state."""

    def converged(self) -> bool:
        """Return True if nothing is left to learn; called before each epoch, the first one too."""
        return False

    def finish(self, progress: bool) -> None:
        """Finish after the last epoch, such as by a comparison of candidates."""
        return None

    def cost(self, history: Sequence[JSON], metric: Metric) -> float | None:
        """Return the cost after some epochs, comparable with that of a guess; None if the two cannot be compared."""
        loss, value = (math.inf if history[-1][key] is None else history[-1][key] for key in ("dev_loss", metric.key))
        return metric.cost(Evaluation(loss, value))

    def figures(self, history: Sequence[JSON]) -> JSON:
        """Return the objective's figures of the genotype, where there are some."""
        return history[-1] if self.judged_on == "valid" else {}

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return a plain sentence on the reliability of the genotype; empty if there is nothing to say.

        Losses in the history are None where they were not finite.
        """
        return ""

    def end_seconds(self) -> float:
        """Return the seconds of end-of-epoch work done in the last step."""
        return 0.0
