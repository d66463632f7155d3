"""The loop of an elementwise recurrence: s_t = s_{t-1} + σ(c_t + v ⊙ s_{t-1}) ⊙ (u_t - s_{t-1}), with u = op(z).

c and u are computed for all steps beforehand. So are the factors a_t of the backward pass, δ_{t-1} += δ_t ⊙ a_t: each
step is one operation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from flair_nas.errors import brief
from flair_nas.nn.kernels.elementwise import FAST_FUNCTIONS, FUNCTIONS
from flair_nas.nn.kernels.tracing import first_order_only
from flair_nas.nn.packing import Packing

log = logging.getLogger("flair_nas")

Loop = Callable[[str, Tensor, Tensor, Tensor, Packing], Tensor]
"""A function that runs the loop, as `run_loop` does."""


def loop_by_equations(operation: str, pre: Tensor, weight: Tensor, hidden: Tensor, packing: Packing) -> Tensor:
    """Run the loop step by step, by plain autograd; arguments and returns as `run_loop`."""
    states: list[Tensor] = []
    for step in pre.split(packing.sizes):
        c, z = step.chunk(2, dim=1)  # [B_t, H]
        u, hidden = FUNCTIONS[operation](z), hidden[: len(c)]
        gate = torch.sigmoid(c + weight[: len(c)] * hidden)
        hidden = hidden + gate * (u - hidden)
        states.append(hidden)
    return torch.cat(states)


def run_loop(operation: str, pre: Tensor, weight: Tensor, hidden: Tensor, packing: Packing) -> Tensor:
    """Return s of all steps, [S, H], computed by PyTorch's operators; the backward pass takes one of them per step.

    Args:
        operation: op.
        pre: [c | z], [S, 2H].
        weight: v, [1, H], or a row for each sequence, [B, H].
        hidden: s before the first step, [B, H].
        packing: positions of the tokens.
    """
    c, z = pre.chunk(2, dim=1)  # [S, H] each
    states: Tensor = _Loop.apply(c, FAST_FUNCTIONS[operation](z), weight, hidden, packing.sizes)
    return states


@cache
def loop_on(device: torch.device) -> Loop:
    """Return the loop for a GPU: `flair_nas.nn.kernels.triton_loop.run_triton_loop` if Triton runs, else `run_loop`."""
    if device.type != "cuda":
        return run_loop
    try:
        from flair_nas.nn.kernels.triton_loop import run_triton_loop  # importing Triton takes time

        with torch.inference_mode(False), torch.enable_grad():
            pre, weight, hidden = (torch.ones(1, width, device=device, requires_grad=True) for width in (2, 1, 1))
            run_triton_loop("tanh", pre, weight, hidden, Packing([1], device)).sum().backward()
    except Exception as error:  # no Triton, no C compiler for its launcher, or a GPU that it does not know
        log.warning("elementwise recurrences run step by step on %s, as Triton failed: %s", device, brief(str(error)))
        return run_loop
    return run_triton_loop


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, pre: Tensor, candidate: Tensor, weight: Tensor, hidden: Tensor, sizes: Sequence[int]
    ) -> Tensor:
        gates, states, last = torch.empty_like(candidate), torch.empty_like(candidate), hidden
        for c, u, gate, state in zip(*(tensor.split(sizes) for tensor in (pre, candidate, gates, states))):
            last = last[: len(c)]
            torch.addcmul(c, weight[: len(c)], last, out=gate).sigmoid_()
            last = torch.lerp(last, u, gate, out=state)
        ctx.sizes = sizes
        ctx.save_for_backward(candidate, weight, hidden, gates, states)
        return states

    @staticmethod
    @first_order_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        candidate, weight, hidden, gates, states = ctx.saved_tensors
        sizes = ctx.sizes
        before = torch.cat([hidden, *(s[:size] for s, size in zip(states.split(sizes), sizes[1:]))])  # s_{t-1}, [S, H]
        slope = (candidate - before).mul_(gates).mul_(1 - gates)  # ds_t / dc_t, [S, H]
        rows = weight if len(weight) == 1 else torch.cat([weight[:size] for size in sizes])
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
            grad_weight = torch.zeros_like(weight)
            for step in by_row.split(sizes):
                grad_weight[: len(step)] += step
        return grad_pre, deltas.mul_(gates), grad_weight, grad_hidden, None
