"""Perturbation-based selection (DARTS-PT, Wang et al., ICLR 2021).

Each edge and operation of a node is taken away in turn. The one whose absence raises the validation loss the most
stays. The supernet's weights learn to do without the others before the next node is decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from flair_nas.genotype import OPERATIONS, Genotype
from flair_nas.search.bilevel import ModelOptimizer, preserve, validation_loss
from flair_nas.search.protocols import Objective
from flair_nas.supernet.relaxation import ONE_PER_PAIR, group_sizes

_OFF = -1e9  # architecture weight whose mixing weight is 0


def select_by_perturbation(
    model_optimizer: ModelOptimizer, settings: Any, progress: bool
) -> tuple[Genotype, list[float]]:
    """Decide a supernet node by node, with the settings of the strategy; all its weights are restored afterwards.

    A choice is scored on some validation segments. Between two decisions, the model weights make some training steps.

    Returns:
        The genotype, and the margin of each decision: the rise of the loss without the kept choice, minus that without
        the next best.
    """
    objective, config = model_optimizer.objective, model_optimizer.config
    score = partial(validation_loss, objective, range(settings.sample_segments))
    with preserve(objective.module.state_dict().values()):
        done, margins = 0, list[float]()
        nodes = list(_nodes(objective, config.edges_per_node, settings.avoid_first))
        for node in tqdm(nodes, "deciding nodes", disable=not progress, leave=False):
            margins += decide(*node, score)
            objective.restart()
            for _ in range(settings.selection_steps):
                place = done % objective.steps(config.epochs)
                model_optimizer.step(config.epochs, place, objective.training_batch(config.epochs, place))
                done += 1
        genotype = objective.supernet.genotype(config.edges_per_node)
    objective.restart()
    return genotype, margins


def _nodes(
    objective: Objective, count: int, avoid_first: bool
) -> Iterator[tuple[Tensor, str, Sequence[int], int, Sequence[int]]]:
    """Yield the relaxed nodes of the cell, then of the gates, as `decide` takes them."""
    for one in objective.supernet.relaxed():
        may_drop = one.kind == "links"
        count_of_rows = len(one.arch)
        sizes = [1] * count_of_rows if one.kind == "entries" else group_sizes(count_of_rows)
        for rows in map(Tensor.tolist, torch.arange(count_of_rows).split(sizes)):
            if one.kind == "cell" and avoid_first and len(rows) > 1:
                _switch_off(one.arch, one.relaxation, rows.pop(0))
            keep = len(rows) if may_drop and one.relaxation in ONE_PER_PAIR else count
            yield one.arch, one.relaxation, rows, keep, range(0 if may_drop else 1, len(OPERATIONS))


@torch.no_grad()
def decide(
    arch: Tensor, relaxation: str, rows: Sequence[int], keep: int, operations: Sequence[int], score: Callable[[], float]
) -> list[float]:
    """Decide one node: switch off all its edges but `keep`, and of those all operations but one.

    The architecture weights, [E, 5], are changed in place; columns in `operations` may stay. The higher the validation
    loss, as `score` computes it, without an edge or operation, the more that is worth.

    Returns:
        The margin of each choice, of edges and of operations: the worth of the kept one minus that of the next best.
    """

    def score_without(row: int, operation: int | None = None) -> float:
        """Compute the loss without an edge, or an operation of it; not a number counts as the highest."""
        with preserve([arch]):
            if operation is None:
                _switch_off(arch, relaxation, row)
            else:
                arch[row, operation] = _OFF
            loss = score()
        return math.inf if math.isnan(loss) else loss

    margins, kept = [], list(rows)
    if len(rows) > keep:
        worth = {row: score_without(row) for row in rows}
        ranked = sorted(rows, key=lambda row: (-worth[row], row))
        kept = ranked[:keep]
        margins.append(_lead(worth[ranked[keep - 1]], worth[ranked[keep]]))
        for row in set(rows) - set(kept):
            _switch_off(arch, relaxation, row)
    for row in sorted(kept):
        worth = {k: score_without(row, k) for k in operations}
        best, *others = sorted(operations, key=lambda k: (-worth[k], k))
        margins += [_lead(worth[best], worth[others[0]])] if others else []
        arch[row] = _OFF
        arch[row, best] = 0.0
    return margins


def _lead(best: float, other: float) -> float:
    return 0.0 if best == other else best - other  # both may be infinite


@torch.no_grad()
def _switch_off(arch: Tensor, relaxation: str, row: int) -> None:
    """Switch off an edge; if it has a softmax of its own, drop takes all of that."""
    arch[row] = _OFF
    if relaxation in ONE_PER_PAIR:
        arch[row, 0] = 0.0
