"""Device, mixed precision and data-parallel processes, by Hugging Face Accelerate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import gather_object
from torch import Tensor

from flair_nas.errors import FlairNasError

if TYPE_CHECKING:
    from flair_nas.search.bilevel import Average


def make_accelerator(device: str | None, precision: str) -> Accelerator:
    """The accelerator of this process.

    Args:
        device: cpu, cuda or cuda:N; None for a GPU when there is one.
        precision: float32 or bfloat16.

    Raises:
        FlairNasError: no such device here.
    """
    wanted = _device(device)
    if wanted is not None and wanted.type == "cuda" and wanted.index is not None:
        torch.cuda.set_device(wanted)
    options: dict[str, Any] = {
        "mixed_precision": "bf16" if precision == "bfloat16" else "no",
        "cpu": wanted is not None and wanted.type == "cpu",
    }
    try:
        return Accelerator(**options)
    except ValueError:  # an earlier search in this process was of another precision or device
        AcceleratorState._reset_state(reset_partial_state=True)
        return Accelerator(**options)


def _device(name: str | None) -> torch.device | None:
    if name is None:
        return None
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


def averaging(accelerator: Accelerator) -> Average | None:
    """A function that averages tensors over all processes, in place; None where there is one process."""
    if accelerator.num_processes == 1:
        return None

    def average(tensors: list[Tensor]) -> None:
        flat = torch.cat([tensor.detach().flatten().to(accelerator.device) for tensor in tensors])  # one message
        reduced = accelerator.reduce(flat, reduction="mean")
        for tensor, part in zip(tensors, reduced.split([tensor.numel() for tensor in tensors])):
            tensor.copy_(part.view_as(tensor))

    return average


def gathered(value: Any) -> list[Any]:
    """The values of all processes, in the order of their numbers."""
    found: list[Any] = gather_object([value])
    return found
