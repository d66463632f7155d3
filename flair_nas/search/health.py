"""Convergence and health of a search: figures of its architecture weights, and plain sentences on its genotype."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from flair_nas.genotype import Genotype
from flair_nas.runs.metric import Evaluation, Guess, Metric
from flair_nas.search.protocols import JSON, Objective

if TYPE_CHECKING:
    from torch import Tensor

EPOCHS = 3
"""Number of epochs over which changed nodes are counted."""

_STILL = 0.03  # nats: the training loss has hardly moved if it fell by less
_CLEAR = 0.1  # a choice is clear if the kept edge leads the next one by this share of itself
_COMPARE = "flair-nas tune compares it with random cells and the LSTM"


def flatten(weights: Sequence[Tensor]) -> Tensor:
    """Copy all weights into one vector in float64, on the CPU."""
    import torch

    return torch.cat([weight.detach().flatten() for weight in weights]).double().cpu()


def drift(path: Sequence[Tensor]) -> float:
    """Compute the cosine between the movements in the first and in the last third of a path of weights.

    It is about 0, within 1 / √(number of weights), for weights that noise moves. It is less for weights that swing
    around a minimum, and nearly 1 for weights on their way. Adam's momentum correlates movements over some twenty
    steps, so the third between them is left out.
    """
    steps = len(path) - 1
    before = path[-(-steps // 3)] - path[0]
    after = path[-1] - path[steps - -(-steps // 3)]
    norms = float(before.norm() * after.norm())
    return float(before @ after) / norms if norms else 0.0


def is_drifting(cosine: float, num_weights: int) -> bool:
    """Return True if the drift of so many weights is beyond two standard deviations of chance."""
    return cosine > 2 / math.sqrt(num_weights)


class Convergence:
    """Convergence of a part: over a window of steps, MAD changes by less than a share of itself, without drift.

    MAD alone may stand still while the weights move on, as when Adam's steps become small. With 0, it never converges.
    """

    def __init__(self, tolerance: float, steps: int) -> None:
        self.tolerance = tolerance
        self.values: deque[float] = deque(maxlen=steps + 1)
        self.path: deque[Tensor] = deque(maxlen=steps + 1)
        self.converged = False  # True if it has settled in this phase
        self.settled = False  # True if it had settled at the last whole window, in this phase or an earlier one

    def add(self, deviation: float, weights: Sequence[Tensor]) -> None:
        """Add MAD and the weights after a step."""
        if not self.tolerance:
            return
        self.values.append(deviation)
        self.path.append(flatten(weights))
        if len(self.values) == self.values.maxlen:
            steady = abs(self.values[-1] - self.values[0]) < self.tolerance * self.values[-1]
            self.converged = self.settled = steady and not is_drifting(drift(self.path), len(self.path[0]))

    def restart(self) -> None:
        """Begin a new phase."""
        self.values.clear()
        self.path.clear()
        self.converged = False

    def state(self) -> JSON:
        """Return the state for `restore`."""
        windows = {"values": list(self.values), "path": list(self.path)}
        return {**windows, "converged": self.converged, "settled": self.settled}

    def restore(self, state: JSON) -> None:
        """Restore a state."""
        self.values.extend(state["values"])
        self.path.extend(state["path"])
        self.converged, self.settled = state["converged"], state["settled"]


class Health(TypedDict):
    """Health of a search at the end of an epoch.

    Each of its `parts`, ``intra`` and ``inter``, has the `drift` of the epoch's steps, None for less than two. Its
    ``drifts`` is True if the drift is beyond chance.
    """

    parts: dict[str, dict[str, float | bool | None]]  # those that learn
    clear: float  # the share of the choices that are clear
    changed: int | None  # nodes that differ from those `over` epochs ago; None after the first epoch
    over: int  # at most `EPOCHS`
    nodes: int  # the number of searched nodes, those of gates too


def measure_health(
    paths: Mapping[str, Sequence[Tensor]],
    margins: Mapping[str, Sequence[float]],
    genotype: Genotype,
    earlier: deque[list[str]],
) -> Health:
    """Measure the health of a search at the end of an epoch, and add the nodes of the genotype to the earlier ones.

    The path of a part has its architecture weights before the epoch and after each step, as vectors.
    """
    drifts = {name: drift(path) if len(path) > 2 else None for name, path in paths.items()}
    leads = [margin for name in paths for margin in margins[name]]
    gates = [node for gate in (genotype.state_gate, genotype.input_gate) if gate is not None for node in gate.nodes]
    by_part: dict[str, Sequence[object]] = {"intra": genotype.nodes, "inter": gates}
    nodes = [str(node) for part in paths for node in by_part[part]]
    health: Health = {
        "parts": {
            name: {"drift": cosine, "drifts": cosine is not None and is_drifting(cosine, len(paths[name][0]))}
            for name, cosine in drifts.items()
        },
        "clear": statistics.mean(lead >= _CLEAR for lead in leads) if leads else 1.0,
        "over": len(earlier),
        "changed": sum(a != b for a, b in zip(nodes, earlier[0])) if earlier else None,
        "nodes": len(nodes),
    }
    earlier.append(nodes)
    return health


def fall_short(cost: float | None, guess: Guess | None, metric: Metric, whose: str) -> str:
    """Return a clause on a figure that is no better than a guess; empty if it is better, or cannot be compared.

    The clause begins with `whose`, such as ``its valid``.
    """
    if cost is None or guess is None or cost < guess.cost:
        return ""
    own, other = (metric.plain(metric.from_cost(value)) for value in (cost, guess.cost))
    return f"{whose} {metric.title} is {own}, that of {guess.name} is {other}"


def explain_tasks(tasks: Mapping[str, Objective], figures: JSON) -> tuple[str, bool]:
    """Return sentences on the tasks that are no better than their guess, and False if that is so of all.

    The figures are those of an evaluation. The text is empty if each task is better.
    """
    unlearned = []
    for name, task in tasks.items():
        loss, value = (figures["tasks"][name][key] for key in ("dev_loss", task.metric.key))
        cost = math.inf if loss is None or value is None else task.metric.cost(Evaluation(loss, value))
        if clause := fall_short(cost, task.guess(), task.metric, f"{name}'s valid"):
            unlearned.append(clause)
    if not unlearned:
        return "", True
    learned = len(unlearned) < len(tasks)
    where = f" on {len(unlearned)} of {len(tasks)} tasks" * learned
    advice = "more --epochs, or another learning_rate or a smaller batch_size in the file of a task"
    rest = "rests on the others" if learned else "is arbitrary"
    text = f"This search learned nothing{where}: {'; '.join(unlearned)}. Give it {advice}. Its genotype {rest}."
    return text, learned


def explain_failure(
    cost: float | None,
    guess: Guess | None,
    metric: Metric,
    losses: Sequence[float | None],
    part: str = "valid",
    longer: str = "",
) -> str:
    """Return a sentence on a search that learned nothing, with advice; empty if it did better than a guess.

    Costs are of a part, ``valid`` or ``train``. Losses are those of training in each epoch, None where there is none.
    Where each candidate is trained alone, `longer` is the advice.
    """
    if guess is None or not (figures := fall_short(cost, guess, metric, f"its {part}")):
        return ""
    fewer = ", or a smaller --vocabulary-size" if guess.name.startswith("word") else ""  # not for characters
    trained = [loss for loss in losses if loss is not None]
    trend = f"from {trained[0]:.2f} to {trained[-1]:.2f}" if trained else ""
    early = "it may be too early: give it more --epochs or a smaller --batch-size"
    if longer:
        advice = longer
    elif len(trained) < 2:
        advice = f"After one epoch {early}{fewer}."
    elif trained[-1] >= trained[0]:
        advice = f"Its training loss rose {trend}: give it a lower --learning-rate{fewer}."
    elif trained[0] - trained[-1] < _STILL:
        advice = f"Its training loss hardly fell, {trend}: give it a higher --learning-rate or more --epochs."
    elif not metric.from_loss:
        advice = f"Its training loss fell {trend}, so {early}."
    elif trained[-1] > guess.cost:
        advice = (
            f"Its training loss fell {trend}, and is still above the {guess.cost:.2f} of {guess.name}: give it a lower "
            f"--learning-rate or more --epochs{fewer}."
        )
    else:
        advice = f"Its training loss fell {trend}: see whether the valid part is like the training part; or add text."
    return f"This search learned nothing: {figures}. {advice} Its genotype is arbitrary."


def judge_weights(health: Health, losses: Sequence[float | None], training: Sequence[float | None] = ()) -> str:
    """Return a plain sentence on a genotype that was derived from architecture weights, by its health at the end.

    Both losses are of each epoch, None where one was not finite. Those of validation are empty if they have no meaning.
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
    if health["clear"] < 0.5:
        doubts.append(f"in {1 - health['clear']:.0%} of its choices the kept edge is less than {_CLEAR:.0%} ahead")
    if health["changed"] is None:
        doubts.append("one epoch does not tell whether it stays")
    elif 4 * health["changed"] > health["nodes"]:
        doubts.append(
            f"{health['changed']} of its {health['nodes']} nodes changed in the last "
            + ("epoch" if health["over"] == 1 else f"{health['over']} epochs")
        )
    if doubts:
        return f"this genotype is close to arbitrary: {'; '.join(doubts)}. {_COMPARE}"
    if any(part["drifts"] for part in health["parts"].values()):
        return "this genotype is not settled: its architecture weights still move on in one direction; add epochs"
    return (
        "settled: its choices are clear and stay, and the architecture weights move on in no direction. That is no "
        f"measure of how good it is: {_COMPARE}"
    )


def judge_decisions(margins: Sequence[float]) -> str:
    """Return a plain sentence on a genotype that perturbation selected, by the margins in nats of its decisions."""
    return (
        f"decided by perturbation: in the median of {len(margins)} decisions, the valid loss rises by "
        f"{statistics.median(margins):.4f} more without what was kept than without the next best, in the closest by "
        f"{min(margins):.4f} (the figures of health are of the architecture weights, which this overrules). {_COMPARE}"
    )


def judge_scores(scores: Collection[float], unit: str) -> str:
    """Return a plain sentence on the best of several candidates, by their scores in the last comparison."""
    best, *others = sorted(score for score in scores if math.isfinite(score)) or [math.nan]
    if not others:
        return ""
    return (
        f"the best of the {len(others) + 1} candidates that came to the last comparison: the next is behind it by "
        f"{others[0] - best:.4f} in {unit}, the last by {others[-1] - best:.4f}. {_COMPARE}"
    )
