"""Back-propagation through time that forms the gradient of each weight in one product over all time steps.

Plain autograd multiplies and adds a gradient as large as the weight at every step. Here the weights take no part in
the graph of the recurrence; the gradients of the products (pre-activations) come from it, and each weight's gradient
is then inputs x gradients^T over all steps together. Vectors are columns, [E, B].
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any

import torch
from torch import Tensor

from flair_nas.nn.kernels.tracing import first_order_only, untraced


class Products:
    """The matrix products of a recurrence, by name of the weight.

    Args:
        weights: the matrices, transposed and contiguous.
        record: keep inputs and outputs of the products with these weights, for `run_sequence`.
    """

    def __init__(self, weights: Mapping[Hashable, Tensor], record: Collection[Hashable] = ()) -> None:
        self.weights = weights
        self.record = record
        self.recorded: dict[Hashable, list[tuple[Tensor, Tensor]]] = defaultdict(list)

    def __call__(self, name: Hashable, vectors: Tensor) -> Tensor:
        """Multiplies the matrix of that name, [F, E], with [E, B]; the result, [F, B], has the dtype of `vectors`."""
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
    """Runs a recurrence, with the faster gradient when one is wanted.

    Args:
        loop: computes the packed output [H, S] from `Products` and the sources, which are its keyword arguments;
            multiplies weights through the former.
        weights: the matrices, by name, as `Products` takes them.
        sources: everything else that the output depends on and that may need a gradient.
    """
    tensors = [*sources.values(), *weights.values()]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        output: Tensor = _Sequence.apply(loop, tuple(weights), tuple(sources), *tensors)
        return output
    return run_by_autograd(loop, weights, sources)


def run_by_autograd(
    loop: Callable[..., Tensor], weights: Mapping[Hashable, Tensor], sources: Mapping[str, Tensor]
) -> Tensor:
    """The same by plain autograd, which can be differentiated again; arguments as of `run_sequence`."""
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
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        if ctx.graph is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time; use retain_graph=True the first time"
            )
        weights, leaves, recorded, output = ctx.graph
        keep = keeps_graph()
        if not keep:
            ctx.graph = None  # frees the recurrence's graph now, not when the loss goes out of scope
        learned = [leaf for leaf in leaves if leaf.requires_grad]
        outputs = [product for pairs in recorded.values() for _, product in pairs]
        found = iter(torch.autograd.grad(output, [*learned, *outputs], gradients, retain_graph=keep, allow_unused=True))
        of_leaves = [next(found) if leaf.requires_grad else None for leaf in leaves]
        of_weights: dict[Hashable, Tensor | None] = {}
        for name, pairs in recorded.items():
            with_gradient = [(vectors, g) for (vectors, _), g in zip(pairs, found) if g is not None]
            if with_gradient:
                vectors, gradient = (torch.cat(parts, dim=1) for parts in zip(*with_gradient))  # [E, S] and [F, S]
                # transposed once more by the backward of what transposed the weight, and then contiguous
                weight_gradient = torch.mm(vectors.to(gradient.dtype), gradient.t())  # [E, F]
                of_weights[name] = weight_gradient.to(weights[name].dtype).t()
        return (None, None, None, *of_leaves, *(of_weights.get(name) for name in weights))


def keeps_graph() -> bool:
    """Whether this backward was called with retain_graph=True; True, too, where this PyTorch does not tell."""
    ask = getattr(getattr(torch._C, "_autograd", None), "_get_current_graph_task_keep_graph", None)
    return True if ask is None else bool(ask())
