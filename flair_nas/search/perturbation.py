"""Perturbation-based selection (DARTS-PT, Wang et al., ICLR 2021): keep what the supernet would miss the most.

The largest architecture weight need not belong to the most useful operation. Here each edge and operation of a node is
taken away in turn; the one whose absence raises the validation loss the most stays, and the supernet's weights learn to
do without the others before the next node is decided.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor
from tqdm import tqdm

from flair_nas.genotype import OPERATIONS, Genotype
from flair_nas.search.bilevel import Reduce
from flair_nas.search.config import SearchSettings
from flair_nas.search.model_update import ModelOptimizer
from flair_nas.search.protocols import Objective
from flair_nas.supernet import BothDirections, CellSupernet
from flair_nas.supernet.gates import OF_ENTRIES, GateSupernet
from flair_nas.supernet.relaxation import ONE_PER_PAIR, group_sizes

OFF = -1e9
"""An architecture weight whose share is 0."""

_KEPT = range(1, len(OPERATIONS))  # all operations but drop


def select_by_perturbation(
    objective: Objective, config: SearchSettings, model_optimizer: ModelOptimizer, reduce: Reduce | None, progress: bool
) -> tuple[Genotype, list[float]]:
    """Decides a supernet node by node; its weights and architecture weights are afterwards as they were before.

    Args:
        objective: losses and supernet.
        config: the settings.
        model_optimizer: of the model weights, for the steps between two decisions.
        reduce: averages tensors over processes, in place; None for one process.
        progress: draw a progress bar.

    Returns:
        The genotype; and of each decision, by how much more the loss rises without what was kept than without the next.

    Raises:
        NotFinite: a training loss of the steps between two decisions.
    """
    with _as_before(objective):
        nodes = list(_nodes(objective, config))
        tuned, margins = 0, list[float]()
        for node in tqdm(nodes, "deciding nodes", disable=not progress, leave=False):
            margins += node(lambda: _valid_loss(objective, config, reduce))
            objective.restart()
            for _ in range(config.selection_steps):
                step = tuned % objective.steps(config.epochs)
                model_optimizer.step(config.epochs, step, objective.training_batch(config.epochs, step))
                tuned += 1
        return objective.supernet.genotype(config.edges_per_node), margins


Score = Callable[[], float]
"""The validation loss as architecture weights are now."""


def _nodes(objective: Objective, config: SearchSettings) -> Iterator[Callable[[Score], list[float]]]:
    """What decides each node of the cell, then of the gates, as far as they are relaxed."""
    supernet, count = objective.supernet, config.edges_per_node
    if isinstance(supernet, BothDirections):  # both share what is decided
        supernet = supernet.ahead

    def node(
        arch: Tensor, relaxation: str, rows: Sequence[int], keep: int, operations: range
    ) -> Callable[[Score], list[float]]:
        return lambda score: decide(arch, relaxation, rows, keep, operations, score)

    if isinstance(supernet, CellSupernet):
        for rows in _groups(len(supernet.arch)):
            tails = rows[1:] if config.avoid_first and len(rows) > 1 else rows
            for row in set(rows) - set(tails):
                _switch_off(supernet.arch, supernet.relaxation, row)
            yield node(supernet.arch, supernet.relaxation, tails, count, _KEPT)
    for gate in (supernet.state_gate, supernet.input_gate):
        if isinstance(gate, GateSupernet):
            for row in range(gate.history):
                yield node(gate.arch_entry, OF_ENTRIES, [row], 1, _KEPT)
            for rows in _groups(len(gate.arch)):
                keep = len(rows) if gate.relaxation in ONE_PER_PAIR else count
                yield node(gate.arch, gate.relaxation, rows, keep, range(len(OPERATIONS)))


def decide(
    arch: Tensor, relaxation: str, rows: Sequence[int], keep: int, operations: Sequence[int], score: Score
) -> list[float]:
    """Decides one node: switches off all its edges but `keep`, and of those all operations but one.

    Args:
        arch: architecture weights, changed in place, [E, 5].
        relaxation: ``darts`` or ``i-darts``.
        rows: the node's edges, by tail.
        keep: how many stay.
        operations: which of the columns may stay.
        score: the validation loss, the lower the better; the higher without something, the more that was worth.

    Returns:
        Of each choice, of edges and of operations, how much more what is kept was worth than the next best.
    """
    margins = []
    if len(rows) > keep:
        worth = {row: _without(arch, partial(_switch_off, arch, relaxation, row), score) for row in rows}
        ranked = sorted(rows, key=lambda row: (-worth[row], row))
        kept = ranked[:keep]
        margins.append(_lead(worth[ranked[keep - 1]], worth[ranked[keep]]))
        for row in set(rows) - set(kept):
            _switch_off(arch, relaxation, row)
    else:
        kept = list(rows)
    for row in sorted(kept):
        worth = {k: _without(arch, partial(_set, arch, row, k, OFF), score) for k in operations}
        best, *others = sorted(operations, key=lambda k: (-worth[k], k))
        margins += [_lead(worth[best], worth[others[0]])] if others else []
        _set(arch, row, slice(None), OFF)
        _set(arch, row, best, 0.0)
    return margins


def _lead(worth: float, of_next: float) -> float:
    return 0.0 if worth == of_next else worth - of_next  # both may be infinite


def _without(arch: Tensor, switch_off: Callable[[], None], score: Score) -> float:
    """The loss while something is switched off; one that is not a number counts as the highest."""
    before = arch.detach().clone()
    switch_off()
    loss = score()
    _set(arch, slice(None), slice(None), before)
    return math.inf if math.isnan(loss) else loss


def _switch_off(arch: Tensor, relaxation: str, row: int) -> None:
    """Takes an edge away: where it has a softmax of its own, that is all drop's."""
    _set(arch, row, slice(None), OFF)
    if relaxation in ONE_PER_PAIR:
        _set(arch, row, 0, 0.0)


@torch.no_grad()
def _set(arch: Tensor, row: int | slice, column: int | slice, value: float | Tensor) -> None:
    arch[row, column] = value


def _groups(rows: int) -> list[list[int]]:
    """The rows of each node."""
    return [group.tolist() for group in torch.arange(rows).split(group_sizes(rows))]


def _valid_loss(objective: Objective, config: SearchSettings, reduce: Reduce | None) -> float:
    """The loss on the first segments of the validation part, without dropout."""
    module, supernet = objective.module, objective.supernet
    module.eval()
    with supernet.batch_statistics():
        objective.restart()
        loss = loss_on_segments(objective, config.sample_segments, reduce)
    module.train()
    return loss


def loss_on_segments(objective: Objective, segments: int, reduce: Reduce | None) -> float:
    """The sum of the losses on so many segments, the first of the validation part, for comparisons.

    Args:
        objective: its model is in evaluation mode.
        segments: how many.
        reduce: averages tensors over processes, in place; None for one process.
    """
    total = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        for segment in range(segments):
            for batch in objective.validation_batch(1, segment):
                total += float(objective.validation_loss(batch, keep_state=True))
    if reduce is not None:
        reduce([total])
    return float(total)


@contextlib.contextmanager
def _as_before(objective: Objective) -> Iterator[None]:
    """After the block the whole model is as it was before it."""
    before = {name: value.clone() for name, value in objective.module.state_dict().items()}
    try:
        yield
    finally:
        objective.module.load_state_dict(before)
        objective.restart()
