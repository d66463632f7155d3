"""The elementwise work of the recurrences on a GPU, as Triton kernels: one launch forward, one back.

It has the functions of `flair_nas.kernels.elementwise`, and as there the backward pass computes everything again from
the pre-activations. On a GPU a plain mixture is some twenty launches of a few microseconds' work each. Sums run in
float32, in float64 if a tensor has it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, get_type_hints

import torch
from torch import Tensor

from flair_nas.genotype import OPERATIONS
from flair_nas.kernels.tracing import first_order_only

if TYPE_CHECKING:  # kernels know it by this name once `_compiled` has imported it
    import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

BLOCK = 256  # elements of a program: small, since the tensors of a time step are


def mixture(pre: Tensor, shares: Tensor) -> Tensor:
    """The sum over k of share_k op_k(z), for each edge (DARTS, Liu et al. 2019, eq. 2).

    Args:
        pre: pre-activations z, [n, G, B].
        shares: mixing weights of the n edges, [n, 5], in the order of `OPERATIONS`.

    Returns:
        [n, G, B], of the dtype of `pre`.
    """
    result: Tensor = _Mixture.apply(pre, None, shares)
    return result


def highway_mixture(pre: Tensor, state: Tensor, shares: Tensor) -> Tensor:
    """The sum over k of share_k (s + σ(c) (op_k(z) - s)), for each edge (design of the supernet; drop adds nothing).

    Args:
        pre: pre-activations [c | z] of the n edges that leave one node, all c before all z, [2 * n * H, B].
        state: s, the state of that node, [H, B].
        shares: mixing weights of the edges, [n, 5].

    Returns:
        What the node gives to each head, [n, H, B], of the dtype of `state`.
    """
    result: Tensor = _Mixture.apply(pre, state, shares)
    return result


def highway_edges(pre: Tensor, state: Tensor, heads: Sequence[Sequence[str]]) -> list[Tensor]:
    """The sum over a head's operations of s + σ(c) (op(z) - s), for each head of one node (I-DARTS eq. 1).

    Args:
        pre: pre-activations [c | z] of the k heads, all c before all z, [2 * k * H, B].
        state: s, the state of the node, [H, B].
        heads: for each head the operations of its edges, of `OPERATIONS`.

    Returns:
        What the node gives to each head, k tensors [H, B], of the dtype of `state`.
    """
    parts = pre.view(2, len(heads), *state.shape).unbind(1)  # [2, H, B] each; c and z lie apart
    return [
        reduce(torch.add, [highway(part, state, operation) for operation in operations])
        for part, operations in zip(parts, heads)
    ]


def highway(pre: Tensor, state: Tensor, op: str) -> Tensor:
    """One edge of a searched cell, s + σ(c) (op(z) - s) (I-DARTS, Jiang et al. 2019, eq. 1).

    Args:
        pre: pre-activations [c | z], [2 * H, B] or [2, H, B]; c and z may lie apart, as those of one head of several.
        state: s, [H, B].
        op: one of `OPERATIONS`.

    Returns:
        [H, B], of the dtype of `state`.

    Raises:
        ValueError: unknown `op`.
    """
    if op not in OPERATIONS:
        raise ValueError(f"op must be one of {', '.join(OPERATIONS)}, got {op!r}")
    result: Tensor = _Highway.apply(pre, state, op)
    return result


class _Mixture(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pre: Tensor, state: Tensor | None, shares: Tensor) -> Tensor:
        pre, shares = pre.contiguous(), shares.contiguous()
        state = None if state is None else state.contiguous()
        ctx.save_for_backward(pre, state, shares)
        like = pre[0] if state is None else state
        out = like.new_empty(len(shares), *like.shape)
        launch(
            _mix,
            like.numel(),
            pre,
            state,
            shares,
            out,
            *_extent(out, state),
            OPS=shares.shape[1],
            HIGHWAY=state is not None,
        )
        return out

    @staticmethod
    @first_order_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pre, state, shares = ctx.saved_tensors
        gradient = gradients[0].contiguous()  # [n, G, B]
        size, wanted = gradient[0].numel(), ctx.needs_input_grad[2]
        of_pre = torch.empty_like(pre)
        of_state = None if state is None else torch.empty_like(state)
        # a program's part of the gradient of the shares; they are added in a fixed order, not as programs end
        wide = torch.promote_types(shares.dtype, torch.float32)
        parts = shares.new_empty(programs(size), *shares.shape, dtype=wide) if wanted else None
        tensors = (pre, state, shares, gradient, of_pre, of_state, parts)
        constants = {"OPS": shares.shape[1], "HIGHWAY": state is not None, "WANTED": parts is not None}
        launch(_mix_back, size, *tensors, *_extent(gradient, state), **constants)
        return of_pre, of_state, None if parts is None else parts.sum(0).to(shares.dtype)


class _Highway(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pre: Tensor, state: Tensor, op: str) -> Tensor:
        ctx.shape = pre.shape
        state, pre = state.contiguous(), pre.reshape(2, *state.shape)
        if not pre[0].is_contiguous():
            pre = pre.contiguous()
        ctx.save_for_backward(pre, state)
        ctx.op = op
        out = torch.empty_like(state)
        launch(_gate, state.numel(), pre, state, out, state.numel(), pre.stride(0), OP=OPERATIONS.index(op))
        return out

    @staticmethod
    @first_order_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        pre, state = ctx.saved_tensors
        of_pre, of_state = pre.new_empty(pre.shape), torch.empty_like(state)  # c beside z again
        tensors = (pre, state, gradients[0].contiguous(), of_pre, of_state)
        launch(_gate_back, state.numel(), *tensors, state.numel(), pre.stride(0), OP=OPERATIONS.index(ctx.op))
        return of_pre.view(ctx.shape), of_state, None


def _extent(edges: Tensor, state: Tensor | None) -> tuple[int, int, int]:
    """Number of edges, elements of one, and where the z of the first begin, for mixtures [n, G, B]."""
    return len(edges), edges[0].numel(), 0 if state is None else edges.numel()


def programs(size: int, block: int = BLOCK) -> int:
    """The number of programs that `launch` starts."""
    return -(-size // block)


def launch(
    kernel: Callable[..., None], size: int, *arguments: Tensor | int | None, block: int = BLOCK, **constants: Any
) -> None:
    """Runs a kernel over so many elements, `block` of them a program; its constants WIDE and BLOCK are added."""
    compiled = _compiled(kernel)
    tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
    wide = tl.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else tl.float32
    with torch.cuda.device_of(tensors[0]):  # Triton takes the current device, whatever the tensors'
        compiled[(programs(size, block),)](*arguments, WIDE=wide, BLOCK=block, **constants)


@functools.cache
def _compiled(kernel: Callable[..., None]) -> Any:
    """The kernel as Triton runs it; its module's `SHARED` are the functions that it may call."""
    known = kernel.__globals__
    known.update({shared.__name__: _jit(shared) for shared in known["SHARED"]})
    return _jit(kernel)


