"""Pools from settings."""

from __future__ import annotations

import os

from flair_nas.experiments.config import PoolSettings
from flair_nas.experiments.jobs import Pool
from flair_nas.experiments.local_pool import LocalPool
from flair_nas.runs.device import choose_device


def make_pool(config: PoolSettings) -> Pool:
    """Return the pool that settings describe.

    Raises:
        FlairNasError: the device is missing, or Ray or its cluster is.
    """
    if config.engine == "ray":
        from flair_nas.experiments.ray_pool import RayPool

        return RayPool(config.workers, address=config.ray_address, gpu=config.device != "cpu")
    device, cores = choose_device(config.device), len(os.sched_getaffinity(0))
    gpus: list[str] = []
    if device.type == "cuda" and device.index is None:  # else none, or the one that is named by number
        import torch

        count, visible = torch.cuda.device_count(), os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = visible.split(",")[:count] if visible else [str(number) for number in range(count)]
    workers = config.workers or (max(1, len(gpus)) if device.type == "cuda" else cores)
    threads = max(1, cores // workers)
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list is by level of nesting
    if limit.isdecimal() and int(limit) > 0:
        threads = min(threads, int(limit))
    return LocalPool(workers, threads=threads, gpus=gpus)
