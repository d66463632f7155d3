"""Which kernels a recurrence runs on: native ones on a CPU, Triton's on a GPU, or plain PyTorch."""

from __future__ import annotations

import ctypes
import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

import flair_nas
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
    if setting == "plain":
        return f"plain PyTorch, as {VARIABLE} says"
    if setting == "triton" and _triton_is_interpreted():
        return "Triton, interpreted"
    found = build.built()
    if found.library is None:
        return f"plain PyTorch: {found.reason}"
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
    kernels = "Triton" if chosen(torch.device("cuda")) == "triton" else "plain PyTorch"
    return f"{kernels} on {torch.cuda.get_device_name()}"
