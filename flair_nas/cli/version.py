"""Description of this installation: ``flair-nas --version -v``."""

from __future__ import annotations

import platform
from importlib.metadata import version

import torch

from flair_nas.nn.kernels import dispatch
from flair_nas.nn.kernels.elementwise_loop import loop_on, run_loop
from flair_nas.nn.kernels.native import build
from flair_nas.version import __version__


def describe() -> list[str]:
    """Return the versions and the engines in use. Native kernels are compiled if necessary."""
    return [
        f"flair-nas {__version__}",
        f"Python {platform.python_version()}",
        f"torch {version('torch')}",
        f"flair {version('flair')}",
        f"kernels on CPU: {_describe_cpu_engine()}",
        f"kernels on CUDA: {_describe_cuda_engine()}",
        f"{dispatch.VARIABLE}: {dispatch.setting()}",
    ]


def _describe_cpu_engine() -> str:
    wanted = dispatch.setting()
    if wanted in ("plain", "columns"):
        return f"{wanted}, as {dispatch.VARIABLE} says"
    built = build.built()
    if built.library is None:
        instead = "none" if wanted == "native" else "columns, on PyTorch's operators"
        return f"{instead}: {built.reason}"
    isa = f" {build.call_text(built.library, 'flair_nas_isa')}" if hasattr(built.library, "flair_nas_isa") else ""
    return f"native{isa}, compiled with {built.compiler}; {built.place}"


def _describe_cuda_engine() -> str:
    if not torch.cuda.is_available():
        return "none, this PyTorch sees no GPU"
    name = {"plain": "plain", "native": "none (native kernels are for CPUs)"}.get(dispatch.setting(), "columns")
    triton = loop_on(torch.device("cuda")) is not run_loop and dispatch.setting() == "auto"
    return f"{name}{', Triton for elementwise recurrences,' * triton} on {torch.cuda.get_device_name()}"
