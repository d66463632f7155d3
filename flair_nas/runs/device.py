"""Device and precision of a run."""

from __future__ import annotations

import functools

import torch
from torch import nn

from flair_nas.errors import FlairNasError, brief
from flair_nas.settings.fields import check_device


def choose_device(name: str | None) -> torch.device:
    """Return the device of a name: cpu, cuda or cuda:N. Without a name, prefer a GPU to the CPU."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if problem := check_device(name):
        raise FlairNasError(f"device {problem}, got {brief(name)}")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise FlairNasError(
            f"device {name}: this PyTorch sees {torch.cuda.device_count()} CUDA devices; try --device cpu"
        )
    return device


@functools.cache
def check_precision(precision: str, device: torch.device) -> None:
    """Raise FlairNasError if PyTorch cannot run a precision, float32 or bfloat16 by autocast, on a device."""
    if precision == "float32":
        return
    if device.type == "cuda":
        if not torch.cuda.is_bf16_supported():
            raise FlairNasError(f"precision {precision}: {device} cannot run it; use --precision float32")
        return
    # an LSTM needs the most of oneDNN: if it runs, all else does
    with torch.random.fork_rng(devices=[]), torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
        try:
            nn.LSTM(2, 2).to(device)(torch.zeros(1, 1, 2, device=device))
        except RuntimeError:
            raise FlairNasError(
                f"precision {precision}: this processor has no instructions for it that PyTorch could use (on x86: "
                "AVX-512); use --precision float32"
            ) from None


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return the context of a precision, float32 or bfloat16. Raise FlairNasError if the device cannot run it."""
    check_precision(precision, device)
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def float32_products(device: torch.device) -> str:
    """Return the precision of float32 matrix products: ``ieee``, or the coarser ``tf32`` or ``bf16``.

    Newer versions of PyTorch have a setting for each backend. If it is used, the older functions raise.
    """
    backend = getattr(torch.backends, "cuda" if device.type == "cuda" else "mkldnn")
    precision = getattr(getattr(backend, "matmul", None), "fp32_precision", None)
    if precision is None:
        precision = {"high": "tf32", "medium": "bf16"}.get(torch.get_float32_matmul_precision(), "ieee")
    return "ieee" if precision == "none" else str(precision)
