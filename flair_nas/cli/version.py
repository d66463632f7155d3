"""What a report of a problem should say: ``flair-nas --version -v``."""

from __future__ import annotations

import ctypes
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from flair_nas.kernels import build, choice
from flair_nas.version import __version__


def describe() -> list[str]:
    """Versions, and what recurrences run on here; native kernels are compiled for that if need be.

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
    return [*lines, f"{choice.VARIABLE}: {choice.setting()}"]


def _on_cpu() -> str:
    wanted = choice.setting()
    if wanted == "plain" or (wanted not in ("auto", "native") and choice.chosen(torch.device("cpu")) == wanted):
        return f"{wanted}, as {choice.VARIABLE} says"
    found = build.built()
    if found.library is None:
        instead = "none" if wanted == "native" else "columns, on PyTorch's operators"
        return f"{instead}: {found.reason}"
    told = f"native{_instructions(found.library)}, compiled with {found.compiler}; {found.place}"
    return f"{told} (Triton's need a GPU, or TRITON_INTERPRET=1)" if wanted == "triton" else told


def _instructions(library: ctypes.CDLL) -> str:
    """The instruction set that the library was compiled for, after a blank; empty where it does not tell."""
    return f" {build.told(library, 'flair_nas_isa')}" if hasattr(library, "flair_nas_isa") else ""


def _on_cuda() -> str:
    if not torch.cuda.is_available():
        return "none, this PyTorch sees no GPU"
    name = "plain" if choice.setting() == "plain" else choice.chosen(torch.device("cuda"))
    return f"{name} on {torch.cuda.get_device_name()}"
