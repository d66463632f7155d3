"""Guards against tracers and transforms of PyTorch's operators, which cannot see into the engines."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def untraced(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make `torch.compile` run a function uncompiled, between two graphs; traced, its gradients would be wrong.

    Unlike `torch.compiler.disable`, it does not import torch._dynamo, which takes longer than all of flair-nas.
    """

    disabled: Callable[Arguments, Result] | None = None

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        nonlocal disabled
        if "torch._dynamo" not in sys.modules or torch._C._is_tracing():  # older versions cannot trace `disable`
            return function(*args, **kwargs)
        if disabled is None:
            disabled = torch._dynamo.disable(function)
        return disabled(*args, **kwargs)

    return call


@untraced
def is_transformed() -> bool:
    """Return True if the current operators are traced or transformed.

    This covers torch.jit.trace, torch.func, forward-mode derivatives, and modes such as make_fx and fake tensors.
    """
    transforms = getattr(torch._C, "_are_functorch_transforms_active", None)
    return (
        torch._C._is_tracing()
        or (transforms is not None and bool(transforms()))
        or forward_ad._current_level >= 0
        or _get_current_dispatch_mode() is not None
    )


def first_order_only(backward: Callable[..., Result]) -> Callable[..., Result]:
    """Make the `backward` of an autograd function refuse `create_graph=True`, because it has no derivative.

    PyTorch's `once_differentiable` would silently leave out second derivatives through saved tensors.
    """

    @functools.wraps(backward)
    def checked(ctx: object, *gradients: Tensor) -> Result:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "these gradients cannot be differentiated again, so create_graph=True is refused: for second "
                "derivatives, set the environment variable FLAIR_NAS_KERNELS=plain"
            )
        return backward(ctx, *gradients)

    return checked
