"""Gradients of architecture weights in bilevel optimisation, first and second order (DARTS, algorithm 1)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

Loss = Callable[..., Tensor]
Reduce = Callable[[list[Tensor]], None]
"""Averages tensors over processes, in place."""


class BilevelObjective(Protocol):
    """The part of `flair_nas.search.protocols.Objective` that is needed here."""

    def model_parameters(self) -> list[nn.Parameter]:
        """The model weights w."""

    def architecture_parameters(self) -> list[nn.Parameter]:
        """The architecture weights α."""

    def buffers(self) -> Iterable[Tensor]:
        """What passes in training mode change besides the weights."""

    def training_loss(self, batch: Any, keep_state: bool = False) -> Tensor:
        """L_train of one part of a batch."""

    def validation_loss(self, batch: Any, keep_state: bool = False) -> Tensor:
        """L_val of one part of a batch."""


def mean_gradients(
    objective: BilevelObjective,
    loss: Loss,
    parts: Sequence[Any],
    wanted: Sequence[nn.Parameter],
    *,
    keep_state: bool = False,
    reduce: Reduce | None = None,
) -> tuple[float, list[Tensor]]:
    """The mean loss of the parts of a batch, and its gradients.

    Args:
        objective: whose parameters other than `wanted` take no part, which saves their gradients' products.
        loss: its training or validation loss.
        parts: the parts, of one size.
        wanted: the parameters.
        keep_state: carry states to the next batch.
        reduce: averages a list of tensors over processes, in place.

    Returns:
        The loss and a gradient per parameter, zero where the loss does not depend on it.
    """
    losses: list[Tensor] = []
    gradients = [torch.zeros_like(parameter) for parameter in wanted]
    with _only(wanted, [*objective.model_parameters(), *objective.architecture_parameters()]):
        for part in parts:
            value = loss(part, keep_state=keep_state) / len(parts)
            found = torch.autograd.grad(value, wanted, allow_unused=True)
            for gradient, new in zip(gradients, found):
                if new is not None:
                    gradient += new
            losses.append(value.detach())
    total = torch.stack(losses).sum()
    if reduce is not None:
        reduce([total, *gradients])
    return float(total), gradients


def first_order(
    objective: BilevelObjective,
    training_batch: Sequence[Any],
    validation_batch: Sequence[Any],
    *,
    architecture: Sequence[nn.Parameter] | None = None,
    reduce: Reduce | None = None,
) -> tuple[float, list[Tensor]]:
    """∇_α L_val(w, α).

    Args:
        objective: losses and parameters.
        training_batch: not used; here so that both orders are called alike.
        validation_batch: the parts of a batch of validation data.
        architecture: the architecture weights to learn; all of them when None.
        reduce: averages a list of tensors over processes, in place.

    Returns:
        The validation loss, and a gradient per architecture weight. Running statistics stay as they were.
    """
    architecture = objective.architecture_parameters() if architecture is None else architecture
    with _kept(objective.buffers()):
        return mean_gradients(
            objective, objective.validation_loss, validation_batch, architecture, keep_state=True, reduce=reduce
        )


def second_order(
    objective: BilevelObjective,
    training_batch: Sequence[Any],
    validation_batch: Sequence[Any],
    *,
    learning_rate: float,
    weight_decay: float = 0.0,
    clip: float | None = None,
    architecture: Sequence[nn.Parameter] | None = None,
    reduce: Reduce | None = None,
) -> tuple[float, list[Tensor]]:
    """∇_α L_val(w', α) - ξ k (∇_α L_train(w+, α) - ∇_α L_train(w-, α)) / 2ε with w' = w - ξ ∇_w L_train(w, α).

    w± = w ± ε v, where v = ∇_{w'} L_val(w', α) is clipped, ε = 0.01 / |v|, and k is the coefficient by which clipping
    shrinks the training gradient. The three training passes draw the same dropout masks: a difference of losses under
    other masks would be noise.

    Args:
        objective: losses and parameters.
        training_batch: the parts of a batch of training data.
        validation_batch: the same of validation data.
        learning_rate: ξ, that of the model weights.
        weight_decay: of the model weights.
        clip: largest norm of the model's gradient; None for no clipping.
        architecture: the architecture weights to learn; all of them when None.
        reduce: averages a list of tensors over processes, in place.

    Returns:
        The validation loss at w', and a gradient per architecture weight. Weights and running statistics stay as they
        were, to the bit.
    """
    weights = objective.model_parameters()
    architecture = list(objective.architecture_parameters() if architecture is None else architecture)

    def training_gradients(wanted: Sequence[nn.Parameter]) -> list[Tensor]:
        return mean_gradients(objective, objective.training_loss, training_batch, wanted, reduce=reduce)[1]

    randomness = _get_random_state(weights[0].device)
    with _kept([*objective.buffers(), *(weight.detach() for weight in weights)]), torch.no_grad():
        start = [weight.clone() for weight in weights]
        with torch.enable_grad():
            gradients = training_gradients(weights)
        shrunk = clip_gradients(gradients, clip)
        for weight, before, gradient in zip(weights, start, gradients):
            weight.copy_(before - learning_rate * (gradient + weight_decay * before))  # w'
        with torch.enable_grad():
            loss, found = mean_gradients(
                objective,
                objective.validation_loss,
                validation_batch,
                [*architecture, *weights],
                keep_state=True,
                reduce=reduce,
            )
        result, direction = found[: len(architecture)], found[len(architecture) :]
        clip_gradients(direction, clip)
        norm = gradient_norm(direction)
        if norm == 0:
            return loss, result
        epsilon = 0.01 / norm
        differences = [torch.zeros_like(gradient) for gradient in result]
        for sign in (1, -1):
            for weight, before, towards in zip(weights, start, direction):
                weight.copy_(before + sign * epsilon * towards)  # w+, w-
            with torch.enable_grad(), _random_state(randomness):
                found = training_gradients(architecture)
            for difference, gradient in zip(differences, found):
                difference += sign * gradient
        for gradient, difference in zip(result, differences):
            gradient -= learning_rate * shrunk * difference / (2 * epsilon)
    return loss, result


def gradient_norm(gradients: Sequence[Tensor]) -> float:
    """The norm of all gradients together."""
    return float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients])))


def clip_gradients(gradients: Sequence[Tensor], clip: float | None) -> float:
    """Shrinks gradients in place so that their norm is at most `clip`.

    Returns:
        The coefficient that they were multiplied with, at most 1.
    """
    norm = gradient_norm(gradients)
    if clip is None or norm <= clip:
        return 1.0
    coefficient = clip / norm
    for gradient in gradients:
        gradient *= coefficient
    return coefficient


@contextlib.contextmanager
def _only(wanted: Sequence[nn.Parameter], parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Within the block no parameter but the wanted ones requires a gradient."""
    kept = {id(parameter) for parameter in wanted}
    others = [parameter for parameter in parameters if id(parameter) not in kept and parameter.requires_grad]
    for parameter in others:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in others:
            parameter.requires_grad_(True)


@contextlib.contextmanager
def _kept(tensors: Iterable[Tensor]) -> Iterator[None]:
    """After the block the tensors hold what they held before, also after an error."""
    tensors = list(tensors)
    before = [tensor.clone() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, before):
                tensor.copy_(value)


def _get_random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


@contextlib.contextmanager
def _random_state(state: tuple[Tensor, Tensor | None]) -> Iterator[None]:
    """Within the block the generators go on from a state; afterwards from where they were."""
    of_cpu, of_cuda = state
    with torch.random.fork_rng([] if of_cuda is None else [torch.cuda.current_device()]):
        torch.set_rng_state(of_cpu)
        if of_cuda is not None:
            torch.cuda.set_rng_state(of_cuda)
        yield
