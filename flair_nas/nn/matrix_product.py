"""Products of vectors with weights.

On AMD's processors since Zen 5, MKL takes kernels of half the width of AVX-512. Large products of float32 are then
computed by oneDNN, which PyTorch brings as well (benchmarks/speed/large_products.py compares the two).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from flair_nas.nn.kernels.tracing import is_transformed
from flair_nas.nn.processor import read_processor

LEAST = 2**25
"""Multiplications of a product that takes long enough: oneDNN prepares each new shape for up to a millisecond."""
_PROCESSOR = read_processor()
MKL_IS_SLOW = (
    _PROCESSOR.get("vendor_id") == "AuthenticAMD"
    and int(_PROCESSOR.get("cpu family", 0)) >= 26  # Zen 5; older ones were not measured
    and torch.backends.cpu.get_cpu_capability() == "AVX512"
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)
# A program kept for each shape would take half a gigabyte, as batches of sentences differ in size. oneDNN reads these
# variables at its first product.
if MKL_IS_SLOW:
    for _variable in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(_variable, "128")
# both have moved since PyTorch 2.2
is_compiling: Callable[[], bool] = getattr(torch.compiler, "is_compiling", torch._utils.is_compiling)
_is_autocast: Callable[[], bool] = (
    partial(torch.is_autocast_enabled, "cpu") if hasattr(torch, "get_autocast_dtype") else torch.is_autocast_cpu_enabled
)


def masked(state: Tensor, mask: Tensor | None) -> Tensor:
    """Apply a variational dropout mask, if there is one."""
    return state if mask is None else state * mask


def product(vectors: Tensor, weight: Tensor) -> Tensor:
    """Multiply vectors [..., E] with a matrix [E, F]; the result has the dtype of the vectors.

    Under autocast the product has a lower precision, but states keep that of the weights.
    """
    return (multiply if vectors.dim() == 2 else torch.matmul)(vectors, weight).to(vectors.dtype)


def product_dtype(weight: Tensor) -> torch.dtype:
    """Return the dtype of products with this weight; under autocast it is lower than the weight's."""
    return torch.mm(weight.new_zeros(1, 1), weight.new_zeros(1, 1)).dtype


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """Multiply matrices, [M, K] by [K, N]."""
    if by_onednn(left, right):
        result: Tensor = _Product.apply(left, right)
        return result
    return torch.mm(left, right)


def by_onednn(left: Tensor, right: Tensor) -> bool:
    """Return True if `multiply` takes oneDNN: the product is large and of float32, and nothing traces it."""
    return (
        MKL_IS_SLOW
        and not is_compiling()
        and left.dim() == right.dim() == 2
        and left.shape[1] == right.shape[0]
        and left.numel() * right.shape[1] >= LEAST
        and left.dtype == right.dtype == torch.float32
        and left.device.type == right.device.type == "cpu"
        and left.layout == right.layout == torch.strided
        and not _is_autocast()
        and bool(torch.backends.mkldnn.enabled)
        and not is_transformed()
    )


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        needs_left, needs_right = ctx.needs_input_grad[:2]
        ctx.save_for_backward(left if needs_right else None, right if needs_left else None)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.t(), None, "none", [], "")
        return product

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right = ctx.saved_tensors
        return (
            multiply(gradient, right.t()) if ctx.needs_input_grad[0] else None,
            multiply(left.t(), gradient) if ctx.needs_input_grad[1] else None,
        )
