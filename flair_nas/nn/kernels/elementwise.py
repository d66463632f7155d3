"""Edges on PyTorch's operators, with vectors as columns or rows; all edges that leave one node are computed together.

The backward pass of a mixture computes intermediate results again, where plain autograd would keep them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from flair_nas.genotype import OPERATION_TABLE
from flair_nas.nn.kernels.tracing import first_order_only

# on a CPU, PyTorch's sigmoid takes a tenth of the time of its tanh
FUNCTIONS = {name: row.function for name, row in OPERATION_TABLE.items()}
FAST_FUNCTIONS = {**FUNCTIONS, "tanh": lambda pre: torch.sigmoid(pre * 2) * 2 - 1}
"""The operations, as engines compute them."""

_KEPT = [(FAST_FUNCTIONS[name], row.derivative) for name, row in OPERATION_TABLE.items() if name != "drop"]


def highway_edges(pre: Tensor, state: Tensor, heads: Sequence[Sequence[str]]) -> list[Tensor]:
    """Compute s + σ(c) (op(z) - s), [H, B], summed over a head's operations, for each head of a node (I-DARTS eq. 1).

    Args:
        pre: pre-activations [c | z] of the k heads, all c before all z, [2 * k * H, B].
        state: s, the state of the node, [H, B].
        heads: for each head, the operations of its edges.
    """
    gate, value = pre.chunk(2)  # [k * H, B] each
    gates, values = _parts(torch.sigmoid(gate), len(heads)), _parts(value, len(heads))
    return [
        reduce(torch.add, [torch.lerp(state, FUNCTIONS[operation](z), gate) for operation in operations])
        for gate, z, operations in zip(gates, values, heads)
    ]


def _parts(tensor: Tensor, count: int) -> tuple[Tensor, ...]:
    """Split rows evenly; a single part, the common case, costs no copy in the backward pass."""
    return tensor.chunk(count) if count > 1 else (tensor,)


class _MixedEdges(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pre: Tensor, mixing: Tensor) -> Tensor:
        ctx.save_for_backward(pre, mixing)
        return _mix(pre, mixing)

    @staticmethod
    @first_order_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        pre, mixing = ctx.saved_tensors
        _, slope, grad_mixing = _mix_again(pre, mixing, gradient, ctx.needs_input_grad[1])
        return gradient * slope, grad_mixing


mixed_edges: Callable[[Tensor, Tensor], Tensor] = _MixedEdges.apply
"""Computes Σ_k p_k op_k(z), [n, G, B], of n edges from z, [n, G, B], and the mixing weights p, [n, 5]."""


class _MixedHighwayEdges(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pre: Tensor, state: Tensor, mixing: Tensor) -> Tensor:
        ctx.save_for_backward(pre, state, mixing)
        gate, value = _split(pre, state)
        carried = state * _carried(mixing)  # [n, H, B]
        return torch.lerp(carried, _mix(value, mixing), torch.sigmoid(gate))

    @staticmethod
    @first_order_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        pre, state, mixing = ctx.saved_tensors
        gate, value = _split(pre, state)
        gate = torch.sigmoid(gate)
        through = gradient * gate
        around = gradient - through
        carried = _carried(mixing)
        mixed, slope, grad_mixing = _mix_again(value, mixing, through, ctx.needs_input_grad[2])
        grad_pre = torch.empty_like(pre)
        grad_gate, grad_value = _split(grad_pre, state)
        # d/dc: g σ(c) (1 - σ(c)) (mixed - carried state)
        torch.mul(mixed.addcmul_(state, carried, value=-1), through.mul(gate.neg_().add_(1)), out=grad_gate)
        torch.mul(through, slope, out=grad_value)
        if grad_mixing is not None:
            # every operation but drop also carries the state
            grad_mixing[:, 1:] += torch.mv(around.flatten(1), state.flatten())[:, None]
        grad_state = torch.mv(around.flatten(1).t(), carried.flatten()).view_as(state)  # [H, B]
        return grad_pre, grad_state, grad_mixing


mixed_highway_edges: Callable[[Tensor, Tensor, Tensor], Tensor] = _MixedHighwayEdges.apply
"""Computes Σ_k p_k (s + σ(c) (op_k(z) - s)), [n, H, B], of the n edges that leave one node (DARTS; I-DARTS eq. 4).

Its arguments are [c | z], all c before all z, [2 * n * H, B]; s, [H, B]; and p, [n, 5]. Drop adds nothing.
"""


def _split(pre: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parts c and z of pre-activations, [n, H, B] each."""
    gate, value = pre.view(2, -1, *state.shape)
    return gate, value


def _carried(mixing: Tensor) -> Tensor:
    """Return the mixing weight of all operations but drop together, [n, 1, 1]."""
    return mixing[:, 1:].sum(1).view(-1, 1, 1)


def _mix(pre: Tensor, mixing: Tensor) -> Tensor:
    columns = mixing.t()[:, :, None, None]  # [5, n, 1, 1]
    value = torch.zeros_like(pre)
    for weight, (function, _) in zip(columns[1:], _KEPT):
        value.addcmul_(function(pre), weight)
    return value


def _mix_again(
    pre: Tensor, mixing: Tensor, gradient: Tensor, needs_mixing: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return mixture and derivative by z, [n, G, B], and the gradient of the mixing weights, [n, 5], or None."""
    columns = mixing.t()[:, :, None, None]  # [5, n, 1, 1]
    value, slope = torch.zeros_like(pre), torch.zeros_like(pre)
    grad_mixing = torch.zeros_like(mixing) if needs_mixing else None
    for number, (weight, (function, derivative)) in enumerate(zip(columns[1:], _KEPT), start=1):
        out = function(pre)
        value.addcmul_(out, weight)
        slope.addcmul_(derivative(pre, out), weight)
        if grad_mixing is not None:
            grad_mixing[:, number] = torch.linalg.vecdot(gradient.flatten(1), out.flatten(1))
    return value, slope, grad_mixing
