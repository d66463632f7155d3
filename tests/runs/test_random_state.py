"""Random states go through a checkpoint."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy
import torch

from flair_nas.runs.checkpoints import Checkpoints, read_checkpoint
from flair_nas.runs.random_state import random_state, restore_random_state


def draws() -> list[float]:
    return [
        *(random.random(), random.gauss(0, 1)),  # the second of a pair of normal numbers is part of the state
        *(numpy.random.random(), numpy.random.normal()),
        *(torch.rand(()).item(), torch.randn(()).item()),
        *([torch.rand((), device="cuda").item()] if torch.cuda.is_available() else []),
    ]


def test_random_states_go_through_a_checkpoint(tmp_path: Path) -> None:
    draws()
    Checkpoints(tmp_path).save({"random": random_state()})
    expected = list(itertools.chain.from_iterable(draws() for _ in range(3)))
    for seed in (random.seed, numpy.random.seed, torch.manual_seed):
        seed(5)
    assert draws() != expected[: len(draws())]
    restore_random_state(read_checkpoint(tmp_path / "checkpoint.pt")["random"])
    assert list(itertools.chain.from_iterable(draws() for _ in range(3))) == expected


def test_other_gpus_than_before_leave_their_random_state_alone() -> None:
    state = random_state() | {"cuda": [torch.zeros(16, dtype=torch.uint8)] * (torch.cuda.device_count() + 1)}
    expected = draws()[:6]
    restore_random_state(state)
    assert draws()[:6] == expected
