"""Choosing where and in which precision to compute, and how much memory that took."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from flair_nas.errors import FlairNasError, brief

_PROCESS = Path("/proc/self")  # of Linux


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
    except (RuntimeError, ValueError):  # ValueError: characters that are none
        raise FlairNasError(f"device must be cpu, cuda or cuda:N, got {brief(name)}") from None
    if device.type not in ("cpu", "cuda") or device.type == "cpu" and device.index:
        raise FlairNasError(f"device must be cpu, cuda or cuda:N, got {brief(name)}")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise FlairNasError(
            f"device {name}: this PyTorch sees {torch.cuda.device_count()} CUDA devices; try --device cpu"
        )
    return device


@functools.cache
def check_precision(precision: str, device: torch.device) -> None:
    """Refuses a precision that PyTorch cannot run on a device, so that no work is begun in vain.

    Args:
        precision: float32 or bfloat16, the latter by autocast.
        device: where.

    Raises:
        FlairNasError: it cannot run there.
    """
    if precision == "float32":
        return
    if device.type == "cuda":
        if not torch.cuda.is_bf16_supported():
            raise FlairNasError(f"precision {precision}: {device} cannot run it; use --precision float32")
        return
    # an LSTM asks the most of oneDNN: where it runs, all else does
    with torch.random.fork_rng(devices=[]), torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
        try:
            nn.LSTM(2, 2).to(device)(torch.zeros(1, 1, 2, device=device))
        except RuntimeError:
            raise FlairNasError(
                f"precision {precision}: this processor has no instructions for it that PyTorch could use (on x86: "
                "AVX-512), and without them it is slower than float32 where it runs at all; use --precision float32"
            ) from None


def float32_products(device: torch.device) -> str:
    """How products of float32 tensors are computed: ``ieee``, or ``tf32`` or ``bf16``, which are coarser.

    Newer versions of PyTorch have a setting for each backend, and where it is used, the older functions only raise.

    Args:
        device: where.
    """
    backend = getattr(torch.backends, "cuda" if device.type == "cuda" else "mkldnn")
    found = getattr(getattr(backend, "matmul", None), "fp32_precision", None)
    if found is None:
        found = {"high": "tf32", "medium": "bf16"}.get(torch.get_float32_matmul_precision(), "ieee")
    return "ieee" if found == "none" else str(found)


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
