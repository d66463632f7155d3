"""The figure by which a model is judged: its name, where it comes from, which way is better, how it is shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Evaluation(NamedTuple):
    """What an evaluation on the whole validation part gives.

    Args:
        loss: the mean loss.
        value: the figure that the measure stands for.
    """

    loss: float
    value: float


class Guess(NamedTuple):
    """A prediction without a model, which a model that has learned something surpasses.

    Args:
        key: its name in the keys of histories.
        name: the same in sentences.
        cost: its cost on the validation part, as `Measure.cost` gives it.
    """

    key: str
    name: str
    cost: float


@dataclass(frozen=True)
class Measure:
    """A figure such as perplexity or F1.

    Args:
        name: in the keys of histories: ``valid_NAME``.
        title: in sentences and on axes.
        of_loss: gives it for a mean loss; None where an evaluation alone can tell it.
        higher_is_better: whether a larger figure is a better one. Where it is formed of the loss, the loss decides.
        form: of the printed number, for `format`.
        scale: of the axis of a picture, ``linear`` or ``log``.
    """

    name: str
    title: str
    of_loss: Callable[[float], float] | None = None
    higher_is_better: bool = False
    form: str = ".1f"
    scale: str = "linear"

    @property
    def key(self) -> str:
        """Its key in a history."""
        return f"valid_{self.name}"

    def cost(self, evaluation: Evaluation) -> float:
        """What is the smaller, the better: the loss if the measure is formed of it, else its figure or minus that."""
        if self.of_loss is not None:
            return evaluation.loss
        return -evaluation.value if self.higher_is_better else evaluation.value

    def of_cost(self, cost: float) -> float:
        """Return the figure of a cost."""
        if self.of_loss is not None:
            return self.of_loss(cost)
        return 0.0 - cost if self.higher_is_better else cost  # no -0.0

    def best(self, cost: float) -> dict[str, float | None]:
        """The smallest cost as a figure with its name, for a history; None where none is finite."""
        name = self.name if self.of_loss is None else "loss"
        value = cost if self.of_loss is not None else self.of_cost(cost)
        return {f"best_{name}": value if math.isfinite(value) else None}

    def plain(self, value: float) -> str:
        """The number as it is printed."""
        return f"{value:{self.form}}"

    def shown(self, value: float | None) -> str:
        """Return the figure with its name; None stands for one that is not finite."""
        missing = math.nan if self.of_loss is None else math.inf
        return f"{self.title} {self.plain(missing if value is None else value)}"

    def shown_loss(self, loss: float) -> str:
        """Return a loss with its name, as this measure's figure if that is formed of it."""
        return f"loss {loss:.3f}" if self.of_loss is None else self.shown(self.of_loss(loss))
