"""The loop of an elementwise recurrence on a GPU: one Triton kernel forward and one backward, for all steps.

A program follows some features of one sequence through time, so no program waits for another.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from flair_nas.nn.kernels.elementwise import FUNCTIONS
from flair_nas.nn.kernels.tracing import first_order_only
from flair_nas.nn.packing import Packing

FEATURES = 64  # of a program; few make many programs


def run_triton_loop(operation: str, pre: Tensor, weight: Tensor, hidden: Tensor, packing: Packing) -> Tensor:
    """Run the loop; arguments and returns as `flair_nas.nn.kernels.elementwise_loop.run_loop`."""
    c, z = pre.chunk(2, dim=1)  # [S, H] each
    states: Tensor = _Loop.apply(c, FUNCTIONS[operation](z), weight, hidden, packing)
    return states


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pre: Tensor, candidate: Tensor, weight: Tensor, hidden: Tensor, packing: Packing) -> Tensor:
        sources = [tensor.contiguous() for tensor in (pre, candidate, weight, hidden)]
        gates, states = torch.empty_like(sources[0]), torch.empty_like(sources[0])
        _launch(_forward, packing, *sources, gates, states)
        ctx.packing = packing
        ctx.save_for_backward(*sources[1:], gates, states)
        return states

    @staticmethod
    @first_order_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        candidate, weight, hidden, gates, states = ctx.saved_tensors
        gradients = [torch.empty_like(tensor) for tensor in (gates, candidate, hidden, hidden)]
        _launch(_backward, ctx.packing, gradient.contiguous(), candidate, weight, hidden, gates, states, *gradients)
        grad_pre, grad_candidate, grad_weight, grad_hidden = gradients  # of v a row for each sequence, [B, H]
        if len(weight) == 1:
            grad_weight = grad_weight.sum(0, keepdim=True)
        return grad_pre, grad_candidate, grad_weight, grad_hidden, None


def _launch(kernel: Any, packing: Packing, *tensors: Tensor) -> None:
    """Run a kernel for all sequences and features; its third and fourth tensors are v and the first state."""
    weight, (batch, size) = tensors[2], tensors[3].shape
    rows = 0 if len(weight) == 1 else size  # from the v of a sequence to that of the next
    grid = batch, triton.cdiv(size, FEATURES)
    with torch.cuda.device_of(weight):  # Triton launches on the present one
        kernel[grid](packing.offsets, packing.lengths, *tensors, size, rows, width=FEATURES)


@triton.jit  # type: ignore[untyped-decorator]
def _forward(  # type: ignore[no-untyped-def]
    offsets, lengths, pre, candidate, weight, hidden, gates, states, size, rows, width: tl.constexpr
):
    sequence = tl.program_id(0)
    feature = tl.program_id(1) * width + tl.arange(0, width)
    inside = feature < size
    v = tl.load(weight + sequence * rows + feature, inside)
    state = tl.load(hidden + sequence * size + feature, inside)
    for t in range(tl.load(lengths + sequence)):
        at = (tl.load(offsets + t) + sequence) * size + feature
        gate = tl.sigmoid(tl.load(pre + at, inside) + v * state)
        state += gate * (tl.load(candidate + at, inside) - state)
        tl.store(gates + at, gate, inside)
        tl.store(states + at, state, inside)


@triton.jit  # type: ignore[untyped-decorator]
def _backward(  # type: ignore[no-untyped-def]
    offsets,
    lengths,
    gradient,
    candidate,
    weight,
    hidden,
    gates,
    states,
    grad_pre,
    grad_candidate,
    grad_weight,
    grad_hidden,
    size,
    rows,
    width: tl.constexpr,
):
    sequence = tl.program_id(0)
    feature = tl.program_id(1) * width + tl.arange(0, width)
    inside = feature < size
    v = tl.load(weight + sequence * rows + feature, inside)
    first = sequence * size + feature
    length = tl.load(lengths + sequence)
    later = tl.zeros_like(v)  # the gradient of s_t by way of s_{t+1}
    total = tl.zeros_like(v)  # the gradient of v
    for step in range(length):
        t = length - 1 - step
        at = (tl.load(offsets + t) + sequence) * size + feature
        gate = tl.load(gates + at, inside)
        u = tl.load(candidate + at, inside)
        if t > 0:
            before = tl.load(states + (tl.load(offsets + t - 1) + sequence) * size + feature, inside)
        else:
            before = tl.load(hidden + first, inside)
        delta = tl.load(gradient + at, inside) + later
        delta_pre = delta * (u - before) * gate * (1 - gate)
        tl.store(grad_pre + at, delta_pre, inside)
        tl.store(grad_candidate + at, delta * gate, inside)
        total += delta_pre * before
        later = delta * (1 - gate) + delta_pre * v
    tl.store(grad_weight + first, total, inside)
    tl.store(grad_hidden + first, later, inside)
