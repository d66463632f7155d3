"""Keeping out of what traces or transforms PyTorch's operators: engines of our own do not consist of these alone."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode

Function = TypeVar("Function", bound=Callable[..., Any])


def untraced(function: Function) -> Function:
    """Has `torch.compile` run a function as it stands, between two graphs: traced, its gradients would be wrong.

    As `torch.compiler.disable`, but without importing torch._dynamo, which takes longer than all of flair-nas, where
    nothing else has imported it.
    """

    disabled: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal disabled
        if "torch._dynamo" not in sys.modules or torch.jit.is_tracing():  # older ones refuse to be traced in their turn
            return function(*args, **kwargs)
        if disabled is None:
            disabled = torch._dynamo.disable(function)
        return disabled(*args, **kwargs)

    return call  # type: ignore[return-value]


@untraced
def is_transformed() -> bool:
    """Whether something traces or transforms the operators of what runs now, none of which sees into our own engines.

    So do torch.jit.trace, torch.func, forward-mode derivatives, and modes such as those of make_fx and fake tensors.
    """
    transforms = getattr(torch._C, "_are_functorch_transforms_active", None)
    return (
        torch.jit.is_tracing()
        or (transforms is not None and bool(transforms()))
        or forward_ad._current_level >= 0
        or _get_current_dispatch_mode() is not None
    )


def first_order_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """The `backward` of an autograd function whose own derivative does not exist: refuses `create_graph=True`.

    PyTorch's `once_differentiable` refuses only where the gradient that comes in requires one: what the second
    derivative owes to the saved tensors would be left out without a word.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "these gradients cannot be differentiated again, so create_graph=True is refused: a second derivative "
                "takes the plain equations, by the environment variable FLAIR_NAS_KERNELS=plain"
            )
        return backward(ctx, *gradients)

    return checked
