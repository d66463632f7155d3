"""Which kernels a recurrence runs on: native ones on a CPU, Triton's on a GPU, or plain PyTorch."""

from __future__ import annotations

import os

import torch

from flair_nas.errors import FlairNasError, did_you_mean
from flair_nas.kernels import build

VARIABLE = "FLAIR_NAS_KERNELS"
SETTINGS = ("auto", "native", "plain", "triton")


def chosen(device: torch.device) -> str:
    """Gives ``native``, ``plain`` or ``triton``, as the environment variable ``FLAIR_NAS_KERNELS`` says.

    The first call that may give native kernels compiles them if the cache has none; ``plain`` compiles nothing.

    Args:
        device: where the recurrence runs.

    Raises:
        FlairNasError: the variable's value is not known, or asks for native kernels that there cannot be here.
    """
    wanted = setting()
    if wanted == "triton" and (device.type == "cuda" or device.type == "cpu" and _triton_is_interpreted()):
        return "triton"
    if device.type != "cpu" or wanted == "plain":
        return "plain"
    if wanted == "native":
        found = build.built()
        if found.library is None:
            raise FlairNasError(f"{VARIABLE} asks for native kernels, and there are none: {found.reason}")
        return "native"
    return "plain" if build.library() is None else "native"


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