@functools.cache
def _jit(function: Callable[..., Any]) -> Any:
    import triton  # by those who use it

    function.__globals__["tl"] = triton.language
    function.__annotations__ = get_type_hints(function)  # not all versions know `tl.constexpr` as text
    return triton.jit(function)


# Kernels. Integers and 0.0 take the dtype of the tensor beside them. A program has one block of elements, of every edge
# in turn: pointers move, since offsets over all edges may pass 2^31, and since Triton 2.1 fails at a block that moves.
# What a mask leaves out is 0 and adds nothing. tanh z = 2 σ(2z) - 1, for tanh moved from version to version; its
# absolute error is below 5e-7 in float32. Triton compiles annotations, too, and knows none but `tl.constexpr`.


def _operate(z, OP: tl.constexpr):  # type: ignore[no-untyped-def]
    # OP is a place in `OPERATIONS`
    value = z
    if OP == 0:
        value = tl.zeros(z.shape, z.dtype)
    elif OP == 1:
        value = 2 * tl.sigmoid(2 * z) - 1
    elif OP == 2:
        value = tl.where(z < 0, 0.0, z)
    elif OP == 3:
        value = tl.sigmoid(z)
    return value


def _slope(z, value, OP: tl.constexpr):  # type: ignore[no-untyped-def]
    slope = tl.full(z.shape, 1.0, z.dtype)
    if OP == 0:
        slope = tl.zeros(z.shape, z.dtype)
    elif OP == 1:
        slope = 1 - value * value
    elif OP == 2:
        slope = tl.where(z > 0, 1.0, 0.0).to(z.dtype)
    elif OP == 3:
        slope = value * (1 - value)
    return slope


_KNOWN = ("drop", "tanh", "relu", "sigmoid", "identity")
assert OPERATIONS == _KNOWN, "_operate and _slope must have all operations, in their order"


