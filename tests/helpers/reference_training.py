"""The training loops written down a second time: a search, first and second order, and the retraining of a genotype.

Plain loops over segments, for the loops of `flair_nas.search` and `flair_nas.language_model.training` to be held
against: their own SGD, Adam, averaging, clipping and penalties, with the cells of `reference.py` and
`reference_supernet.py`. Nothing is imported from the package. Random numbers come from torch's generator, in the order
in which a pass needs them: word dropout, the embedding's mask, that of x, that of h, the output's mask.
"""

from typing import Any, NamedTuple

import reference
import reference_supernet
import torch
from torch import Tensor

Weights = dict[str, Tensor]  # by the names of the parameters of a language model


class Dropouts(NamedTuple):
    """The probabilities, in the order in which masks are drawn."""

    word: float
    embedding: float
    input: float
    recurrent: float
    output: float


def mask(shape: tuple[int, ...], probability: float) -> Tensor:
    """Draw what keeps a unit with 1 - probability, and then enlarges it."""
    if not probability:
        return torch.ones(shape, dtype=torch.float64)
    return torch.empty(shape, dtype=torch.float64).bernoulli_(1 - probability) / (1 - probability)


def loss_of(
    weights: Weights,
    run: Any,
    tokens: Tensor,
    targets: Tensor,
    state: Any,
    dropouts: Dropouts,
    activation: float = 0.0,
    slowness: float = 0.0,
) -> tuple[Tensor, Tensor, Any]:
    """Return loss with penalties, loss without, and the state after a segment [T, B].

    `run(weights of the layer, xs [T, B, D], state, x_mask, h_mask)` gives the layer's output [T, B, H] and its state.
    """
    table = weights["embedding.weight"]
    types, width = table.shape
    steps, batch = tokens.shape
    kept = mask((types, 1), dropouts.word)
    xs = torch.stack([torch.stack([table[k] * kept[k] for k in row]) for row in tokens])  # [T, B, D]
    xs = xs * mask((batch, width), dropouts.embedding)
    layer = {name.removeprefix("layer."): weight for name, weight in weights.items() if name.startswith("layer.")}
    hidden = layer[next(name for name in layer if name.endswith("weight_hidden"))].shape[0]
    x_mask, h_mask = mask((batch, width), dropouts.input), mask((batch, hidden), dropouts.recurrent)
    outputs, state = run(layer, xs, state, x_mask, h_mask)
    dropped = outputs * mask((batch, hidden), dropouts.output)
    total = torch.zeros((), dtype=torch.float64)
    for t in range(steps):
        for b in range(batch):
            logits = dropped[t, b] @ table.t() + weights["decoder.bias"]  # [V]; embedding and softmax share a matrix
            total = total + torch.logsumexp(logits, 0) - logits[targets[t, b]]
    plain = total / (steps * batch)
    penalties = activation * dropped.square().mean()
    if steps > 1:
        penalties = penalties + slowness * (outputs[1:] - outputs[:-1]).square().mean()
    return plain + penalties, plain, state


def cut(state: Any) -> Any:
    """Return a state without its graph."""
    if isinstance(state, Tensor):
        return state.detach()
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*map(cut, state))
    return [cut(part) for part in state] if isinstance(state, list) else state


def clipped(gradients: list[Tensor], most: float) -> tuple[list[Tensor], float]:
    """Return gradients whose norm in all is at most that, and by what they were multiplied."""
    norm = sum(float(gradient.square().sum()) for gradient in gradients) ** 0.5
    factor = min(1.0, most / norm)
    return [gradient * factor for gradient in gradients], factor


