"""Back-propagation through time that forms the gradient of each weight in one product over all time steps.

Plain autograd adds a gradient of the size of the weight at every step. Here autograd gives the gradients of its
products alone; the weight's is inputs x gradients^T over all steps together. Vectors are columns, [E, B].
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from flair_nas.nn.kernels.tracing import first_order_only, untraced


class Products:
    """Matrix products of a recurrence, by the weight's name.

    Args:
        weights: the matrices, transposed and contiguous.
        record: names of weights; inputs and outputs of their products are kept for `run_sequence`.
    """

    def __init__(self, weights: Mapping[Hashable, Tensor], record: Collection[Hashable] = ()) -> None:
        self.weights = weights
        self.record = record
        self.recorded: dict[Hashable, list[tuple[Tensor, Tensor]]] = defaultdict(list)

    def __call__(self, name: Hashable, vectors: Tensor) -> Tensor:
        """Multiply the matrix of that name, [F, E], with [E, B]; the result, [F, B], has the dtype of `vectors`."""
        product = torch.mm(self.weights[name], vectors)
        if name in self.record:
            if not product.requires_grad:  # nothing before it needs a gradient, but the weight does
                product.requires_grad_()
            self.recorded[name].append((vectors.detach(), product))
        return product.to(vectors.dtype)  # under autocast the product is of lower precision


@untraced
def run_sequence(
    loop: Callable[..., Tensor], weights: Mapping[Hashable, Tensor], sources: Mapping[str, Tensor]
) -> Tensor:
    """Return the packed output of a recurrence, [H, S], with the faster gradient if one is needed.

    Args:
        loop: computes the output from `Products` and the sources as keyword arguments.
        weights: the matrices, by name, as `Products` takes them.
        sources: all other tensors that may need a gradient.
    """
    tensors = [*sources.values(), *weights.values()]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        output: Tensor = _Sequence.apply(loop, tuple(weights), tuple(sources), *tensors)
        return output
    return loop(Products(weights), **sources)


class _Sequence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, loop: Callable[..., Tensor], names: tuple[Hashable, ...], sources: tuple[str, ...], *tensors: Tensor
    ) -> Tensor:
        count = len(sources)
        with torch.enable_grad():
            leaves = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors[:count]]
            weights = dict(zip(names, tensors[count:]))
            learned = {name for name, weight in weights.items() if weight.requires_grad}
            products = Products({name: weight.detach() for name, weight in weights.items()}, record=learned)
            output = loop(products, **dict(zip(sources, leaves)))
        ctx.graph = (weights, leaves, products.recorded, output)
        return output.detach()

    @staticmethod
    @first_order_only
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.graph is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time; use retain_graph=True the first time"
            )
        weights, leaves, recorded, output = ctx.graph
        keep = keeps_graph()
        if not keep:
            ctx.graph = None  # frees the graph now, not when the loss goes out of scope
        learned = [leaf for leaf in leaves if leaf.requires_grad]
        outputs = [product for pairs in recorded.values() for _, product in pairs]
        grads = iter(torch.autograd.grad(output, [*learned, *outputs], gradient, retain_graph=keep, allow_unused=True))
        grad_leaves = [next(grads) if leaf.requires_grad else None for leaf in leaves]
        grad_weights: dict[Hashable, Tensor] = {}
        for name, pairs in recorded.items():
            with_gradient = [(vectors, grad) for (vectors, _), grad in zip(pairs, grads) if grad is not None]
            if with_gradient:
                vectors, grad = (torch.cat(parts, dim=1) for parts in zip(*with_gradient))  # [E, S] and [F, S]
                # the backward pass of the weight's transposition makes it contiguous
                grad_weight = torch.mm(vectors.to(grad.dtype), grad.t())  # [E, F]
                grad_weights[name] = grad_weight.to(weights[name].dtype).t()
        return (None, None, None, *grad_leaves, *(grad_weights.get(name) for name in weights))


def keeps_graph() -> bool:
    """Return True if this backward pass was called with retain_graph=True, or if PyTorch does not tell."""
    ask = getattr(getattr(torch._C, "_autograd", None), "_get_current_graph_task_keep_graph", None)
    return True if ask is None else bool(ask())
