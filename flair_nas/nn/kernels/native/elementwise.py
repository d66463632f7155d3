"""Native edges over all tokens at once, and the native loop of an elementwise recurrence."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flair_nas.genotype import OPERATIONS
from flair_nas.nn.kernels.native.run import load_library
from flair_nas.nn.kernels.plan import MIXED
from flair_nas.nn.kernels.tracing import first_order_only
from flair_nas.nn.packing import Packing


def run_edge(operation: str | Tensor, pre: Tensor, state: Tensor) -> Tensor:
    """Compute an edge for all rows, as `flair_nas.nn.cell.edge` does in the highway form."""
    code, mixing = (OPERATIONS.index(operation), None) if isinstance(operation, str) else (MIXED, operation)
    result: Tensor = _Edge.apply(code, mixing, pre, state)
    return result


def run_loop(operation: str, pre: Tensor, weight: Tensor, hidden: Tensor, packing: Packing) -> Tensor:
    """Run the loop; arguments and returns as `flair_nas.nn.kernels.elementwise_loop.run_loop`."""
    states: Tensor = _Loop.apply(OPERATIONS.index(operation), pre, weight, hidden, packing.sizes)
    return states


def _call(name: str, dtype: torch.dtype, *arguments: int | Tensor | None) -> None:
    """Call a function of the library with numbers and tensors."""
    function = getattr(load_library(), f"flair_nas_{name}_{str(dtype).removeprefix('torch.')}")
    values: list[object] = []
    for argument in arguments:
        if isinstance(argument, int):
            values.append(ctypes.c_long(argument))
        else:
            values.append(ctypes.c_void_p(None if argument is None else argument.data_ptr()))
    function(*values)


class _Edge(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, code: int, mixing: Tensor | None, pre: Tensor, state: Tensor) -> Tensor:
        mixing = None if mixing is None else mixing.contiguous()
        pre, state = pre.contiguous(), state.contiguous()
        out = torch.empty_like(state)
        _call("edge_forward", state.dtype, torch.get_num_threads(), *state.shape, code, mixing, pre, state, out)
        ctx.code = code
        ctx.save_for_backward(mixing, pre, state)
        return out

    @staticmethod
    @first_order_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        mixing, pre, state = ctx.saved_tensors
        grad_pre, grad_state = torch.empty_like(pre), torch.empty_like(state)
        grad_mixing = torch.empty_like(mixing) if mixing is not None and ctx.needs_input_grad[1] else None
        sizes = torch.get_num_threads(), *state.shape, ctx.code
        tensors = mixing, gradient.contiguous(), pre, state, grad_pre, grad_state, grad_mixing
        _call("edge_backward", state.dtype, *sizes, *tensors)
        return None, grad_mixing, grad_pre, grad_state


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, code: int, pre: Tensor, weight: Tensor, hidden: Tensor, sizes: Sequence[int]) -> Tensor:
        pre, weight, hidden = pre.contiguous(), weight.contiguous(), hidden.contiguous()
        states = pre.new_empty(len(pre), hidden.shape[1])
        _call("loop_forward", pre.dtype, *_loop(code, pre, weight, hidden, sizes), states)
        ctx.code, ctx.sizes = code, sizes
        ctx.save_for_backward(pre, weight, hidden, states)
        return states

    @staticmethod
    @first_order_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        pre, weight, hidden, states = ctx.saved_tensors
        grads = torch.empty_like(pre), torch.zeros_like(weight), torch.zeros_like(hidden)
        loop = _loop(ctx.code, pre, weight, hidden, ctx.sizes)
        _call("loop_backward", pre.dtype, *loop, states, gradient.contiguous(), *grads)
        return None, *grads, None


def _loop(code: int, pre: Tensor, weight: Tensor, hidden: Tensor, sizes: Sequence[int]) -> list[int | Tensor]:
    """Return the members of `Loop` in elementwise.h, in their order."""
    size = hidden.shape[1]
    counts = torch.tensor(sizes, device="cpu")
    stride = size if len(weight) > 1 else 0
    return [torch.get_num_threads(), len(sizes), size, code, counts, pre, weight, stride, hidden]
