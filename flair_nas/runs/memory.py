"""Memory of this process and of the device."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import psutil
import torch
from torch import nn

from flair_nas.errors import FlairNasError


def check_fits(build: Callable[[], nn.Module], device: torch.device, settings: str) -> None:
    """Raise FlairNasError if the weights and gradients of a model do not fit into the memory of its device.

    Without this check, the system may grant the memory and then kill the process. The error names `settings`, as
    ``hidden_size 4000``.
    """
    with torch.random.fork_rng(devices=[]), torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they come again when the model is built
        weights = list(build().parameters())
    needed = 2 * sum(weight.numel() * weight.element_size() for weight in weights)
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
    else:
        memory = psutil.virtual_memory().total
    if needed > memory:
        raise FlairNasError(
            f"{settings}: {sum(weight.numel() for weight in weights):,} weights and their gradients take "
            f"{needed / 1e9:,.0f} GB, and there are {memory / 1e9:,.0f} GB here; choose a smaller one"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an error means that memory ran out. PyTorch has no class for it on CPUs."""
    words = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")  # the last on GPUs
    return isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


def peak_memory_mb(device: torch.device | None = None) -> float:
    """Return the peak of a GPU's allocated memory, or of this process's resident memory, in MB (10^6 bytes)."""
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    if peak := read_peak("self"):  # `getrusage` includes the memory of the parent when it forked
        return peak / 1e6
    import resource  # missing on Windows, where the rest of this module works

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def read_peak(process: int | str) -> int:
    """Return the peak resident memory of a process in bytes, or 0 if the system does not know it."""
    with contextlib.suppress(OSError):
        if match := re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{process}/status").read_text()):
            return int(match[1]) * 1024
    return 0


def forget_peak(process: int | str) -> None:
    """Reset the peak of a process to its present size, if the system can."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process}/clear_refs").write_text("5")


def forget_peak_memory() -> None:
    """Give free memory back to the system, and reset the peak of `peak_memory_mb` to the current memory."""
    gc.collect()  # otherwise a process grew by up to 60 MB with each tagger that it trained
    with contextlib.suppress(AttributeError, TypeError):  # no glibc
        ctypes.CDLL(None).malloc_trim(0)
    forget_peak("self")
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
