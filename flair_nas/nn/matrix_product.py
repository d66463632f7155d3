"""Products of large matrices of float32 on a CPU, by oneDNN on processors where MKL is slow.

PyTorch multiplies float32 with MKL. On AMD's processors with AVX-512, MKL takes kernels of half that width. oneDNN,
which PyTorch brings as well, is two to four times as fast there (benchmarks/large_products.py).
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from flair_nas.nn.kernels.tracing import Context, is_transformed

LEAST = 2**25
"""Multiplications of a product that takes long enough: oneDNN prepares each new shape for half a millisecond."""


def _mkl_is_slow() -> bool:
    """Return True on AMD's processors with AVX-512, if PyTorch has oneDNN's product there."""
    vendor = platform.processor()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        vendor = next((line for line in lines if line.startswith("vendor_id")), vendor)
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return "AuthenticAMD" in vendor and wide and hasattr(torch.ops.mkldnn, "_linear_pointwise")


MKL_IS_SLOW = _mkl_is_slow()
# PyTorch 2.4 asks for the device; the function for CPUs is deprecated since
_is_autocast: Callable[[], bool] = (
    partial(torch.is_autocast_enabled, "cpu") if hasattr(torch, "get_autocast_dtype") else torch.is_autocast_cpu_enabled
)


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """Multiply matrices.

    Args:
        left: [M, K].
        right: [K, N].

    Returns:
        [M, N].
    """
    if MKL_IS_SLOW and not torch.compiler.is_compiling() and _suits(left, right):
        result: Tensor = _Product.apply(left, right)
        return result
    return torch.mm(left, right)


def _suits(left: Tensor, right: Tensor) -> bool:
    """Return True if a product is large and of float32, and nothing has to see into it."""
    return (
        left.numel() * right.shape[1] >= LEAST
        and left.dtype == right.dtype == torch.float32
        and left.device.type == right.device.type == "cpu"
        and not _is_autocast()
        and bool(torch.backends.mkldnn.enabled)
        and not is_transformed()
    )


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.t(), None, "none", [], "")
        return product

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right = ctx.saved_tensors
        return (
            multiply(gradient, right.t()) if ctx.needs_input_grad[0] else None,
            multiply(left.t(), gradient) if ctx.needs_input_grad[1] else None,
        )
