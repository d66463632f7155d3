"""Bilevel optimisation: gradients of architecture weights, first and second order, and steps of the model weights.

DARTS, algorithm 1.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from flair_nas.errors import NotFiniteError, name_largest_gradient
from flair_nas.runs.random_state import random_state, restore_random_state
from flair_nas.search.processes import average
from flair_nas.search.protocols import REMEDY, Batch, BatchPart, Objective
from flair_nas.search.settings import CommonSettings
from flair_nas.settings.optimizer import OPTIMIZERS, warmup_factor


def architecture_weights(objective: Objective) -> list[nn.Parameter]:
    """Return all architecture weights."""
    return [parameter for group in objective.supernet.architecture().values() for parameter in group]


def model_weights(objective: Objective, module: nn.Module | None = None) -> list[nn.Parameter]:
    """Return the model weights, or those of a part of the model: all that learn but the architecture weights."""
    architecture = {id(parameter) for parameter in architecture_weights(objective)}
    parameters = (objective.module if module is None else module).parameters()
    return [parameter for parameter in parameters if parameter.requires_grad and id(parameter) not in architecture]


def training_loss(objective: Objective, part: BatchPart, keep_state: bool = False) -> Tensor:
    """Compute the loss that trains the model weights on a part, with the penalty that the objective may have."""
    loss = objective.training_loss(part, keep_state)
    return loss if objective.penalty is None else objective.penalty(loss)


def mean_gradients(
    objective: Objective,
    loss: Callable[[BatchPart], Tensor],
    parts: Sequence[BatchPart],
    parameters: Sequence[nn.Parameter],
) -> tuple[float, list[Tensor]]:
    """Compute the mean loss of the parts of a batch, all of one size, and its gradient by each parameter, or zeros."""
    losses: list[Tensor] = []
    gradients = [torch.zeros_like(parameter) for parameter in parameters]
    wanted = {id(parameter) for parameter in parameters}
    others = [weight for weight in objective.module.parameters() if weight.requires_grad and id(weight) not in wanted]
    for parameter in others:  # to compute their gradients would take time
        parameter.requires_grad_(False)
    try:
        with torch.enable_grad():
            for part in parts:
                value = loss(part) / len(parts)
                for gradient, grad in zip(gradients, torch.autograd.grad(value, parameters, allow_unused=True)):
                    if grad is not None:
                        gradient += grad
                losses.append(value.detach())
    finally:
        for parameter in others:
            parameter.requires_grad_(True)
    total = torch.stack(losses).sum()
    average([total, *gradients])
    return float(total), gradients


def validation_loss(objective: Objective, steps: Iterable[int], epoch: int = 1) -> float:
    """Compute the mean loss of some validation batches of an epoch, in evaluation mode and without carried states."""
    losses: list[Tensor] = []
    objective.module.eval()
    objective.restart()
    with torch.no_grad(), objective.supernet.batch_statistics():
        for step in steps:
            parts = objective.validation_batch(epoch, step).parts
            losses += [objective.validation_loss(part, keep_state=True).double() for part in parts]
    objective.module.train()
    average([mean := torch.stack(losses).mean()])
    return float(mean)


def first_order(
    objective: Objective, validation_batch: Batch, *, architecture: Sequence[nn.Parameter] | None = None
) -> tuple[float, list[Tensor]]:
    """Compute the validation loss and ∇_α L_val(w, α); see `second_order`. Running statistics stay as they were."""
    architecture = architecture_weights(objective) if architecture is None else architecture
    validate = partial(objective.validation_loss, keep_state=True)
    with preserve(objective.module.buffers()):
        return mean_gradients(objective, validate, validation_batch.parts, architecture)


def second_order(
    objective: Objective,
    training_batch: Batch,
    validation_batch: Batch,
    *,
    learning_rate: float,
    weight_decay: float = 0.0,
    clip: float | None = None,
    architecture: Sequence[nn.Parameter] | None = None,
) -> tuple[float, list[Tensor]]:
    """Compute ∇_α L_val(w', α) - ξ k (∇_α L_train(w+, α) - ∇_α L_train(w-, α)) / 2ε with w' = w - ξ ∇_w L_train(w, α).

    w± = w ± ε v, where v = ∇_{w'} L_val(w', α) is clipped and ε = 0.01 / |v|. Clipping shrinks the training gradient
    by k. Weights and running statistics stay as they were, to the bit.

    Args:
        objective: losses and parameters.
        training_batch: training data.
        validation_batch: validation data.
        learning_rate: ξ, that of the model weights.
        weight_decay: of the model weights.
        clip: largest norm of the model's gradient; None for no clipping.
        architecture: the architecture weights to learn; all of them when None.

    Returns:
        The validation loss at w', and a gradient per architecture weight.
    """
    weights = model_weights(objective)
    architecture = list(architecture_weights(objective) if architecture is None else architecture)
    differentiate = partial(mean_gradients, objective)
    train, validate = partial(training_loss, objective), partial(objective.validation_loss, keep_state=True)
    randomness = random_state()
    with preserve([*objective.module.buffers(), *(weight.detach() for weight in weights)]), torch.no_grad():
        start = [weight.clone() for weight in weights]
        learning = weights if training_batch.weights is None else training_batch.weights  # the others stay
        _, gradients = differentiate(train, training_batch.parts, learning)
        shrinkage = clip_gradients(gradients, clip)
        for weight, gradient in zip(learning, gradients):
            weight.copy_(weight - learning_rate * (gradient + weight_decay * weight))  # w'
        both = [*architecture, *weights]
        loss, gradients = differentiate(validate, validation_batch.parts, both)
        result, direction = gradients[: len(architecture)], gradients[len(architecture) :]
        clip_gradients(direction, clip)
        norm = gradient_norm(direction)
        if norm == 0:
            return loss, result
        epsilon = 0.01 / norm
        differences = [torch.zeros_like(gradient) for gradient in result]
        for sign in (1, -1):
            for weight, before, towards in zip(weights, start, direction):
                weight.copy_(before + sign * epsilon * towards)  # w+, w-
            present = random_state()
            restore_random_state(randomness)  # the same dropout masks: a difference under others would be noise
            _, gradients = differentiate(train, training_batch.parts, architecture)
            restore_random_state(present)
            for difference, gradient in zip(differences, gradients):
                difference += sign * gradient
        for gradient, difference in zip(result, differences):
            gradient -= learning_rate * shrinkage * difference / (2 * epsilon)
    return loss, result


def gradient_norm(gradients: Sequence[Tensor]) -> float:
    """Compute the norm of all gradients together."""
    return float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])))


def clip_gradients(gradients: Sequence[Tensor], clip: float | None) -> float:
    """Shrink gradients in place to a common norm of at most `clip`, and return their factor, at most 1."""
    norm = gradient_norm(gradients)
    if clip is None or norm <= clip:
        return 1.0
    factor = clip / norm
    for gradient in gradients:
        gradient *= factor
    return factor


@contextlib.contextmanager
def preserve(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Restore the values of tensors after the block, also after an error."""
    before = [(tensor, tensor.clone()) for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)


class ModelOptimizer:
    """SGD, or AdamW, on the training loss, clipped, with a schedule."""

    gradient_norm = 0.0  # of the last step, before it was clipped
    done: float | None = None  # share of the training that is over; None: that of the epochs
    steps = 0  # of a candidate that trains alone, with this one

    def __init__(self, objective: Objective, config: CommonSettings) -> None:
        self.objective, self.config = objective, config
        self.weights = model_weights(objective)
        kind: type[torch.optim.SGD] = getattr(torch.optim, OPTIMIZERS[config.transformer.optimizer])  # all take these
        self.optimizer = kind(self.weights, lr=config.learning_rate, weight_decay=config.weight_decay)

    def restart(self, state: dict[str, Any] | None = None) -> None:
        """Go on from a state of the optimizer, or from none."""
        self.optimizer.state.clear()
        if state is not None:
            self.optimizer.load_state_dict(state)

    def learning_rate(self, epoch: int, batch: Batch) -> float:
        """Return the learning rate of a step: that of the schedule, times the scale of the batch."""
        rate = self.config.learning_rate
        if self.config.schedule == "cosine":
            done = (epoch - 1) / self.config.epochs if self.done is None else self.done
            rate *= (1 + math.cos(math.pi * done)) / 2
        return rate * batch.scale * warmup_factor(self.steps, self.config.transformer.warmup_steps)

    def clip(self, batch: Batch) -> float:
        """Return the largest norm of the gradient on a batch."""
        return self.config.clip if batch.clip is None else batch.clip

    def step(self, epoch: int, step: int, batch: Batch) -> float:
        """Make a step; return the loss. A NotFiniteError leaves the weights as they were."""
        weights = self.weights if batch.weights is None else batch.weights
        train = partial(training_loss, self.objective, keep_state=True)
        loss, gradients = mean_gradients(self.objective, train, batch.parts, weights)
        place = f"epoch {epoch}, step {step + 1}: training loss {loss:g}"
        self.gradient_norm = check_finite(self.objective, place, loss, weights, gradients)
        self.optimizer.param_groups[0]["lr"] = self.learning_rate(epoch, batch)
        apply_gradients(self.optimizer, weights, gradients, self.clip(batch))
        return loss


class ArchitectureOptimizer:
    """Adam on the validation loss for a group of architecture weights, by their gradient of order 1 or 2, clipped.

    The options are those of Adam. The optimizer of the model weights is of the same objective.
    """

    def __init__(
        self, model: ModelOptimizer, weights: list[nn.Parameter], order: int, clip: float | None, **options: Any
    ) -> None:
        self.model, self.weights, self.order, self.clip = model, weights, order, clip
        self.adam = torch.optim.Adam(weights, **options)

    def step(self, epoch: int, step: int, training: Batch, validation: Batch) -> float:
        """Make a step; return the validation loss. A NotFiniteError leaves the weights as they were."""
        objective, model = self.model.objective, self.model
        if self.order == 1:
            loss, gradients = first_order(objective, validation, architecture=self.weights)
        else:
            loss, gradients = second_order(
                objective, training, validation, architecture=self.weights,
                learning_rate=model.learning_rate(epoch, training), weight_decay=model.config.weight_decay,
                clip=model.clip(training),
            )  # fmt: skip
        place = f"epoch {epoch}, step {step + 1}: validation loss {loss:g}"
        check_finite(objective, place, loss, self.weights, gradients)
        apply_gradients(self.adam, self.weights, gradients, self.clip)
        return loss


def apply_gradients(
    optimizer: torch.optim.Optimizer, weights: Sequence[Tensor], gradients: Sequence[Tensor], clip: float | None
) -> None:
    """Make a step of an optimizer with the clipped gradients of its weights."""
    clip_gradients(gradients, clip)
    for weight, gradient in zip(weights, gradients):
        weight.grad = gradient
    optimizer.step()
    optimizer.zero_grad()


def check_finite(
    objective: Objective, place: str, loss: float, weights: Sequence[Tensor], gradients: Sequence[Tensor]
) -> float:
    """Return the norm of all gradients together. Raise a NotFiniteError if it or the loss is not finite."""
    total = gradient_norm(gradients)
    if math.isfinite(loss) and math.isfinite(total):
        return total
    names = {id(parameter): name for name, parameter in objective.module.named_parameters()}
    norms = {names[id(weight)]: gradient_norm([gradient]) for weight, gradient in zip(weights, gradients)}
    raise NotFiniteError(f"not finite in {place}; {name_largest_gradient(norms)}. {REMEDY}")
