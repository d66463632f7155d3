"""Device, mixed precision and data-parallel processes, by Hugging Face Accelerate."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState, is_initialized
from accelerate.utils import broadcast_object_list, gather_object, reduce
from torch import Tensor

from flair_nas.errors import FlairNasError, shown
from flair_nas.runs.device import check_precision, choose_device

Result = TypeVar("Result")


def make_accelerator(device: str | None, precision: str) -> Accelerator:
    """Make the accelerator of this process. Raise a FlairNasError if it has no such device, or no such precision."""
    chosen = choose_device(device)
    check_precision(precision, chosen)
    if chosen.type == "cuda" and chosen.index is not None:
        torch.cuda.set_device(chosen)
    options: dict[str, Any] = {
        "mixed_precision": "bf16" if precision == "bfloat16" else "no",
        "cpu": chosen.type == "cpu",  # else Accelerate would take a Mac's GPU
    }
    with contextlib.suppress(ValueError):
        accelerator = Accelerator(**options)
        if accelerator.device.type == chosen.type:
            return accelerator
    # Accelerate keeps the precision and device of an earlier search in this process
    AcceleratorState._reset_state(reset_partial_state=True)
    return Accelerator(**options)


def average(tensors: list[Tensor]) -> None:
    """Average tensors over all processes of a search, in place; with one process, or outside a search, they stay."""
    if not tensors or not is_initialized() or (state := PartialState()).num_processes == 1:
        return
    flat = torch.cat([tensor.detach().flatten().to(state.device) for tensor in tensors])  # one message
    with _explain_lost_processes():
        reduced = reduce(flat, reduction="mean")
    for tensor, part in zip(tensors, reduced.split([tensor.numel() for tensor in tensors])):
        tensor.copy_(part.view_as(tensor))


def gather(value: Result) -> list[Result]:
    """Gather the values of all processes, in the order of their numbers."""
    with _explain_lost_processes():
        values: list[Result] = gather_object([value])
    return values


def by_main(accelerator: Accelerator, work: Callable[[], Result]) -> Result | None:
    """Run a function in the main process while the others wait, and return its result there, None elsewhere.

    If it fails, all processes stop: the main process with its error, the others with a FlairNasError that names it.
    """
    if accelerator.num_processes == 1:
        return work()
    try:
        result = work() if accelerator.is_main_process else None
    except BaseException as error:
        with contextlib.suppress(RuntimeError):  # the others may be gone, too
            broadcast_object_list([str(error) or type(error).__name__])
        raise
    with _explain_lost_processes():
        (failure,) = broadcast_object_list([None])
    if failure is not None:
        raise FlairNasError(f"the main process has stopped: {failure}")
    return result


@contextlib.contextmanager
def only_main_logs(accelerator: Accelerator) -> Iterator[None]:
    """Silence the log of the other processes within the block: it would repeat that of the main process."""
    log = logging.getLogger("flair_nas")
    before, log.disabled = log.disabled, log.disabled or not accelerator.is_main_process
    try:
        yield
    finally:
        log.disabled = before


@contextlib.contextmanager
def _explain_lost_processes() -> Iterator[None]:
    """Turn the failure of a message to or from another process into a plain error."""
    try:
        yield
    except RuntimeError as error:  # gloo's and NCCL's errors have no common type but this
        raise FlairNasError(f"another process of this search has stopped; see what it says ({shown(error)})") from None