class Adam:
    """Adam (Kingma and Ba, 2015) with weight decay in the gradient."""

    def __init__(self, rate: float, decay: float, beta1: float = 0.9, beta2: float = 0.999) -> None:
        self.rate, self.decay, self.beta1, self.beta2 = rate, decay, beta1, beta2
        self.steps, self.first, self.second = 0, [], []  # type: int, list[Tensor], list[Tensor]

    def step(self, weights: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """Return the weights after a step."""
        if not self.steps:
            self.first = [torch.zeros_like(weight) for weight in weights]
            self.second = [torch.zeros_like(weight) for weight in weights]
        self.steps += 1
        found = []
        for k, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
            gradient = gradient + self.decay * weight
            self.first[k] = self.beta1 * self.first[k] + (1 - self.beta1) * gradient
            self.second[k] = self.beta2 * self.second[k] + (1 - self.beta2) * gradient**2
            mean = self.first[k] / (1 - self.beta1**self.steps)
            square = self.second[k] / (1 - self.beta2**self.steps)
            found.append(weight - self.rate * mean / (square.sqrt() + 1e-8))
        return found


# --- search


def search(
    start: Weights,
    relaxation: str,
    order: int,
    segments: list[tuple[tuple[Tensor, Tensor, bool], tuple[Tensor, Tensor, bool]]],
    dropouts: Dropouts,
    settings: Any,
) -> Weights:
    """Search a cell over segments; return all weights at the end, architecture weights too (DARTS, algorithm 1).

    A segment is (tokens, targets, whether its stream begins) of the training text, and the same of the valid text.
    `settings` has learning_rate, weight_decay, clip, slowness, arch_learning_rate and arch_weight_decay.
    """
    weights = {name: value.clone() for name, value in start.items()}
    names = [name for name in weights if "arch" not in name]
    adam = Adam(settings.arch_learning_rate, settings.arch_weight_decay)
    states: dict[str, Any] = {"train": None, "valid": None}

    def run(layer: Weights, xs: Tensor, state: Any, x_mask: Tensor, h_mask: Tensor) -> tuple[Tensor, Any]:
        norm = reference_supernet.BatchNorm(xs.shape[2], training=True)  # running statistics are not asked for
        return reference_supernet.run_sequence(layer, relaxation, xs, state, norm=norm, x_mask=x_mask, h_mask=h_mask)

    def gradients(at: Weights, part: str, segment: Any, wanted: list[str]) -> tuple[list[Tensor], Any]:
        leaves = {name: value.clone().requires_grad_() for name, value in at.items()}
        tokens, targets, begins = segment
        slowness = settings.slowness if part == "train" else 0.0
        state = None if begins else states[part]
        loss, _, state = loss_of(leaves, run, tokens, targets, state, dropouts, slowness=slowness)
        return list(torch.autograd.grad(loss, [leaves[name] for name in wanted])), cut(state)

    def moved(by: dict[str, Tensor]) -> Weights:
        return {name: weights[name] + by[name] if name in by else weights[name] for name in weights}

    rate, decay, clip = settings.learning_rate, settings.weight_decay, settings.clip
    for training, validation in segments:
        if order == 1:
            (found,), states["valid"] = gradients(weights, "valid", validation, ["layer.arch"])
        else:
            before = torch.get_rng_state()
            of_training, factor = clipped(gradients(weights, "train", training, names)[0], clip)
            ahead = moved({n: -rate * (g + decay * weights[n]) for n, g in zip(names, of_training, strict=True)})  # w'
            (found, *direction), states["valid"] = gradients(ahead, "valid", validation, ["layer.arch", *names])
            direction, _ = clipped(direction, clip)
            after = torch.get_rng_state()
            epsilon = 0.01 / sum(float(v.square().sum()) for v in direction) ** 0.5
            sides = []
            for sign in (1, -1):
                torch.set_rng_state(before)  # the same masks
                there = moved({n: sign * epsilon * v for n, v in zip(names, direction, strict=True)})
                sides.append(gradients(there, "train", training, ["layer.arch"])[0][0])
            torch.set_rng_state(after)
            found = found - rate * factor * (sides[0] - sides[1]) / (2 * epsilon)
        (weights["layer.arch"],) = adam.step([weights["layer.arch"]], [found])
        of_training, states["train"] = gradients(weights, "train", training, names)
        for name, gradient in zip(names, clipped(of_training, clip)[0], strict=True):
            weights[name] = weights[name] - rate * (gradient + decay * weights[name])
    return weights


# --- retraining


class Retrained(NamedTuple):
    """What retraining ends with."""

    weights: Weights
    means: Weights | None  # of the weights after each step since averaging began
    valid_losses: list[float]  # after each epoch, in nats a token


def retrain(
    start: Weights,
    genotype: Any,
    train: Tensor,
    valid: Tensor,
    lengths: list[list[int]],
    dropouts: Dropouts,
    settings: Any,
) -> Retrained:
    """Retrain a genotype on columns of tokens [T + 1, B], in segments of given lengths for each epoch.

    `settings` has learning_rate, weight_decay, clip, activation, slowness, bptt and average_after: SGD, each step with
    a rate in proportion to its length, then the mean of its weights.
    """
    weights = {name: value.clone() for name, value in start.items()}
    means, averaged, losses = None, 0, []  # type: Weights | None, int, list[float]

    def run(layer: Weights, xs: Tensor, state: Any, x_mask: Tensor, h_mask: Tensor) -> tuple[Tensor, Any]:
        cell = {name.removeprefix("cells.0."): weight for name, weight in layer.items()}
        ends, outputs = [], []
        for b in range(xs.shape[1]):
            begin = None if state is None else state[b]
            output, end = reference.run_sequence(genotype, cell, xs[:, b], begin, x_mask[b], h_mask[b])
            outputs.append(output)
            ends.append(end)
        return torch.stack(outputs, dim=1), ends

    for epoch, of_epoch in enumerate(lengths, start=1):
        state, place = None, 0
        for length in of_epoch:
            rows = train[place : place + length + 1]
            place += length
            leaves = {name: value.clone().requires_grad_() for name, value in weights.items()}
            penalties = {"activation": settings.activation, "slowness": settings.slowness}
            loss, _, state = loss_of(leaves, run, rows[:-1], rows[1:], state, dropouts, **penalties)
            state = cut(state)
            found, _ = clipped(list(torch.autograd.grad(loss, list(leaves.values()))), settings.clip)
            rate = settings.learning_rate * length / settings.bptt
            for name, gradient in zip(list(weights), found, strict=True):
                weights[name] = weights[name] - rate * (gradient + settings.weight_decay * weights[name])
            if epoch > settings.average_after:
                means = means or {name: torch.zeros_like(value) for name, value in weights.items()}
                means = {name: (means[name] * averaged + weights[name]) / (averaged + 1) for name in weights}
                averaged += 1
        none = Dropouts(0.0, 0.0, 0.0, 0.0, 0.0)
        with torch.no_grad():
            losses.append(float(loss_of(means or weights, run, valid[:-1], valid[1:], None, none)[1]))
    return Retrained(weights, means, losses)
