"""Search strategies. A further one is one file with a class like these, and a line in `config.STRATEGIES`."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from flair_nas.genotype import Genotype


class StepFigures(NamedTuple):
    """What a step tells.

    Args:
        training_loss: nats per token, with penalties; None when nothing was trained.
        validation_loss: nats per token; None when the step looked at no validation data.
        gradient_norm: norm of the training loss' gradient, before it was clipped.
    """

    training_loss: float | None
    validation_loss: float | None
    gradient_norm: float


class Strategy(Protocol):
    """What the trainer asks of a strategy; it is made from objective, settings and a function that averages tensors."""

    def steps(self, epoch: int) -> int:
        """The number of steps of an epoch, counted from 1."""

    def step(self, epoch: int, step: int) -> StepFigures:
        """Does one step; `step` counts from 0."""

    def figures(self) -> dict[str, Any]:
        """What the history says of this strategy at the end of an epoch, as JSON data."""

    def converged(self) -> bool:
        """Whether the search may end before its last epoch; asked at the end of each."""

    def finish(self, progress: bool) -> None:
        """What is left to do after the last epoch, such as comparing candidates."""

    def genotype(self) -> Genotype:
        """The best genotype at this moment."""

    def state_dict(self) -> dict[str, Any]:
        """What the strategy needs to go on after the last epoch; without the model's weights."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts it back."""
