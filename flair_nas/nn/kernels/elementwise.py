"""What edges do with their pre-activations, by PyTorch's operators, with vectors as columns or rows alike.

Of a mixture, plain autograd keeps the result of each operation and of each step between; here the backward pass
computes them again from the pre-activations. All edges that leave one node are computed together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flair_nas.genotype import OPERATIONS
from flair_nas.nn.kernels.tracing import first_order_only
from flair_nas.nn.operations import DERIVATIVES, FUNCTIONS, sigmoid_tanh

FAST_FUNCTIONS = {**FUNCTIONS, "tanh": sigmoid_tanh}
"""The operations, as engines compute them."""

_KEPT = [(FAST_FUNCTIONS[name], DERIVATIVES[name]) for name in OPERATIONS if name != "drop"]


def highway_edges(pre: Tensor, state: Tensor, heads: Sequence[Sequence[str]]) -> list[Tensor]:
    """The sum over a head's operations of s + σ(c) (op(z) - s), for each head of one node (I-DARTS eq. 1).

    Args:
        pre: pre-activations [c | z] of the k heads, all c before all z, [2 * k * H, B].
        state: s, the state of the node, [H, B].
        heads: for each head the operations of its edges.

    Returns:
        What the node gives to each head, k tensors [H, B].
    """
    gate, value = pre.chunk(2)  # [k * H, B] each
    gates, values = _parts(torch.sigmoid(gate), len(heads)), _parts(value, len(heads))
    found = []
    for first, z, (operation, *others) in zip(gates, values, heads):
        total = torch.lerp(state, FUNCTIONS[operation](z), first)
        for other in others:
            total = total + torch.lerp(state, FUNCTIONS[other](z), first)
        found.append(total)
    return found


def _parts(tensor: Tensor, count: int) -> tuple[Tensor, ...]:
    """Splits rows evenly; a single part, the common case, costs no copy in the backward pass."""
    return tensor.chunk(count) if count > 1 else (tensor,)


def mixed_edges(pre: Tensor, shares: Tensor) -> Tensor:
    """The sum over k of share_k op_k(z), for each edge.

    Args:
        pre: pre-activations z, [n, G, B].
        shares: mixing weights of the n edges, [n, 5], in the order of `OPERATIONS`.

    Returns:
        [n, G, B].
    """
    result: Tensor = _Mixture.apply(pre, shares)
    return result


def mixed_highway_edges(pre: Tensor, state: Tensor, shares: Tensor) -> Tensor:
    """The sum over k of share_k (s + σ(c) (op_k(z) - s)), for each edge (design of the supernet; drop adds nothing).

    Args:
        pre: pre-activations [c | z] of the n edges that leave one node, all c before all z, [2 * n * H, B].
        state: s, the state of that node, [H, B].
        shares: mixing weights of the edges, [n, 5].

    Returns:
        What the node gives to each head, [n, H, B].
    """
    result: Tensor = _HighwayMixture.apply(pre, state, shares)
    return result


class _Mixture(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pre: Tensor, shares: Tensor) -> Tensor:
        ctx.save_for_backward(pre, shares)
        return _mix(pre, shares)

    @staticmethod
    @first_order_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pre, shares = ctx.saved_tensors
        _, slope, of_shares = _mix_again(pre, shares, gradients[0], ctx.needs_input_grad[1])
        return gradients[0] * slope, of_shares


class _HighwayMixture(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pre: Tensor, state: Tensor, shares: Tensor) -> Tensor:
        ctx.save_for_backward(pre, state, shares)
        gate, value = _split(pre, state)
        carried = state * _carried(shares)  # what identity would give, [n, H, B]
        return torch.lerp(carried, _mix(value, shares), torch.sigmoid(gate))

    @staticmethod
    @first_order_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pre, state, shares = ctx.saved_tensors
        (gradient,) = gradients  # [n, H, B]
        gate, value = _split(pre, state)
        gate = torch.sigmoid(gate)
        through = gradient * gate
        around = gradient - through
        carried = _carried(shares)
        mixed, slope, of_shares = _mix_again(value, shares, through, ctx.needs_input_grad[2])
        of_pre = torch.empty_like(pre)
        of_gate, of_value = _split(of_pre, state)
        # d/dc: g σ(c) (1 - σ(c)) (mixed - carried state)
        torch.mul(mixed.addcmul_(state, carried, value=-1), through.mul(gate.neg_().add_(1)), out=of_gate)
        torch.mul(through, slope, out=of_value)
        if of_shares is not None:
            # every operation but drop carries the state, too
            of_shares[:, 1:] += torch.mv(around.flatten(1), state.flatten())[:, None]
        of_state = torch.mv(around.flatten(1).t(), carried.flatten()).view_as(state)  # [H, B]
        return of_pre, of_state, of_shares


def _split(pre: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The parts c and z of pre-activations, [n, H, B] each."""
    gate, value = pre.view(2, -1, *state.shape)
    return gate, value


def _carried(shares: Tensor) -> Tensor:
    """The share of all operations but drop, [n, 1, 1]."""
    return shares[:, 1:].sum(1).view(-1, 1, 1)


def _mix(pre: Tensor, shares: Tensor) -> Tensor:
    columns = shares.t()[:, :, None, None]  # [5, n, 1, 1]
    value = torch.zeros_like(pre)
    for share, (function, _) in zip(columns[1:], _KEPT):
        value.addcmul_(function(pre), share)
    return value


def _mix_again(
    pre: Tensor, shares: Tensor, gradient: Tensor, wants_shares: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The mixture, its derivative by z, [n, G, B] each, and the gradient of the shares, [n, 5], if wanted."""
    columns = shares.t()[:, :, None, None]  # [5, n, 1, 1]
    value, slope = torch.zeros_like(pre), torch.zeros_like(pre)
    of_shares = torch.zeros_like(shares) if wants_shares else None
    for number, (share, (function, derivative)) in enumerate(zip(columns[1:], _KEPT), start=1):
        out = function(pre)
        value.addcmul_(out, share)
        slope.addcmul_(derivative(pre, out), share)
        if of_shares is not None:
            of_shares[:, number] = torch.linalg.vecdot(gradient.flatten(1), out.flatten(1))
    return value, slope, of_shares
