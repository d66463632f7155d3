"""Choosing where to compute, and how much memory that took."""

from __future__ import annotations

import sys

import torch

from flair_nas.errors import FlairNasError


def choose_device(name: str | None) -> torch.device:
    """Gives the device that a name stands for.

    Args:
        name: cpu, cuda or cuda:N; None for a GPU when there is one.

    Raises:
        FlairNasError: no such device here.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise FlairNasError(f"device must be cpu, cuda or cuda:N, got {name!r}") from None
    if device.type not in ("cpu", "cuda"):
        raise FlairNasError(f"device must be cpu, cuda or cuda:N, got {name!r}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise FlairNasError(
            f"device {name}: this PyTorch sees {torch.cuda.device_count()} CUDA devices; try --device cpu"
        )
    return device


def peak_memory_mb(device: torch.device | None = None) -> float:
    """Peak memory so far, in MB (10^6 bytes).

    Args:
        device: a GPU for what PyTorch has allocated there; else the resident memory of this process.
    """
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    import resource  # not on Windows, where nothing else here fails

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
