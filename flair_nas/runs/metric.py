"""Metrics of models: name, direction and format."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Evaluation(NamedTuple):
    """The mean loss and the value of the metric on the validation part."""

    loss: float
    value: float
    figures: Mapping[str, Any] = {}  # further entries of a history, as JSON data


class Guess(NamedTuple):
    """A prediction without a model: its key in a history, its name in sentences, and its `Metric.cost` on dev."""

    key: str
    name: str
    cost: float


@dataclass(frozen=True)
class Metric:
    """A metric such as perplexity or F1."""

    name: str  # in the keys of histories: ``dev_NAME``
    title: str  # in sentences and on axes
    from_loss: Callable[[float], float] | None = None  # from the mean loss; None if the metric needs an evaluation
    higher_is_better: bool = False  # ignored with `from_loss`, where a lower loss is better
    form: str = ".1f"  # of the number
    log: bool = False  # pictures have a logarithmic axis

    @property
    def key(self) -> str:
        """The key in a history."""
        return f"dev_{self.name}"

    def cost(self, evaluation: Evaluation) -> float:
        """Return a cost, which is smaller for a better model: the loss with `from_loss`, else the signed metric."""
        if self.from_loss is not None:
            return evaluation.loss
        return -evaluation.value if self.higher_is_better else evaluation.value

    def from_cost(self, cost: float) -> float:
        """Return the value of the metric for a cost."""
        if self.from_loss is not None:
            return self.from_loss(cost)
        return 0.0 - cost if self.higher_is_better else cost  # no -0.0

    def best(self, cost: float) -> dict[str, float | None]:
        """Return the figure of the smallest cost by its key in a history. A figure that is not finite is None."""
        name = self.name if self.from_loss is None else "loss"
        value = cost if self.from_loss is not None else self.from_cost(cost)
        return {f"best_{name}": value if math.isfinite(value) else None}

    def plain(self, value: float) -> str:
        """Format a value."""
        return f"{value:{self.form}}"

    def shown(self, value: float | None) -> str:
        """Format a value after the name of the metric. None stands for a value that is not finite."""
        missing = math.nan if self.from_loss is None else math.inf
        return f"{self.title} {self.plain(missing if value is None else value)}"

    def format_loss(self, loss: float) -> str:
        """Format a loss. With `from_loss`, format it as the metric."""
        return f"loss {loss:.3f}" if self.from_loss is None else self.shown(self.from_loss(loss))


def to_perplexity(loss: float) -> float:
    """Return e to the loss, or infinity if no float is as large."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def to_bits(loss: float) -> float:
    """Return a loss in nats in bits."""
    return loss / math.log(2)


PERPLEXITY = Metric("perplexity", "perplexity", to_perplexity, log=True)
BITS = Metric("bits", "bits per character", to_bits, form=".4f")
F1 = Metric("f1", "F1", higher_is_better=True, form=".2f")
ACCURACY = Metric("accuracy", "accuracy", higher_is_better=True, form=".2f")
"""Metric where each token or text has one label."""
MEAN_COST = Metric("cost", "mean cost", form=".4f")
"""Metric of several tasks."""

METRICS = {metric.key: metric for metric in (PERPLEXITY, BITS, F1, ACCURACY, MEAN_COST)}
"""All metrics, by their key in a history."""
