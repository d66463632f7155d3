"""Choice of the pool that settings describe."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flair_nas.experiments.jobs import Pool
from flair_nas.experiments.local_pool import LocalPool
from flair_nas.runs.device import choose_device

if TYPE_CHECKING:
    import torch

    from flair_nas.experiments.config import PoolSettings


def make_pool(config: PoolSettings) -> Pool:
    """Return the pool that settings describe.

    Raises:
        FlairNasError: the device is missing, or Ray or its cluster is.
    """
    if config.engine == "ray":
        from flair_nas.experiments.ray_pool import RayPool

        return RayPool(config.workers, address=config.ray_address, gpu=config.device != "cpu")
    device, cores = choose_device(config.device), len(os.sched_getaffinity(0))
    gpus = _list_gpus(device)
    workers = config.workers or (max(1, len(gpus)) if device.type == "cuda" else cores)
    return LocalPool(workers, threads=_threads_each(workers, cores), gpus=gpus)


def _list_gpus(device: torch.device) -> list[str]:
    """Return the GPUs that processes are spread over; none for a CPU or a GPU that is named by number."""
    if device.type != "cuda" or device.index is not None:
        return []
    import torch

    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[:count] if visible else [str(number) for number in range(count)]


def _threads_each(workers: int, cores: int) -> int:
    """Return the threads of each process: the cores divided among them, at most ``OMP_NUM_THREADS``."""
    each = max(1, cores // workers)
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list is by level of nesting
    return min(each, int(limit)) if limit.isdecimal() and int(limit) > 0 else each
