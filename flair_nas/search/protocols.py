"""Interfaces of objectives and strategies."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

from flair_nas.genotype import Genotype
from flair_nas.nn.init import papers_range
from flair_nas.runs.metric import Evaluation

if TYPE_CHECKING:
    from torch import Tensor, nn

    from flair_nas.runs.metric import Guess, Metric
    from flair_nas.search.bilevel import Reduce
    from flair_nas.search.config import SearchSettings
    from flair_nas.supernet import Supernet

JSON: TypeAlias = dict[str, Any]  # or the like for a checkpoint
BatchPart: TypeAlias = Any  # of a step's data; its type is known to its objective alone
Data: TypeAlias = Any  # of an objective, such as a text or a corpus


class Objective(Protocol):
    """Model, data and losses of a search.

    A step has one or more parts. If the first part of training data has an attribute `scale`, the learning rate of its
    step is multiplied by it; if it has `gradient_clip`, this is the largest norm of its gradient.
    """

    metric: Metric  # that it is judged by
    name: str  # of its data, in a few words, for a genotype's provenance
    fingerprint: str  # of its data: a search does not go on with other data
    module: nn.Module  # the whole model
    supernet: Supernet  # in the model
    data: str = "data"  # its kind of data, in a word, for messages
    derived: str = ""  # the settings that follow from the data, in words; empty for none

    def model_parameters(self) -> list[nn.Parameter]:
        """Return the model weights: all parameters that learn but the architecture weights."""
        architecture = {id(parameter) for parameter in self.architecture_parameters()}
        return [p for p in self.module.parameters() if p.requires_grad and id(p) not in architecture]

    def architecture_parameters(self) -> list[nn.Parameter]:
        """Return all architecture weights."""
        return [parameter for group in self.supernet.architecture().values() for parameter in group]

    def weights_of(self, batch: Sequence[BatchPart]) -> list[nn.Parameter]:
        """Return the model weights that a step on a batch of training data changes."""
        return self.model_parameters()

    def buffers(self) -> list[Tensor]:
        """Return the running statistics, which passes in training mode change."""
        return list(self.module.buffers())

    def steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch, counted from 1."""

    def training_batch(self, epoch: int, step: int) -> list[BatchPart]:
        """Return the parts of a step's training data; `step` counts from 0."""

    def validation_batch(self, epoch: int, step: int) -> list[BatchPart]:
        """Return the parts of a step's validation data, in a cycle."""

    def training_loss(self, batch: BatchPart, keep_state: bool = False) -> Tensor:
        """Compute the loss of the model weights on a part, with its penalties; `keep_state` for the next step."""

    def validation_loss(self, batch: BatchPart, keep_state: bool = False) -> Tensor:
        """Compute the loss of the architecture weights."""

    def evaluate(self) -> Evaluation:
        """Compute loss and metric on the whole validation part, in evaluation mode."""

    def figures(self) -> JSON:
        """Return further entries in the history, of the last evaluation, as JSON data."""
        return {}

    def unlearned(self, figures: JSON) -> list[str]:
        """Return a clause for each of several tasks on which such figures are no better than a guess."""
        return []

    def evaluation_seconds(self) -> float:
        """Measure how long `evaluate` takes."""
        started = time.perf_counter()
        self.evaluate()
        return time.perf_counter() - started

    def guess(self, part: str = "valid") -> Guess | None:
        """Return the prediction without a model to surpass, on ``valid`` or ``train``; None if there is none."""
        return None

    def restart(self) -> None:
        """Forget carried states: the streams of data begin anew."""
        return None


class StepFigures(NamedTuple):
    """Figures of a step."""

    training_loss: float | None  # with penalties; None when nothing was trained
    validation_loss: float | None  # None when the step used no validation data
    gradient_norm: float  # of the training loss, before it was clipped


class Strategy(Protocol):
    """Strategy of a search, as the trainer calls it. Only abstract methods lack a default."""

    bears_nan: ClassVar[bool] = False  # True if a search goes on after an epoch whose valid loss is not finite
    judged_on: str = "valid"  # the part that `cost` is a figure of
    finishing: str = ""  # the work of `finish` in a few words, if it takes a while
    longer: str = ""  # what gives each candidate more training, in a sentence, if each is trained alone
    objective: Objective

    def __init__(self, objective: Objective, config: SearchSettings, reduce: Reduce | None) -> None: ...

    # --- declarations, before there is anything to search ---

    @staticmethod
    def contradictions(config: SearchSettings) -> list[str]:
        """Return a sentence for each setting that it cannot use; settings out of range may have any type."""
        return []

    @staticmethod
    def extendable(config: SearchSettings) -> bool:
        """Return True if its first epochs do not depend on the number of epochs."""
        return config.schedule == "constant"  # otherwise the learning rate falls until the last

    @staticmethod
    def count_min_sequences(config: SearchSettings) -> int:
        """Return the fewest sequences in a part of a batch; 2 if the supernet normalises over them."""
        return 1

    @staticmethod
    def range_of(width: int) -> float:
        """Return the initialisation bound of a supernet's weights if the settings have none."""
        return papers_range(width)

    @staticmethod
    def method(config: SearchSettings) -> str:
        """Return the method in a few words, for a genotype's provenance."""
        return f"{config.strategy} search, seed {config.seed}"

    # --- the search ---

    def steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch, counted from 1: one pass over the training data."""
        return self.objective.steps(epoch)

    @abstractmethod
    def step(self, epoch: int, step: int) -> StepFigures:
        """Make one step; `step` counts from 0."""

    def measure_end(self) -> float:
        """Measure the seconds of the work at the end of an epoch that its last step does besides."""
        return 0.0

    @abstractmethod
    def figures(self) -> JSON:
        """Return the strategy's entries in the history, as JSON data."""

    def end_epoch(self) -> JSON:
        """Return the entries at the end of an epoch, with figures of the whole epoch; called once an epoch."""
        return self.figures()

    def cost(self, history: Sequence[JSON]) -> float | None:
        """Return the cost after some epochs, comparable with that of a guess; None if the two cannot be compared."""
        metric, last = self.objective.metric, history[-1]
        loss, value = (math.inf if last[key] is None else last[key] for key in ("dev_loss", metric.key))
        return metric.cost(Evaluation(loss, value))

    def judged_figures(self, history: Sequence[JSON]) -> JSON:
        """Return the objective's figures of what was found, where there are some."""
        return history[-1] if self.judged_on == "valid" else {}

    def verdict(self, history: Sequence[JSON]) -> str:
        """Return a plain sentence on how far the genotype can be relied on; empty if there is nothing to say.

        Losses in the history are None where they were not finite.
        """
        return ""

    @abstractmethod
    def converged(self) -> bool:
        """Return True if nothing is left to learn; called before each epoch, the first one too."""

    @abstractmethod
    def finish(self, progress: bool) -> None:
        """Finish after the last epoch, such as by a comparison of candidates."""

    @abstractmethod
    def genotype(self) -> Genotype:
        """Return the best genotype at this moment."""

    @abstractmethod
    def state_dict(self) -> JSON:
        """Return the state after an epoch, without the model's weights."""

    @abstractmethod
    def load_state_dict(self, state: JSON) -> None:
        """Restore a state."""
