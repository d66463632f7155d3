"""States of all random generators that a run uses."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    """Return the states of the generators of torch (CPU and GPUs), Python and NumPy, for a checkpoint."""
    name, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all(),
        "python": random.getstate(),
        "numpy": (name, torch.tensor(np.asarray(keys, dtype=np.int64)), *rest),
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Restore the states that `random_state` returned. Skip those of GPUs if their number differs."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
