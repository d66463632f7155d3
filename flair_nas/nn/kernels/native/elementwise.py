"""Native edges over all tokens at once, and the native loop of an elementwise recurrence."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from flair_nas.genotype import OPERATIONS
from flair_nas.nn.kernels.native.run import load_library
from flair_nas.nn.kernels.plan import MIXED
from flair_nas.nn.kernels.tracing import Context, first_order_only
from flair_nas.nn.packing import Packing


def run_edge(operation: str | Tensor, pre: Tensor, state: Tensor) -> Tensor:
    """Compute an edge for all rows; arguments and returns as `flair_nas.nn.cell.edge` in the highway form.

    Args:
        operation: op, or the mixing weights of all operations, [5].
        pre: [c | z], [S, 2H].
        state: s, [S, H].

    Returns:
        [S, H].
    """
    code, mixing = (OPERATIONS.index(operation), None) if isinstance(operation, str) else (MIXED, operation)
    result: Tensor = _Edge.apply(code, mixing, pre, state)
    return result


def run_loop(operation: str, pre: Tensor, weight: Tensor, hidden: Tensor, packing: Packing) -> Tensor:
    """Run the loop; arguments and returns as `flair_nas.nn.kernels.elementwise_loop.run_loop`."""
    states: Tensor = _Loop.apply(OPERATIONS.index(operation), pre, weight, hidden, packing.sizes)
    return states


def _call(name: str, dtype: torch.dtype, *arguments: int | Tensor | None | ctypes.Structure) -> None:
    """Call a function of the library with sizes, tensors of a dtype, and structures."""
    function = getattr(load_library(), f"flair_nas_{name}_{str(dtype).removeprefix('torch.')}")
    values: list[object] = []
    for argument in arguments:
        if isinstance(argument, ctypes.Structure):
            values.append(ctypes.byref(argument))
        elif isinstance(argument, int):
            values.append(ctypes.c_long(argument))
        else:
            values.append(ctypes.c_void_p(None if argument is None else argument.data_ptr()))
    function(*values)


class _EdgeContext(Context):
    code: int


class _Edge(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _EdgeContext, code: int, mixing: Tensor | None, pre: Tensor, state: Tensor) -> Tensor:
        mixing = None if mixing is None else mixing.contiguous()
        pre, state = pre.contiguous(), state.contiguous()
        out = torch.empty_like(state)
        _call("edge_forward", state.dtype, torch.get_num_threads(), *state.shape, code, mixing, pre, state, out)
        ctx.code = code
        ctx.save_for_backward(pre, state, *(() if mixing is None else (mixing,)))
        return out

    @staticmethod
    @first_order_only
    def backward(ctx: _EdgeContext, gradient: Tensor) -> tuple[Tensor | None, ...]:
        pre, state, *rest = ctx.saved_tensors
        mixing = rest[0] if rest else None
        grad_pre, grad_state = torch.empty_like(pre), torch.empty_like(state)
        grad_mixing = torch.empty_like(mixing) if mixing is not None and ctx.needs_input_grad[1] else None
        sizes = torch.get_num_threads(), *state.shape, ctx.code
        tensors = mixing, gradient.contiguous(), pre, state, grad_pre, grad_state, grad_mixing
        _call("edge_backward", state.dtype, *sizes, *tensors)
        return None, grad_mixing, grad_pre, grad_state


class _LoopArguments(ctypes.Structure):
    """The members of `Loop` in elementwise.h."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("threads", "steps", "size", "code")),
        ("sizes", ctypes.c_void_p),
        ("pre", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("weight_stride", ctypes.c_long),
        ("first", ctypes.c_void_p),
    ]


class _LoopContext(Context):
    code: int
    sizes: Sequence[int]


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _LoopContext, code: int, pre: Tensor, weight: Tensor, hidden: Tensor, sizes: Sequence[int]
    ) -> Tensor:
        pre, weight, hidden = pre.contiguous(), weight.contiguous(), hidden.contiguous()
        states = pre.new_empty(len(pre), hidden.shape[1])
        _call("loop_forward", pre.dtype, _loop(code, pre, weight, hidden, sizes), states)
        ctx.code, ctx.sizes = code, sizes
        ctx.save_for_backward(pre, weight, hidden, states)
        return states

    @staticmethod
    @first_order_only
    def backward(ctx: _LoopContext, gradient: Tensor) -> tuple[Tensor | None, ...]:
        pre, weight, hidden, states = ctx.saved_tensors
        grad_pre, grad_weight, grad_hidden = torch.empty_like(pre), torch.zeros_like(weight), torch.zeros_like(hidden)
        loop = _loop(ctx.code, pre, weight, hidden, ctx.sizes)
        _call("loop_backward", pre.dtype, loop, states, gradient.contiguous(), grad_pre, grad_weight, grad_hidden)
        return None, grad_pre, grad_weight, grad_hidden, None


def _loop(code: int, pre: Tensor, weight: Tensor, hidden: Tensor, sizes: Sequence[int]) -> _LoopArguments:
    size = hidden.shape[1]
    array = (ctypes.c_int64 * len(sizes))(*sizes)
    arguments = _LoopArguments(
        threads=torch.get_num_threads(),
        steps=len(sizes),
        size=size,
        code=code,
        sizes=ctypes.addressof(array),
        pre=pre.data_ptr(),
        weight=weight.data_ptr(),
        weight_stride=size if len(weight) > 1 else 0,
        first=hidden.data_ptr(),
    )
    arguments.array = array  # keeps it alive
    return arguments
