"""What a search optimises. Another objective is one file with `read` and `build`, and a line in `config.OBJECTIVES`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import Tensor, nn

    from flair_nas.runs.metric import Evaluation, Guess, Measure
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
