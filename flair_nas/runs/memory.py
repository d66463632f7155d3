"""Memory of this process and of the device."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from flair_nas.errors import FlairNasError

_PROCESS = Path("/proc/self")  # of Linux


def check_fits(build: Callable[[], nn.Module], device: torch.device, settings: str) -> None:
    """Refuses a model that is larger than the memory: the system may grant it, and then end the process.

    Args:
        build: makes the model; here it takes neither memory nor time.
        device: where it will be.
        settings: what makes it large, for the error: ``hidden_size 4000``.

    Raises:
        FlairNasError: its weights and their gradients do not fit.
    """
    with torch.random.fork_rng(devices=[]), torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # comes again when it is built
        weights = list(build().parameters())
    needed = 2 * sum(weight.numel() * weight.element_size() for weight in weights)
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
    else:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise FlairNasError(
            f"{settings}: {sum(weight.numel() for weight in weights):,} weights and their gradients take "
            f"{needed / 1e9:,.0f} GB, and there are {memory / 1e9:,.0f} GB here; choose a smaller one"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was not memory enough; PyTorch has no error of its own for that of a CPU."""
    words = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")  # the latter of a GPU's
    return isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


def peak_memory_mb(device: torch.device | None = None) -> float:
    """Peak memory so far, or since `forget_peak_memory`, in MB (10^6 bytes).

    Args:
        device: a GPU for what PyTorch has allocated there; else the resident memory of this process.
    """
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    with contextlib.suppress(
        OSError
    ):  # what `getrusage` gives is at least what the parent had as it began this process
        if found := re.search(r"VmHWM:\s*(\d+) kB", (_PROCESS / "status").read_text()):
            return int(found[1]) * 1024 / 1e6
    import resource  # not on Windows, where nothing else here fails

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def forget_peak_memory() -> None:
    """Has `peak_memory_mb` begin with what is taken now, as far as the system can; what is free goes back to it first.

    glibc keeps what was freed between things that stay: a process that trains one tagger after the other grew by up to
    60 MB with each, so that the figure was more and more of those before.
    """
    gc.collect()
    with contextlib.suppress(AttributeError, TypeError):  # another C library; Windows
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        (_PROCESS / "clear_refs").write_text("5")
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
