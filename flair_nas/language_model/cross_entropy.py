"""Cross-entropy of a softmax over a large vocabulary, a block of rows at a time.

The logits of a segment, [S, V], are by far its largest tensor, and autograd keeps two more of that size. Here, losses
and gradients of a block of rows are computed from its logits while they are in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from flair_nas.nn.kernels.tracing import first_order_only, untraced
from flair_nas.nn.matrix_product import by_onednn, multiply, product_dtype

_LOGITS = {"cpu": 2**19, "cuda": 2**27}  # logits of a block: they fit a processor's cache, or keep a GPU busy
_ROWS = 128  # rows of a block at least; the products of fewer are slow


@untraced
def mean_cross_entropy(rows: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Compute the mean of -log softmax(rows weight^T + bias)[targets]. It has first derivatives only.

    Args:
        rows: [S, H].
        weight: [V, H].
        bias: [V].
        targets: ids, [S].

    Returns:
        Nats, a scalar, float32 or wider.
    """
    tensors = (rows, weight, bias)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        loss: Tensor = _MeanCrossEntropy.apply(rows, weight, bias, targets, product_dtype(weight))
        return loss
    return cross_entropies(rows, weight, bias, targets).mean()


def cross_entropies(rows: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Compute -log softmax(rows weight^T + bias)[targets] of each row, [S] in nats, without gradients."""
    dtype = product_dtype(weight)
    with torch.no_grad(), torch.autocast(rows.device.type, enabled=False):
        blocks = _blocks(rows.to(dtype), weight.to(dtype), bias.to(dtype), targets)
        return torch.cat([losses for _, losses, _ in blocks])


class _MeanCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
        # the gradients of the sum are computed here, since the backward pass would have to compute the logits again
        grad_rows = torch.empty_like(rows) if ctx.needs_input_grad[0] else None  # [S, H]
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None  # [V, H]
        grad_bias = torch.zeros_like(bias) if ctx.needs_input_grad[2] else None  # [V]
        total: Tensor | None = None
        with torch.autocast(rows.device.type, enabled=False):
            low_rows, low_weight = rows.to(dtype), weight.to(dtype)
            for piece, losses, grad_logits in _blocks(low_rows, low_weight, bias.to(dtype), targets):
                total = losses.sum() if total is None else total + losses.sum()
                grad_logits[torch.arange(len(losses), device=rows.device), targets[piece]] -= 1  # softmax - one-hot
                if grad_bias is not None:
                    grad_bias += grad_logits.sum(0)
                grad_logits = grad_logits.to(dtype)  # [block, V]
                if grad_rows is not None:
                    grad_rows[piece] = multiply(grad_logits, low_weight)
                if grad_weight is not None:
                    _add_product(grad_weight, grad_logits.t(), low_rows[piece])
        ctx.gradients, ctx.count = (grad_rows, grad_weight, grad_bias), len(rows)
        assert total is not None
        return total / len(rows)

    @staticmethod
    @first_order_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        scale = gradients[0] / ctx.count
        scaled = (None if gradient is None else gradient * scale.to(gradient.dtype) for gradient in ctx.gradients)
        return (*scaled, None, None)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add the product of two matrices to the total. Their dtype is the total's or a lower one."""
    if total.dtype == left.dtype and not by_onednn(left, right):
        total.addmm_(left, right)  # without another matrix of that size
    else:
        total += multiply(left, right)


def _blocks(rows: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield the position of each block of rows, its losses [block], and its probabilities [block, V].

    The caller may change the probabilities; the next block overwrites them.
    """
    size = min(len(rows), max(_ROWS, _LOGITS["cpu" if rows.device.type == "cpu" else "cuda"] // len(weight)))
    all_logits = rows.new_empty(size, len(weight))
    wide = torch.promote_types(rows.dtype, torch.float32)  # the sum over V needs more digits than bfloat16 has
    all_probabilities = torch.empty_like(all_logits, dtype=wide)
    transposed = weight.t()
    for start in range(0, len(rows), size):
        piece = slice(start, min(start + size, len(rows)))
        count = piece.stop - start
        if by_onednn(rows[piece], transposed):
            logits = torch.add(multiply(rows[piece], transposed), bias, out=all_logits[:count])  # [block, V]
        else:
            logits = torch.addmm(bias, rows[piece], transposed, out=all_logits[:count])
        target_logits = logits.gather(1, targets[piece, None])[:, 0].to(wide)  # [block]
        probabilities = torch.softmax(logits, 1, wide, out=all_probabilities[:count])  # [block, V]
        # A logit and its log-probability differ by log sum exp(logits). It is computed from the largest logit, whose
        # probability never underflows. The difference comes first, since large logits would absorb the rest.
        below = logits.amax(1).to(wide) - target_logits  # [block]
        yield piece, below - probabilities.amax(1).log(), probabilities
