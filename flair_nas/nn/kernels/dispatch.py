"""Choice between the equations and the engines."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from flair_nas.errors import FlairNasError, did_you_mean
from flair_nas.nn.kernels.native import build
from flair_nas.nn.kernels.tracing import is_transformed

VARIABLE = "FLAIR_NAS_KERNELS"
SETTINGS = ("auto", "native", "columns", "plain")


def wants_equations() -> bool:
    """Return True if `FLAIR_NAS_KERNELS=plain` is set or something traces or transforms the operators."""
    return setting() == "plain" or is_transformed()


def engine_for(highway: bool, weight: Tensor, product: torch.dtype) -> str:
    """Return the engine of one recurrence, ``native`` or ``columns``; it is chosen once per sequence.

    Args:
        highway: the cell has the highway form.
        weight: one of its weights, for device and dtype.
        product: dtype of the products; under autocast it is lower than the weight's.

    Raises:
        FlairNasError: `FLAIR_NAS_KERNELS` is unknown, or is ``native``, and native kernels are missing or cannot run
            this recurrence.
    """
    value, on_cpu = setting(), weight.device.type == "cpu"
    if value == "columns" or (value == "auto" and (not on_cpu or build.library() is None)):
        return "columns"
    library = build.built().library if on_cpu else None
    if not on_cpu:
        problem = f"on CPUs alone, and this layer is on {weight.device}"
    elif library is None:
        problem = f"nowhere here: {build.built().reason}"
    elif not highway:
        problem = "no cells with highway=False"
    elif weight.dtype not in (torch.float32, torch.float64):
        problem = f"no weights in {weight.dtype}"
    elif product not in (weight.dtype, torch.bfloat16):
        problem = f"no autocast to {product}"
    elif product != weight.dtype and not hasattr(library, "flair_nas_forward_bfloat16"):
        problem = "no autocast to torch.bfloat16 on this processor"
    else:
        return "native"
    if value == "native":
        raise FlairNasError(f"{VARIABLE}=native: native kernels run {problem}; set it to auto or columns")
    return "columns"


def setting() -> str:
    """Return the value of `FLAIR_NAS_KERNELS`, by default ``auto``; raise FlairNasError if it is unknown."""
    value = os.environ.get(VARIABLE) or "auto"
    if value not in SETTINGS:
        known = ", ".join(SETTINGS)
        raise FlairNasError(f"unknown {VARIABLE} {value!r}; {did_you_mean(value, SETTINGS)}there are {known}")
    return value
