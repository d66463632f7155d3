"""Which engine runs a recurrence: native kernels, PyTorch's operators (with or without Triton's), or the equations."""

from __future__ import annotations

import ctypes
import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor

import flair_nas
from flair_nas.errors import FlairNasError, did_you_mean
from flair_nas.kernels import build
from flair_nas.kernels.plan import CellPlan
from flair_nas.kernels.tracing import is_transformed

VARIABLE = "FLAIR_NAS_KERNELS"
SETTINGS = ("auto", "native", "columns", "triton", "plain")


def engine_for(plan: CellPlan, weight: Tensor, product: torch.dtype) -> str:
    """The engine of one recurrence; asked once a sequence.

    Args:
        plan: of its cell.
        weight: one of its weights, for device and dtype.
        product: dtype that products are taken in, a lower one under autocast.

    Returns:
        ``native``, ``columns``, ``triton`` (columns with Triton's kernels) or ``plain``.

    Raises:
        FlairNasError: as `chosen`.
    """
    if is_transformed():
        return "plain"
    name = chosen(weight.device)
    if name != "native":
        return name
    runs = plan.highway and weight.dtype in (torch.float32, torch.float64)
    if product != weight.dtype:
        runs = runs and product == torch.bfloat16 and hasattr(build.library(), "flair_nas_forward_bfloat16")
    return "native" if runs else "columns"


def chosen(device: torch.device) -> str:
    """The engine for a device, as the environment variable ``FLAIR_NAS_KERNELS`` says.

    The first call that may give native kernels compiles them if the cache has none; the other settings compile nothing.

    Args:
        device: where the recurrence runs.

    Returns:
        As `engine_for`.

    Raises:
        FlairNasError: the variable's value is not known, or asks for native kernels that there cannot be here.
    """
    wanted = setting()
    if wanted == "plain":
        return wanted
    if wanted == "triton" and (device.type == "cuda" or device.type == "cpu" and _triton_is_interpreted()):
        return wanted
    if device.type != "cpu" or wanted == "columns":
        return "columns"
    if wanted == "native":
        found = build.built()
        if found.library is None:
            raise FlairNasError(f"{VARIABLE} asks for native kernels, and there are none: {found.reason}")
        return "native"
    return "columns" if build.library() is None else "native"


def describe() -> list[str]:
    """What a report of a problem should say: versions, and the kernels used here, which this compiles if need be."""
    wanted = setting()
    lines = [f"flair-nas {flair_nas.__version__}", f"Python {platform.python_version()}"]
    for package in ("torch", "flair"):
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            lines.append(f"{package}: not installed")
    lines += [f"kernels on CPU: {_on_cpu(wanted)}", f"kernels on CUDA: {_on_cuda()}", f"{VARIABLE}: {wanted}"]
    return lines


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


def _on_cpu(setting: str) -> str:
    if setting in ("plain", "columns"):
        return f"{setting}, as {VARIABLE} says"
    if setting == "triton" and _triton_is_interpreted():
        return "Triton, interpreted"
    found = build.built()
    if found.library is None:
        return f"columns, on PyTorch's operators: {found.reason}"
    return f"native{_instructions(found.library)}, compiled with {found.compiler}; {found.place}"


def _instructions(library: ctypes.CDLL) -> str:
    """The instruction set that the library was compiled for, after a blank; empty where it does not tell."""
    name = getattr(library, "flair_nas_isa", None)
    if name is None:
        return ""
    name.restype = ctypes.c_char_p
    return f" {name().decode()}"


def _on_cuda() -> str:
    if not torch.cuda.is_available():
        return "none, this PyTorch sees no GPU"
    return f"{chosen(torch.device('cuda'))} on {torch.cuda.get_device_name()}"
