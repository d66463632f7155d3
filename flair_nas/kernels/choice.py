"""What runs a recurrence: the equations, or an engine: native kernels, or PyTorch's operators alone or in graphs."""

from __future__ import annotations

import os
from importlib.util import find_spec

import torch
from torch import Tensor

from flair_nas.errors import FlairNasError, did_you_mean
from flair_nas.kernels import build
from flair_nas.kernels.plan import CellPlan
from flair_nas.kernels.tracing import is_transformed

VARIABLE = "FLAIR_NAS_KERNELS"
SETTINGS = ("auto", "native", "columns", "triton", "graphs", "plain")


def wants_equations() -> bool:
    """Whether the equations are wanted: ``FLAIR_NAS_KERNELS`` says ``plain``, or something looks into what runs.

    Raises:
        FlairNasError: the variable's value is not known.
    """
    return setting() == "plain" or is_transformed()


def engine_for(plan: CellPlan, weight: Tensor, product: torch.dtype) -> str:
    """The engine of one recurrence where the equations are not wanted; asked once a sequence.

    Args:
        plan: of its cell.
        weight: one of its weights, for device and dtype.
        product: dtype that products are taken in, a lower one under autocast.

    Returns:
        ``native``, ``columns``, ``triton`` (columns with Triton's kernels) or ``graphs`` (CUDA graphs of these).

    Raises:
        FlairNasError: as `chosen`.
    """
    name = chosen(weight.device)
    if name != "native":
        return name
    runs = plan.highway and weight.dtype in (torch.float32, torch.float64)
    if product != weight.dtype:
        runs = runs and product == torch.bfloat16 and hasattr(build.library(), "flair_nas_forward_bfloat16")
    return "native" if runs else "columns"


def chosen(device: torch.device) -> str:
    """The engine for a device, as the environment variable ``FLAIR_NAS_KERNELS`` says, if it is not ``plain``.

    The first call that may give native kernels compiles them if the cache has none; the other settings compile nothing.

    Args:
        device: where the recurrence runs.

    Returns:
        As `engine_for`.

    Raises:
        FlairNasError: the variable's value is not known, or asks for kernels that there cannot be here.
    """
    wanted = setting()
    if wanted == "triton" and (device.type == "cuda" or device.type == "cpu" and _triton_is_interpreted()):
        if find_spec("triton") is None:
            raise FlairNasError(f"{VARIABLE} asks for Triton's kernels, and there is no Triton; pip install triton")
        return wanted
    if device.type != "cpu" or wanted == "columns":
        return "graphs" if wanted == "graphs" and device.type == "cuda" else "columns"
    if wanted == "native":
        found = build.built()
        if found.library is None:
            raise FlairNasError(f"{VARIABLE} asks for native kernels, and there are none: {found.reason}")
        return "native"
    return "columns" if build.library() is None else "native"


def setting() -> str:
    """What ``FLAIR_NAS_KERNELS`` says.

    Raises:
        FlairNasError: the value is not known.
    """
    value = os.environ.get(VARIABLE) or "auto"
    if value not in SETTINGS:
        known = ", ".join(SETTINGS)
        raise FlairNasError(f"unknown {VARIABLE} {value!r}; {did_you_mean(value, SETTINGS)}there are {known}")
    return value


def _triton_is_interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"
