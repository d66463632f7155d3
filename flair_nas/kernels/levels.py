"""Cells on a GPU, a level at a time: one product for all pairs that leave it, one kernel for all nodes of it.

The gradient is written out, so that nothing but these runs in the loop over time steps, forward and back (I-DARTS,
Jiang et al. 2019, eq. 1 and 4). It is for `graphs`, in which all sequences have one length. Vectors are rows here,
[B, H]: the steps of a pair then lie behind one another, and the gradient of a level's weights is one product over all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flair_nas.genotype import OPERATIONS
from flair_nas.kernels import triton_levels as kernels
from flair_nas.kernels.engine import Normalisation, Recurrence
from flair_nas.kernels.gate import ordered_by_tail
from flair_nas.kernels.plan import CellPlan
from flair_nas.kernels.tracing import first_order_only
from flair_nas.kernels.triton_elementwise import BLOCK, launch, programs

_TILE, _WARPS = 2048, 8  # elements of a program that has whole columns; with fewer warps, registers spill
_ROWS = 512  # at most: with fewer than 4 columns, reading them is slow


def can_run(recurrence: Recurrence) -> bool:
    """Whether this is for such a recurrence: a cell of the highway form without an input gate, not too many rows."""
    normalised = recurrence.normalisation is not None
    return recurrence.cell.highway and recurrence.gate is None and not (normalised and recurrence.sizes[0] > _ROWS)


def run(recurrence: Recurrence, sources: Mapping[str, Tensor]) -> Tensor:
    """Runs a recurrence, as `flair_nas.kernels.engine.Engine` says, if `can_run`, and all sizes are the same."""
    plan, hidden = recurrence.cell, sources["hidden"]
    steps, (batch, height) = len(recurrence.sizes), hidden.shape
    tables = tables_of(plan, hidden.device, hidden.dtype)
    nodes = sources["weight_nodes"].index_select(0, tables.weight_of_pair)
    weights = torch.cat([sources["weight_hidden"][None], nodes]).to(recurrence.product)  # [P, H, 2 * H]
    factor, alive, shares = sources.get("factor"), sources.get("alive"), tables.shares
    if "shares" in sources:
        own = ordered_by_tail(plan.pairs, sources["shares"]).to(hidden.dtype)
        shares = torch.cat([shares, own])
    output: Tensor = _Levels.apply(
        plan, recurrence.normalisation, recurrence.mask, None if alive is None else alive.view(steps, batch),
        sources["projected"].view(steps, batch, 2 * height), hidden,
        None if factor is None else factor.view(steps, batch, height), weights, shares,
    )  # fmt: skip
    return output.view(steps * batch, height)


@dataclass(frozen=True)
class Leaving:
    """The pairs that leave a level.

    Args:
        pairs: which of all.
        slots: of these, what enters their products: as many, or one for all.
    """

    pairs: slice
    slots: slice

    @property
    def count(self) -> int:
        """The number of pairs."""
        return int(self.pairs.stop - self.pairs.start)

    def entering(self, slots: Tensor) -> Tensor:
        """What enters each product, [count, ., .], from all slots, [slots, ., .]."""
        return slots[self.slots].expand(self.count, -1, -1)


class Tables(NamedTuple):
    """A cell as its kernels read it. State 0 is what s_0 keeps a part of, state i + 1 is s_i of the plan.

    Pairs are in the order of their tails; pair 0 is that of W_h, from state 0 to state 1. What enters their products
    is in slots: one for each pair, or, where all pairs that leave a level leave one state, one for these.

    Args:
        of_levels: per level but that of state 0, its first state, that behind its last, and for the last level its
            first state again, otherwise 0, [L, 3].
        of_pairs: per pair its tail and its head, [P, 2].
        into: the pairs by head, [P].
        first: per state, and behind the last, the first of its pairs in `into`, of those that leave it, and of their
            slots, [n + 1, 3].
        shares: per pair how often each of `OPERATIONS` occurs, [P, 5]; of a supernet, that of pair 0 alone.
        factors: per state the factor of the sum of its edges, and its share of h_t, [n, 2].
        weight_of_pair: per pair but for the first, which of the nodes' matrices it has, [P - 1].
        leave: per level, which pairs leave it.
    """

    of_levels: Tensor
    of_pairs: Tensor
    into: Tensor
    first: Tensor
    factors: Tensor
    shares: Tensor
    weight_of_pair: Tensor
    leave: tuple[Leaving, ...]

    @property
    def read(self) -> tuple[Tensor, ...]:
        """What kernels read of how the cell is made."""
        return self[:5]


@cache
@torch.inference_mode(False)
def tables_of(plan: CellPlan, device: torch.device, dtype: torch.dtype) -> Tables:
    """The tables of a cell; kept as those of `gate`, and for the same reasons."""
    shares = plan.pairs.shares or ((),) * len(plan.pairs.tails)
    found = [(0, 1, tuple(float(name == "tanh") for name in OPERATIONS), 0)]
    for head, (first, last) in enumerate(zip(plan.pairs.first, plan.pairs.first[1:])):
        for pair in range(first, last):
            found.append((plan.pairs.tails[pair] + 1, head + 1, shares[pair], plan.nodes[head - 1] - 1))
    found.sort(key=lambda pair: pair[:2])
    count, tails, heads = len(plan.scale) + 1, [pair[0] for pair in found], [pair[1] for pair in found]
    into = sorted(range(len(found)), key=lambda pair: heads[pair])
    bounds = [0, *(start + 1 for start in plan.level_start)]
    alone = {low for low, high in zip(bounds, bounds[1:]) if high - low == 1}
    slots = [tails.count(state) if state not in alone else int(state in tails) for state in range(count)]
    firsts = [
        [sum(h < state for h in heads), sum(t < state for t in tails), sum(slots[:state])] for state in range(count + 1)
    ]
    levels = [(low, high, low if high == count else 0) for low, high in zip(bounds[1:], bounds[2:])]

    def table(rows: Any, dtype: torch.dtype = torch.int64) -> Tensor:  # wide, as offsets may be beyond 2^31
        return torch.tensor(rows, dtype=dtype, device=device)

    return Tables(
        of_levels=table(levels),
        of_pairs=table([pair[:2] for pair in found]),
        into=table(into),
        first=table(firsts),
        factors=table([(1.0, 0.0), *zip(plan.scale, plan.output)], dtype),
        shares=table([pair[2] for pair in found if pair[2]], dtype),
        weight_of_pair=table([pair[3] for pair in found[1:]]),
        leave=tuple(Leaving(*map(slice, firsts[low][1:], firsts[high][1:])) for low, high, _ in levels),
    )


class _Levels(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, plan: CellPlan, normalisation: Normalisation | None, mask: Tensor | None, alive: Tensor | None,
        projected: Tensor, hidden: Tensor, factor: Tensor | None, weights: Tensor, shares: Tensor,
    ) -> Tensor:  # fmt: skip
        """Output [T, B, H]; projected [T, B, 2 * H], hidden [B, H], factor [T, B, H], weights [P, H, 2 * H], shares."""
        tables, product = tables_of(plan, hidden.device, hidden.dtype), weights.dtype
        steps, (batch, height) = len(projected), hidden.shape
        size, count = batch * height, len(tables.factors)
        states = hidden.new_empty(count, steps, batch, height)
        entering = hidden.new_empty(tables.leave[-1].slots.stop, steps, batch, height, dtype=product)
        pre = hidden.new_empty(len(weights), steps, batch, 2 * height, dtype=product)
        output = hidden.new_empty(steps, batch, height)
        mean, variance, deviations = None, None, None
        blocks = _blocks(batch, height, normalisation)
        numbers: dict[str, Any] = {"MOMENTUM": 0.0, "EPSILON": 0.0}
        if normalisation is not None:
            mean, variance, deviations = *normalisation[1:3], hidden.new_empty(steps, count, height)
            numbers = {"MOMENTUM": normalisation.momentum, "EPSILON": normalisation.epsilon}
        last = hidden = hidden.contiguous()
        projected, shares = projected.contiguous(), shares.contiguous()
        mask, alive, factor = (None if tensor is None else tensor.contiguous() for tensor in (mask, alive, factor))
        for t in range(steps):
            launch(
                kernels.enter, size, last, _at(factor, t), mask, _at(alive, t), states[0, t], entering[0, t],
                size, height, GATED=plan.gated_carry,
            )  # fmt: skip
            torch.mm(entering[0, t], weights[0], out=pre[0, t])
            for number, leaving in enumerate(tables.leave):
                launch(
                    kernels.level, blocks.elements, projected[t], pre[:, t], states[:, t], entering[:, t], mask,
                    output[t], shares, _at(deviations, t), mean, variance, *tables.read,
                    number, pre.stride(0), states.stride(0), size, height, **blocks.constants, **numbers,
                )  # fmt: skip
                if leaving.count:
                    torch.bmm(leaving.entering(entering[:, t]), weights[leaving.pairs], out=pre[leaving.pairs, t])
            last = output[t]
        ctx.save_for_backward(
            mask, alive, projected, hidden, factor, weights, shares, states, entering, pre, output, deviations
        )
        ctx.plan, ctx.blocks = plan, blocks
        return output

    @staticmethod
    @first_order_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        mask, alive, projected, hidden, factor, weights, shares, states, entering, pre, output, deviations = (
            ctx.saved_tensors
        )
        plan, blocks, of_output = ctx.plan, ctx.blocks, gradients[0].contiguous()
        tables = tables_of(plan, hidden.device, hidden.dtype)
        steps, batch, height = of_output.shape
        size = batch * height
        of_projected, of_pre = torch.empty_like(projected), torch.empty_like(pre)
        of_entering = entering.new_empty(len(weights), batch, height)
        of_states = hidden.new_empty(len(states), batch, height)
        of_last = of_output[-1].clone()  # of h_t, all in all
        of_factor = None if factor is None else torch.empty_like(factor)
        parts = None
        if ctx.needs_input_grad[8]:  # zeros: drop has no part in anything
            count = programs(blocks.elements, blocks.constants["block"])
            parts = hidden.new_zeros(steps, *shares.shape, count)
        transposed = weights.transpose(1, 2)
        for t in reversed(range(steps)):
            for number, leaving in reversed([*enumerate(tables.leave)]):
                if leaving.count:
                    torch.bmm(of_pre[leaving.pairs, t], transposed[leaving.pairs], out=of_entering[leaving.pairs])
                launch(
                    kernels.level_back, blocks.elements, projected[t], pre[:, t], states[:, t], mask, of_last,
                    of_entering, of_projected[t], of_pre[:, t], of_states, _at(parts, t), shares, _at(deviations, t),
                    *tables.read, number, pre.stride(0), states.stride(0), size, height, **blocks.constants,
                )  # fmt: skip
            torch.mm(of_pre[0, t], transposed[0], out=of_entering[0])
            launch(
                kernels.enter_back, size, projected[t], pre[0, t], output[t - 1] if t else hidden, _at(factor, t),
                mask, _at(alive, t), of_entering[0], of_states[1], _at(of_factor, t), of_output[t - 1] if t else None,
                of_last, size, height, GATED=plan.gated_carry,
            )  # fmt: skip
        of_weights = None
        if ctx.needs_input_grad[7]:
            of_weights = torch.empty_like(weights)
            for leaving in (Leaving(slice(0, 1), slice(0, 1)), *tables.leave):
                if leaving.count:
                    vectors = leaving.entering(entering.flatten(1, 2)).transpose(1, 2)
                    torch.bmm(vectors, of_pre[leaving.pairs].flatten(1, 2), out=of_weights[leaving.pairs])
        of_shares = None if parts is None else parts.sum((0, 3))
        return None, None, None, None, of_projected, of_last, of_factor, of_weights, of_shares


class _Blocks(NamedTuple):
    """How the kernels of levels are launched: over so many elements, with these constants."""

    elements: int
    constants: dict[str, Any]


def _blocks(batch: int, height: int, normalisation: Normalisation | None) -> _Blocks:
    """Elements in any order, or, to be normalised over the batch, whole columns."""
    if normalisation is None:
        return _Blocks(batch * height, {"block": BLOCK, "OPS": len(OPERATIONS), "ROWS": 0, "OF_BATCH": False})
    rows = 1 << (batch - 1).bit_length()
    of_columns = {"block": min(_TILE // rows, 64), "num_warps": _WARPS}
    return _Blocks(height, {**of_columns, "OPS": len(OPERATIONS), "ROWS": rows, "OF_BATCH": normalisation.of_batch})


def _at(tensor: Tensor | None, step: int) -> Tensor | None:
    return None if tensor is None else tensor[step]
