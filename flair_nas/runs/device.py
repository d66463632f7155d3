"""Choosing where and in which precision to compute, and how much memory that took."""

from __future__ import annotations

import functools

import torch
from torch import nn

from flair_nas.errors import FlairNasError, brief


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
