"""Description of this installation for reports of problems: ``flair-nas --version -v``."""

from __future__ import annotations

import ctypes
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from flair_nas.nn.kernels import dispatch
from flair_nas.nn.kernels.native import build
from flair_nas.version import __version__


def describe() -> list[str]:
    """Return versions and the engines that are used here; native kernels are compiled if need be.

    Raises:
        FlairNasError: ``FLAIR_NAS_KERNELS`` has a value that is not known.
    """
    lines = [f"flair-nas {__version__}", f"Python {platform.python_version()}"]
    for package in ("torch", "flair"):
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            lines.append(f"{package}: not installed")
    lines += [f"kernels on CPU: {_on_cpu()}", f"kernels on CUDA: {_on_cuda()}"]
    return [*lines, f"{dispatch.VARIABLE}: {dispatch.setting()}"]


def _on_cpu() -> str:
    wanted = dispatch.setting()
    if wanted in ("plain", "columns"):
        return f"{wanted}, as {dispatch.VARIABLE} says"
    built = build.built()
    if built.library is None:
        instead = "none" if wanted == "native" else "columns, on PyTorch's operators"
        return f"{instead}: {built.reason}"
    return f"native{_instructions(built.library)}, compiled with {built.compiler}; {built.place}"


def _instructions(library: ctypes.CDLL) -> str:
    """Return the instruction set that the library was compiled for, after a blank, or an empty string."""
    return f" {build.told(library, 'flair_nas_isa')}" if hasattr(library, "flair_nas_isa") else ""


def _on_cuda() -> str:
    if not torch.cuda.is_available():
        return "none, this PyTorch sees no GPU"
    name = {"plain": "plain", "native": "none (native kernels are for CPUs)"}.get(dispatch.setting(), "columns")
    return f"{name} on {torch.cuda.get_device_name()}"
