"""Choice of what runs a recurrence: the equations, or an engine."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from flair_nas.errors import FlairNasError, did_you_mean
from flair_nas.nn.kernels.native import build
from flair_nas.nn.kernels.plan import CellPlan
from flair_nas.nn.kernels.tracing import is_transformed

VARIABLE = "FLAIR_NAS_KERNELS"
SETTINGS = ("auto", "native", "columns", "plain")


def wants_equations() -> bool:
    """Return True if `FLAIR_NAS_KERNELS=plain` is set or something traces or transforms the operators.

    Raises:
        FlairNasError: the variable's value is not known.
    """
    return setting() == "plain" or is_transformed()


def engine_for(plan: CellPlan, weight: Tensor, product: torch.dtype) -> str:
    """Choose the engine of one recurrence, once a sequence, where the equations are not wanted.

    Args:
        plan: the plan of the cell.
        weight: one of its weights, for device and dtype.
        product: the dtype that products are taken in; a lower one under autocast.

    Returns:
        ``native`` or ``columns``.

    Raises:
        FlairNasError: see `chosen`.
    """
    name = chosen(weight.device)
    if name != "native":
        return name
    runs = plan.highway and weight.dtype in (torch.float32, torch.float64)
    if product != weight.dtype:
        runs = runs and product == torch.bfloat16 and hasattr(build.library(), "flair_nas_forward_bfloat16")
    return "native" if runs else "columns"


def chosen(device: torch.device) -> str:
    """Return the engine that `FLAIR_NAS_KERNELS` selects on a device, if it is not ``plain``.

    The first call that may give native kernels compiles them if the cache has none; ``columns`` compiles nothing.

    Args:
        device: where the recurrence runs.

    Returns:
        ``native`` or ``columns``.

    Raises:
        FlairNasError: the variable's value is not known, or native kernels are asked for where there are none.
    """
    wanted = setting()
    if wanted == "native":
        if device.type != "cpu":
            raise FlairNasError(
                f"{VARIABLE}=native: native kernels run on CPUs alone, and this layer is on {device}; set it to columns"
            )
        built = build.built()
        if built.library is None:
            raise FlairNasError(f"{VARIABLE} asks for native kernels, and there are none: {built.reason}")
        return "native"
    if device.type != "cpu" or wanted == "columns":
        return "columns"
    return "columns" if build.library() is None else "native"


def setting() -> str:
    """Return the value of `FLAIR_NAS_KERNELS`, by default ``auto``.

    Raises:
        FlairNasError: the value is not known.
    """
    value = os.environ.get(VARIABLE) or "auto"
    if value not in SETTINGS:
        known = ", ".join(SETTINGS)
        raise FlairNasError(f"unknown {VARIABLE} {value!r}; {did_you_mean(value, SETTINGS)}there are {known}")
    return value
