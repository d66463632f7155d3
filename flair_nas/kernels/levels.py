"""Discrete cells on a GPU, a level at a time: one product for all pairs that leave it, one kernel for all nodes of it.

The gradient is written out, so that nothing but these runs in the loop over time steps, forward and back (I-DARTS,
Jiang et al. 2019, eq. 1). It is for `graphs`, in which all sequences have one length. Vectors are rows here, [B, H]:
the steps of a pair then lie behind one another, and the gradient of all weights is one product over all steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flair_nas.genotype import OPERATIONS
from flair_nas.kernels import triton_levels as kernels
from flair_nas.kernels.engine import Recurrence
from flair_nas.kernels.plan import CellPlan
from flair_nas.kernels.tracing import first_order_only
from flair_nas.kernels.triton_elementwise import launch


def can_run(recurrence: Recurrence, sources: Mapping[str, Tensor]) -> bool:
    """Whether this is for such a recurrence: a discrete cell of the highway form, without an input gate."""
    return recurrence.cell.highway and recurrence.gate is None and "shares" not in sources


def run(recurrence: Recurrence, sources: Mapping[str, Tensor]) -> Tensor:
    """Runs a recurrence, as `flair_nas.kernels.engine.Engine` says, if `can_run`, and all sizes are the same."""
    plan, hidden = recurrence.cell, sources["hidden"]
    steps, (batch, height) = len(recurrence.sizes), hidden.shape
    tables = tables_of(plan, hidden.device, hidden.dtype)
    nodes = sources["weight_nodes"].index_select(0, tables.weight_of_pair)
    weights = torch.cat([sources["weight_hidden"][None], nodes]).to(recurrence.product)  # [P, H, 2 * H]
    factor, alive = sources.get("factor"), sources.get("alive")
    output: Tensor = _Levels.apply(
        plan, recurrence.mask, None if alive is None else alive.view(steps, batch),
        sources["projected"].view(steps, batch, 2 * height), hidden,
        None if factor is None else factor.view(steps, batch, height), weights,
    )  # fmt: skip
    return output.view(steps * batch, height)


class Tables(NamedTuple):
    """A cell as its kernels read it. State 0 is what s_0 keeps a part of, state i + 1 is s_i of the plan.

    Pairs are in the order of their tails; pair 0 is that of W_h, from state 0 to state 1.

    Args:
        of_levels: per level but that of state 0, its first state, that behind its last, and for the last level the
            number of all states, otherwise 0, [L, 3].
        of_pairs: per pair its tail and its head, [P, 2].
        into: the pairs by head, [P].
        first: per state, and behind the last, the first of its pairs in `into`, and of those that leave it, [n + 1, 2].
        shares: per pair how often each of `OPERATIONS` occurs, [P, 5].
        factors: per state the factor of the sum of its edges, and its share of h_t, [n, 2].
        weight_of_pair: per pair but for the first, which of the nodes' matrices it has, [P - 1].
        leave: per level, the first of the pairs that leave it, and that behind the last.
    """

    of_levels: Tensor
    of_pairs: Tensor
    into: Tensor
    first: Tensor
    shares: Tensor
    factors: Tensor
    weight_of_pair: Tensor
    leave: tuple[tuple[int, int], ...]

    @property
    def read(self) -> tuple[Tensor, ...]:
        """What kernels read."""
        return self[:6]


@lru_cache(maxsize=256)
def tables_of(plan: CellPlan, device: torch.device, dtype: torch.dtype) -> Tables:
    """The tables of a discrete cell; kept, since nothing is copied to a GPU while a graph is captured."""
    assert plan.pairs.shares is not None
    found = [(0, 1, tuple(float(name == "tanh") for name in OPERATIONS), 0)]
    for head, (first, last) in enumerate(zip(plan.pairs.first, plan.pairs.first[1:])):
        for pair in range(first, last):
            found.append((plan.pairs.tails[pair] + 1, head + 1, plan.pairs.shares[pair], plan.nodes[head - 1] - 1))
    found.sort(key=lambda pair: pair[:2])
    count, tails, heads = len(plan.scale) + 1, [pair[0] for pair in found], [pair[1] for pair in found]
    into = sorted(range(len(found)), key=lambda pair: heads[pair])
    firsts = [[sum(h < state for h in heads), sum(t < state for t in tails)] for state in range(count + 1)]
    bounds = [start + 1 for start in plan.level_start]
    levels = [(low, high, count if high == count else 0) for low, high in zip(bounds, bounds[1:])]

    def table(rows: Any, dtype: torch.dtype = torch.int64) -> Tensor:  # wide, as offsets may be beyond 2^31
        return torch.tensor(rows, dtype=dtype, device=device)

    return Tables(
        of_levels=table(levels),
        of_pairs=table([pair[:2] for pair in found]),
        into=table(into),
        first=table(firsts),
        shares=table([pair[2] for pair in found], dtype),
        factors=table([(1.0, 0.0), *zip(plan.scale, plan.output)], dtype),
        weight_of_pair=table([pair[3] for pair in found[1:]]),
        leave=tuple((firsts[low][1], firsts[high][1]) for low, high, _ in levels),
    )


class _Levels(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, plan: CellPlan, mask: Tensor | None, alive: Tensor | None,
        projected: Tensor, hidden: Tensor, factor: Tensor | None, weights: Tensor,
    ) -> Tensor:  # fmt: skip
        """Output [T, B, H], from projected [T, B, 2 * H], hidden [B, H], factor [T, B, H] and weights [P, H, 2 * H]."""
        tables, product = tables_of(plan, hidden.device, hidden.dtype), weights.dtype
        steps, (batch, height) = len(projected), hidden.shape
        size = batch * height
        states = hidden.new_empty(len(tables.factors), steps, batch, height)
        entering = hidden.new_empty(len(weights), steps, batch, height, dtype=product)  # as it enters a pair's product
        pre = hidden.new_empty(len(weights), steps, batch, 2 * height, dtype=product)
        output = hidden.new_empty(steps, batch, height)
        last = hidden = hidden.contiguous()
        projected = projected.contiguous()
        mask, alive, factor = (None if tensor is None else tensor.contiguous() for tensor in (mask, alive, factor))
        for t in range(steps):
            launch(
                kernels.enter, size, last, _at(factor, t), mask, _at(alive, t), states[0, t], entering[0, t],
                size, height, GATED=plan.gated_carry,
            )  # fmt: skip
            torch.mm(entering[0, t], weights[0], out=pre[0, t])
            for number, (first, behind) in enumerate(tables.leave):
                launch(
                    kernels.level, size, projected[t], pre[:, t], states[:, t], entering[:, t], mask, output[t],
                    *tables.read, number, pre.stride(0), states.stride(0), size, height,
                    OPS=len(OPERATIONS),
                )  # fmt: skip
                if first < behind:
                    torch.bmm(entering[first:behind, t], weights[first:behind], out=pre[first:behind, t])
            last = output[t]
        ctx.save_for_backward(mask, alive, projected, hidden, factor, weights, states, entering, pre, output)
        ctx.plan = plan
        return output

    @staticmethod
    @first_order_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        mask, alive, projected, hidden, factor, weights, states, entering, pre, output = ctx.saved_tensors
        plan, tables, of_output = ctx.plan, tables_of(ctx.plan, hidden.device, hidden.dtype), gradients[0].contiguous()
        steps, batch, height = of_output.shape
        size = batch * height
        of_projected, of_pre, of_entering = map(torch.empty_like, (projected, pre, entering[:, 0]))
        of_states = hidden.new_empty(len(states), batch, height)
        of_last = of_output[-1].clone()  # of h_t, all in all
        of_factor = None if factor is None else torch.empty_like(factor)
        transposed = weights.transpose(1, 2)
        for t in reversed(range(steps)):
            for number, (first, behind) in reversed([*enumerate(tables.leave)]):
                if first < behind:
                    torch.bmm(of_pre[first:behind, t], transposed[first:behind], out=of_entering[first:behind])
                launch(
                    kernels.level_back, size, projected[t], pre[:, t], states[:, t], mask, of_last, of_entering,
                    of_projected[t], of_pre[:, t], of_states, *tables.read, number, pre.stride(0), states.stride(0),
                    size, height, OPS=len(OPERATIONS),
                )  # fmt: skip
            torch.mm(of_pre[0, t], transposed[0], out=of_entering[0])
            launch(
                kernels.enter_back, size, projected[t], pre[0, t], output[t - 1] if t else hidden, _at(factor, t),
                mask, _at(alive, t), of_entering[0], of_states[1], _at(of_factor, t), of_output[t - 1] if t else None,
                of_last, size, height, GATED=plan.gated_carry,
            )  # fmt: skip
        of_weights = None
        if ctx.needs_input_grad[6]:
            of_weights = torch.bmm(entering.flatten(1, 2).transpose(1, 2), of_pre.flatten(1, 2))
        return None, None, None, of_projected, of_last, of_factor, of_weights


def _at(tensor: Tensor | None, step: int) -> Tensor | None:
    return None if tensor is None else tensor[step]
