"""Optimizer step of the model weights, shared by all strategies that train."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from flair_nas.errors import NotFiniteError
from flair_nas.search.bilevel import Reduce, clip_gradients, gradient_norm, mean_gradients
from flair_nas.search.config import SearchSettings
from flair_nas.search.protocols import BatchPart, Objective

REMEDY = "A lower --learning-rate, a tighter --clip or --precision float32 may help."


class ModelOptimizer:
    """SGD on the training loss, clipped, with a schedule."""

    gradient_norm = 0.0  # of the last step, before it was clipped

    def __init__(self, objective: Objective, config: SearchSettings, reduce: Reduce | None) -> None:
        self.objective, self.config, self.reduce = objective, config, reduce
        self.weights = objective.model_parameters()
        self.optimizer = torch.optim.SGD(self.weights, lr=config.learning_rate, weight_decay=config.weight_decay)

    def learning_rate(self, epoch: int, batch: Sequence[BatchPart]) -> float:
        """Return the learning rate of a step: that of the schedule, times the batch's `scale` if it has one."""
        rate = self.config.learning_rate
        if self.config.schedule == "cosine":
            rate *= (1 + math.cos(math.pi * (epoch - 1) / self.config.epochs)) / 2
        return rate * float(getattr(batch[0], "scale", 1.0))

    def step(self, epoch: int, step: int, batch: Sequence[BatchPart]) -> float:
        """Make a step; return the loss.

        Raises:
            NotFiniteError: before the weights are touched.
        """
        loss, gradients = mean_gradients(
            self.objective, self.objective.training_loss, batch, self.weights, keep_state=True, reduce=self.reduce
        )
        self.gradient_norm = check_finite(self.objective, "training", epoch, step, loss, self.weights, gradients)
        clip_gradients(gradients, self.config.clip)
        self.optimizer.param_groups[0]["lr"] = self.learning_rate(epoch, batch)
        apply_gradients(self.optimizer, self.weights, gradients)
        return loss


def apply_gradients(optimizer: torch.optim.Optimizer, weights: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Make a step of an optimizer with these gradients of its weights."""
    for weight, gradient in zip(weights, gradients):
        weight.grad = gradient
    optimizer.step()
    optimizer.zero_grad()


def check_finite(
    objective: Objective,
    which: str,
    epoch: int,
    step: int,
    loss: float,
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
) -> float:
    """Refuse a loss or gradients that are not finite, and return the norm of all gradients together.

    Raises:
        NotFiniteError: it names the step and the largest gradient.
    """
    total = gradient_norm(gradients)
    if math.isfinite(loss) and math.isfinite(total):
        return total
    names = {id(parameter): name for name, parameter in objective.module.named_parameters()}
    norms = [(float(torch.linalg.vector_norm(gradient)), names[id(p)]) for p, gradient in zip(parameters, gradients)]
    # one that is not a number counts as larger than all
    norm, name = max(norms, key=lambda pair: (math.isnan(pair[0]), pair[0]))
    raise NotFiniteError(
        f"not finite in epoch {epoch}, step {step + 1}: {which} loss {loss:g}; the largest gradient is that of {name}, "
        f"its norm is {norm:g}. {REMEDY}"
    )
