"""The loop of an elementwise recurrence: s_t = s_{t-1} + σ(c_t + v ⊙ s_{t-1}) ⊙ (u_t - s_{t-1}), of a ragged batch.

No matrix product depends on the step before: c and u are known for all steps beforehand. In the backward pass
δ_{t-1} += δ_t ⊙ a_t, with factors a_t that are known beforehand too, so each step is one operation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from flair_nas.nn.kernels.tracing import Context, first_order_only, untraced
from flair_nas.nn.packing import Packing


def loop_by_equations(pre: Tensor, candidate: Tensor, weight: Tensor, hidden: Tensor, sizes: Sequence[int]) -> Tensor:
    """Run the loop step by step, by plain autograd; arguments as `run_loop`."""
    states: list[Tensor] = []
    for c, u in zip(pre.split(sizes), candidate.split(sizes)):  # [B_t, H]
        hidden = hidden[: len(c)]
        gate = torch.sigmoid(c + weight[: len(c)] * hidden)
        hidden = hidden + gate * (u - hidden)
        states.append(hidden)
    return torch.cat(states)


@untraced
def run_loop(pre: Tensor, candidate: Tensor, weight: Tensor, hidden: Tensor, packing: Packing) -> Tensor:
    """Run the loop, with a backward pass of one operation a step.

    Args:
        pre: c, [S, H].
        candidate: u, [S, H].
        weight: v, [1, H], or one row for each sequence, [B, H].
        hidden: s before the first step, [B, H].
        packing: positions of the tokens.

    Returns:
        s of all steps, [S, H].
    """
    states: Tensor = _Loop.apply(pre, candidate, weight, hidden, packing)
    return states


class _LoopContext(Context):
    packing: Packing


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _LoopContext, pre: Tensor, candidate: Tensor, weight: Tensor, hidden: Tensor, packing: Packing
    ) -> Tensor:
        gates, states = torch.empty_like(pre), torch.empty_like(candidate)
        last, sizes = hidden, packing.sizes
        for c, u, gate, state in zip(*(tensor.split(sizes) for tensor in (pre, candidate, gates, states))):
            last = last[: len(c)]
            torch.addcmul(c, weight[: len(c)], last, out=gate).sigmoid_()
            last = torch.lerp(last, u, gate, out=state)
        ctx.packing = packing
        ctx.save_for_backward(candidate, weight, hidden, gates, states)
        return states

    @staticmethod
    @first_order_only
    def backward(ctx: _LoopContext, gradient: Tensor) -> tuple[Tensor | None, ...]:
        candidate, weight, hidden, gates, states = ctx.saved_tensors
        packing = ctx.packing
        sizes = packing.sizes
        before = torch.cat([hidden, *(s[:size] for s, size in zip(states.split(sizes), sizes[1:]))])  # s_{t-1}, [S, H]
        slope = (candidate - before).mul_(gates).mul_(1 - gates)  # ds_t / dc_t, [S, H]
        rows = weight if len(weight) == 1 else weight[packing.column]
        factors = torch.addcmul(1 - gates, slope, rows)  # ds_t / ds_{t-1}, [S, H]
        deltas = gradient.clone(memory_format=torch.contiguous_format)
        steps = [*zip(deltas.split(sizes), factors.split(sizes))]
        for (earlier, _), (delta, factor) in zip(steps[-2::-1], steps[:0:-1]):
            earlier[: len(delta)].addcmul_(delta, factor)
        grad_hidden = torch.mul(*steps[0])  # [B, H]
        grad_pre = deltas * slope
        by_row = grad_pre * before
        if len(weight) == 1:
            grad_weight = by_row.sum(0, keepdim=True)
        else:
            grad_weight = torch.zeros_like(weight).index_add_(0, packing.column, by_row)
        return grad_pre, deltas.mul_(gates), grad_weight, grad_hidden, None
