"""Choosing Flair's device."""

from __future__ import annotations

import flair
import torch

from flair_nas.errors import FlairNasError


def use_device(name: str | None) -> None:
    """Has Flair compute on a device.

    Args:
        name: cpu, cuda or cuda:N; None leaves Flair's choice, a GPU when there is one.

    Raises:
        FlairNasError: no such device here.
    """
    if name is None:
        return
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
    flair.device = device