SHARED = (_operate, _slope)


def _mix(  # type: ignore[no-untyped-def]
    pre,
    state,
    shares,
    out,
    count,
    size,
    half,
    OPS: tl.constexpr,
    HIGHWAY: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    if HIGHWAY:
        carry = tl.load(state + place, mask=inside, other=0.0).to(WIDE)
    for _edge in range(count):
        z = tl.load(pre + half + place, mask=inside, other=0.0).to(WIDE)
        value = tl.zeros([BLOCK], dtype=WIDE)
        carried = tl.zeros([BLOCK], dtype=WIDE)
        for op in tl.static_range(1, OPS):
            share = tl.load(shares + op).to(WIDE)
            value += share * _operate(z, op)
            carried += share
        if HIGHWAY:
            gate = tl.sigmoid(tl.load(pre + place, mask=inside, other=0.0).to(WIDE))
            carried *= carry
            value = carried + gate * (value - carried)
        tl.store(out + place, value, mask=inside)
        pre += size
        out += size
        shares += OPS


def _mix_back(  # type: ignore[no-untyped-def]
    pre,
    state,
    shares,
    gradient,
    of_pre,
    of_state,
    parts,
    count,
    size,
    half,
    OPS: tl.constexpr,
    HIGHWAY: tl.constexpr,
    WANTED: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    if HIGHWAY:
        carry = tl.load(state + place, mask=inside, other=0.0).to(WIDE)
        of_carry = tl.zeros([BLOCK], dtype=WIDE)
    if WANTED:
        parts += tl.program_id(0).to(tl.int64) * count * OPS
    for _edge in range(count):
        z = tl.load(pre + half + place, mask=inside, other=0.0).to(WIDE)
        through = tl.load(gradient + place, mask=inside, other=0.0).to(WIDE)
        if HIGHWAY:
            gate = tl.sigmoid(tl.load(pre + place, mask=inside, other=0.0).to(WIDE))
            around = through * (1 - gate)
            through *= gate
        if WANTED:
            tl.store(parts, 0.0)
        value = tl.zeros([BLOCK], dtype=WIDE)
        slope = tl.zeros([BLOCK], dtype=WIDE)
        carried = tl.zeros([BLOCK], dtype=WIDE)
        for op in tl.static_range(1, OPS):
            share = tl.load(shares + op).to(WIDE)
            own = _operate(z, op)
            value += share * own
            slope += share * _slope(z, own, op)
            carried += share
            if WANTED:
                of_share = through * own
                if HIGHWAY:  # every operation but drop carries the state, too
                    of_share += around * carry
                tl.store(parts + op, tl.sum(of_share, axis=0))
        if HIGHWAY:
            of_carry += around * carried
            # d/dc: g σ(c) (1 - σ(c)) (mixed - carried state)
            tl.store(of_pre + place, through * (1 - gate) * (value - carried * carry), mask=inside)
        tl.store(of_pre + half + place, through * slope, mask=inside)
        if WANTED:
            parts += OPS
        pre += size
        of_pre += size
        gradient += size
        shares += OPS
    if HIGHWAY:
        tl.store(of_state + place, of_carry, mask=inside)


def _gate(  # type: ignore[no-untyped-def]
    pre, state, out, size, apart, OP: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    carry = tl.load(state + place, mask=inside, other=0.0).to(WIDE)
    gate = tl.sigmoid(tl.load(pre + place, mask=inside, other=0.0).to(WIDE))
    z = tl.load(pre + apart + place, mask=inside, other=0.0).to(WIDE)
    tl.store(out + place, carry + gate * (_operate(z, OP) - carry), mask=inside)


def _gate_back(  # type: ignore[no-untyped-def]
    pre, state, gradient, of_pre, of_state, size, apart, OP: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    carry = tl.load(state + place, mask=inside, other=0.0).to(WIDE)
    gate = tl.sigmoid(tl.load(pre + place, mask=inside, other=0.0).to(WIDE))
    z = tl.load(pre + apart + place, mask=inside, other=0.0).to(WIDE)
    around = tl.load(gradient + place, mask=inside, other=0.0).to(WIDE)
    through = around * gate
    around *= 1 - gate
    value = _operate(z, OP)
    tl.store(of_pre + place, through * (1 - gate) * (value - carry), mask=inside)
    tl.store(of_pre + size + place, through * _slope(z, value, OP), mask=inside)
    tl.store(of_state + place, around, mask=inside)
