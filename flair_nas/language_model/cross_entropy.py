"""Cross-entropy of a softmax over a large vocabulary, a block of rows at a time.

The logits of a segment, [S, V], are by far its largest tensor, and autograd would keep two more of that size. Here a
block of rows goes from logits to losses and gradients while it is in the processor's cache; nothing of that size is
ever held.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from flair_nas.nn.kernels.tracing import first_order_only, untraced

_LOGITS = {"cpu": 2**19, "cuda": 2**27}  # of a block: what a processor's cache holds; enough to keep a GPU busy
_ROWS = 128  # of a block at least: with fewer, the products are slow


@untraced
def mean_cross_entropy(rows: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """The mean of -log softmax(rows weight^T + bias)[targets], with gradients; they can be taken once.

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
        loss: Tensor = _MeanCrossEntropy.apply(rows, weight, bias, targets, _product_dtype(rows, weight))
        return loss
    return cross_entropies(rows, weight, bias, targets).mean()


def cross_entropies(rows: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """The same row by row, [S], without gradients; arguments as of `mean_cross_entropy`."""
    with torch.no_grad():
        dtype = _product_dtype(rows, weight)
        with torch.autocast(rows.device.type, enabled=False):
            blocks = _blocks(rows.to(dtype), weight.to(dtype), bias.to(dtype), targets)
            return torch.cat([losses for _, losses, _ in blocks])


class _MeanCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
        # the gradients of the sum are made at once, since logits would have to be made again in the backward pass
        of_rows = torch.empty_like(rows) if ctx.needs_input_grad[0] else None  # [S, H]
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None  # [V, H]
        of_bias = torch.zeros_like(bias) if ctx.needs_input_grad[2] else None  # [V]
        total: Tensor | None = None
        with torch.autocast(rows.device.type, enabled=False):
            factor, other = rows.to(dtype), weight.to(dtype)
            for piece, losses, of_logits in _blocks(factor, other, bias.to(dtype), targets):
                total = losses.sum() if total is None else total + losses.sum()
                of_logits[torch.arange(len(losses), device=rows.device), targets[piece]] -= 1  # softmax - one-hot
                if of_bias is not None:
                    of_bias += of_logits.sum(0)
                of_logits = of_logits.to(dtype)  # [block, V]
                if of_rows is not None:
                    of_rows[piece] = torch.mm(of_logits, other)
                if of_weight is not None and of_weight.dtype == dtype:
                    of_weight.addmm_(of_logits.t(), factor[piece])
                elif of_weight is not None:
                    of_weight += torch.mm(of_logits.t(), factor[piece])
        ctx.gradients, ctx.count = (of_rows, of_weight, of_bias), len(rows)
        assert total is not None
        return total / len(rows)

    @staticmethod
    @first_order_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        scale = gradients[0] / ctx.count
        found = (None if gradient is None else gradient * scale.to(gradient.dtype) for gradient in ctx.gradients)
        return (*found, None, None)


def _blocks(rows: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """For each block of rows: where it is, its losses [block], its probabilities [block, V], which may be changed."""
    size = min(len(rows), max(_ROWS, _LOGITS["cpu" if rows.device.type == "cpu" else "cuda"] // len(weight)))
    logits_of_all = rows.new_empty(size, len(weight))
    wide = torch.promote_types(rows.dtype, torch.float32)  # the sum over V needs more digits than bfloat16 has
    probabilities_of_all = torch.empty_like(logits_of_all, dtype=wide)
    transposed = weight.t()
    for start in range(0, len(rows), size):
        piece = slice(start, min(start + size, len(rows)))
        count = piece.stop - start
        logits = torch.addmm(bias, rows[piece], transposed, out=logits_of_all[:count])  # [block, V]
        wanted = logits.gather(1, targets[piece, None])[:, 0].to(wide)  # [block]
        probabilities = torch.softmax(logits, 1, wide, out=probabilities_of_all[:count])  # [block, V]
        # log of the sum of exp(logits), by which a logit and its log-probability differ; the largest never underflows
        below = logits.amax(1).to(wide) - wanted  # [block], first, since the rest would be lost in large logits
        yield piece, below - probabilities.amax(1).log(), probabilities


def _product_dtype(rows: Tensor, weight: Tensor) -> torch.dtype:
    """The dtype of a product of these: under autocast a lower one than their own."""
    return torch.mm(rows.detach()[:1, :1], weight.detach()[:1, :1]).dtype
