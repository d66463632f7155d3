"""How much a genotype of a gradient-based search means: do its weights still move, and how clear are its choices?"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor

from flair_nas.genotype import Genotype
from flair_nas.runs.metric import Guess, Measure
from flair_nas.search.convergence import drift, drifts, flattened

EPOCHS = 3
"""How many epochs back the nodes are looked for that have changed."""

STILL = 0.03
"""A training loss that fell by less, in nats, has hardly moved."""

CLEAR = 0.1
"""A choice whose kept edge is less than this share of itself ahead of the next one is not clear."""


class Health:
    """What one part of an architecture, ``intra`` or ``inter``, has done in an epoch.

    Args:
        weights: its architecture weights.
        rate: the learning rate of their Adam.
    """

    def __init__(self, weights: Sequence[Tensor], rate: float) -> None:
        self.weights, self.rate = weights, rate
        self.path: list[Tensor] = []
        self.restart()

    def restart(self) -> None:
        """An epoch begins."""
        self.path = [flattened(self.weights)]

    def add(self) -> None:
        """The weights have made a step."""
        self.path.append(flattened(self.weights))

    def figures(self) -> dict[str, float | None]:
        """Of the steps of this epoch.

        Returns:
            ``update``: the mean size of a step of one weight, in learning rates (Adam's largest is 1); ``drift``: see
            `flair_nas.search.convergence.drift`; both None where there was no step.
        """
        if len(self.path) < 3:
            return {"update": None, "drift": None}
        steps = torch.stack(self.path).diff(dim=0).abs().mean()
        return {"update": float(steps) / self.rate, "drift": drift(self.path)}


def entropy(shares: Sequence[Tensor]) -> float:
    """The mean entropy of the softmaxes, each as a share of the largest that it can have: 1 for uniform shares.

    Args:
        shares: a vector for each softmax.
    """
    values = [
        float(torch.special.entr(group.detach().double()).sum()) / math.log(len(group))
        for group in shares
        if len(group) > 1
    ]
    return statistics.mean(values) if values else 0.0


def identity_share(genotype: Genotype) -> float:
    """The share of identity among the edges of the cell."""
    operations = [edge.op for edges in genotype.nodes for edge in edges]
    return operations.count("identity") / len(operations)


class Changes:
    """How many nodes differ from what they were some epochs ago.

    Args:
        names: which parts are searched, ``intra`` and ``inter``; the others are not looked at.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = names
        self.earlier: deque[list[str]] = deque(maxlen=EPOCHS)

    def count(self, genotype: Genotype) -> int | None:
        """The searched nodes that are not as they were at the oldest epoch kept; None at the first."""
        now = self.nodes(genotype)
        changed = sum(a != b for a, b in zip(now, self.earlier[0])) if self.earlier else None
        self.earlier.append(now)
        return changed

    def nodes(self, genotype: Genotype) -> list[str]:
        """A text for each node that is searched."""
        gates = [gate.nodes for gate in (genotype.state_gate, genotype.input_gate) if gate is not None]
        of_parts: dict[str, list[Any]] = {"intra": [genotype.nodes], "inter": gates}
        return [str(node) for name in self.names for nodes in of_parts[name] for node in nodes]

    def state(self) -> list[list[str]]:
        """What `restore` takes."""
        return list(self.earlier)

    def restore(self, state: list[list[str]]) -> None:
        """Goes on from a state."""
        self.earlier.extend(state)


class Figures(TypedDict):
    """The health of a search at the end of an epoch, as the history has it.

    Args:
        parts: of ``intra`` and ``inter``, whichever is learned: `Health.figures`, ``drifts`` and ``entropy``.
        identity_share: of the edges of the cell.
        margin: the median over all choices of how far the kept edge is ahead of the next, as a share of itself.
        clear: the share of the choices that are clear.
        changed: how many nodes are not as they were `over` epochs ago; None after the first epoch.
        over: so many, `EPOCHS` at most.
        nodes: how many are searched, those of gates too.
    """

    parts: dict[str, dict[str, Any]]
    identity_share: float
    margin: float
    clear: float
    changed: int | None
    over: int
    nodes: int


def figures_of(
    parts: Mapping[str, Health],
    softmaxes: Mapping[str, Sequence[Tensor]],
    margins: Mapping[str, Sequence[float]],
    genotype: Genotype,
    changes: Changes,
) -> Figures:
    """The health of a search at the end of an epoch.

    Args:
        parts: what the parts have done in the epoch, by name.
        softmaxes: their shares, a vector for each softmax.
        margins: of their choices.
        genotype: the one of the moment.
        changes: takes that genotype.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, part in parts.items():
        moved = part.figures()
        still = moved["drift"] is not None and drifts(moved["drift"], part.path[0].numel())
        found[name] = {**moved, "drifts": still, "entropy": entropy(softmaxes[name])}
    of_all = [margin for name in parts for margin in margins[name]]
    return {
        "parts": found,
        "identity_share": identity_share(genotype),
        "margin": statistics.median(of_all) if of_all else 1.0,
        "clear": statistics.mean(margin >= CLEAR for margin in of_all) if of_all else 1.0,
        "over": len(changes.earlier),
        "changed": changes.count(genotype),
        "nodes": len(changes.nodes(genotype)),
    }


COMPARE = "flair-nas select compares it with random cells and the LSTM"
"""What to do about a genotype of unknown worth."""


def failure(
    cost: float | None, guess: Guess | None, measure: Measure, losses: Sequence[float | None], part: str = "valid"
) -> str:
    """Return what a search that learned nothing shows, and what to change; empty if it did better than a guess.

    Args:
        cost: what it came to; None where that cannot be compared.
        guess: what it has to surpass; None where there is none.
        measure: that both are costs of.
        losses: of the training part in each epoch; None where nothing was trained.
        part: what both costs are of, ``valid`` or ``train``.
    """
    if cost is None or guess is None or cost < guess.cost:
        return ""
    reached, guessed = (measure.plain(measure.of_cost(value)) for value in (cost, guess.cost))
    fewer = ", or a smaller --vocabulary-size" if measure.of_loss else ""
    trained = [loss for loss in losses if loss is not None]
    trend = f"from {trained[0]:.2f} to {trained[-1]:.2f}" if trained else ""
    early = "it may be too early: give it more --epochs or a smaller --batch-size"
    if len(trained) < 2:
        advice = f"After one epoch {early}{fewer}."
    elif trained[-1] >= trained[0]:
        advice = f"Its training loss rose {trend}: give it a lower --learning-rate{fewer}."
    elif trained[0] - trained[-1] < STILL:
        advice = f"Its training loss hardly fell, {trend}: give it a higher --learning-rate or more --epochs."
    elif not measure.of_loss:
        advice = f"Its training loss fell {trend}, so {early}."
    elif trained[-1] > guess.cost:
        advice = (
            f"Its training loss fell {trend}, and is still above the {guess.cost:.2f} of {guess.name}: give it a lower "
            f"--learning-rate or more --epochs{fewer}."
        )
    else:
        advice = f"Its training loss fell {trend}: see whether the valid part is like the training part; or add text."
    return (
        f"This search learned nothing: its {part} {measure.title} is {reached}, that of {guess.name} is {guessed}. "
        f"{advice} Its genotype is arbitrary."
    )


def verdict(figures: Figures, losses: Sequence[float | None], training: Sequence[float | None] = ()) -> str:
    """Return a plain sentence on the genotype of a search, from its health after the last epoch.

    Args:
        figures: that health.
        losses: of the supernet on the validation part after each epoch, None where one was not finite; none where they
            tell nothing.
        training: of the training part in each epoch.
    """
    doubts = []
    finite = [math.inf if loss is None else loss for loss in losses]
    if finite and (finite[-1] > finite[0] or math.isinf(finite[-1])):
        doubts.append(
            f"its supernet got worse: a valid loss of {finite[-1]:.2f} at the end, of {min(finite):.2f} at its best"
        )
    trained = [loss for loss in training if loss is not None]
    if trained and trained[-1] > trained[0]:
        doubts.append(f"its training loss rose from {trained[0]:.2f} to {trained[-1]:.2f}")
    if figures["clear"] < 0.5:
        doubts.append(f"in {1 - figures['clear']:.0%} of its choices the kept edge is less than {CLEAR:.0%} ahead")
    if figures["changed"] is None:
        doubts.append("one epoch does not tell whether it stays")
    elif 4 * figures["changed"] > figures["nodes"]:
        doubts.append(
            f"{figures['changed']} of its {figures['nodes']} nodes changed in the last "
            + ("epoch" if figures["over"] == 1 else f"{figures['over']} epochs")
        )
    if doubts:
        return f"this genotype is close to arbitrary: {'; '.join(doubts)}. {COMPARE}"
    if any(part["drifts"] for part in figures["parts"].values()):
        return "this genotype is not settled: its architecture weights still move on in one direction; add epochs"
    return (
        "settled: its choices are clear and stay, and the architecture weights move on in no direction. That is no "
        f"measure of how good it is: {COMPARE}"
    )


def verdict_of_decisions(margins: Sequence[float]) -> str:
    """The same where the supernet's loss without each edge and operation has decided.

    Args:
        margins: of each decision, by how much more the validation loss rises without what was kept than without the
            next best, in nats.
    """
    return (
        f"decided by perturbation: in the median of {len(margins)} decisions, the valid loss rises by "
        f"{statistics.median(margins):.4f} more without what was kept than without the next best, in the closest by "
        f"{min(margins):.4f} (the figures of health are of the architecture weights, which this overrules). {COMPARE}"
    )


def verdict_of_scores(scores: Collection[float], unit: str) -> str:
    """The same where candidates were compared.

    Args:
        scores: of those that came to the last comparison, the smaller the better; those that failed are left out.
        unit: what they are, in words.
    """
    best, *others = sorted(score for score in scores if math.isfinite(score)) or [math.nan]
    if not others:
        return ""
    return (
        f"the best of the {len(others) + 1} candidates that came to the last comparison: the next is behind it by "
        f"{others[0] - best:.4f} in {unit}, the last by {others[-1] - best:.4f}. {COMPARE}"
    )
