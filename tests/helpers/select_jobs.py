"""What the processes of test_select_workers.py do: functions that another process can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def double(number: int) -> tuple[int, int]:
    return 2 * number, os.getpid()


def fail(word: str) -> None:
    raise ValueError(word)


def die_until(folder: str, times: int) -> int:
    """Kills its own process so often, then gives how often that was."""
    path = Path(folder)
    died = len(list(path.iterdir()))
    if died < times:
        (path / str(died)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return died


def threads() -> tuple[int, str | None]:
    import torch

    return torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")


def meet(folder: str, name: str, others: int) -> bool:
    """Whether so many others are at work at the same time."""
    (Path(folder) / name).touch()
    for _ in range(2400):
        if len(list(Path(folder).iterdir())) > others:
            return True
        time.sleep(0.05)
    return False


def visible(folder: str, name: str, others: int) -> str | None:
    """The GPUs that there are for this process, when so many others are at work."""
    assert meet(folder, name, others)
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def take(folder: str, name: str, megabytes: int, patience: float) -> bool:
    """Is small for a while, then takes so much; whether another one was there in that while."""
    own = Path(folder) / name
    own.touch()
    until = time.monotonic() + patience
    found = False
    while not found and time.monotonic() < until:
        found = len(list(Path(folder).iterdir())) > 1
        time.sleep(0.05)
    kept = b"x" * (megabytes * 10**6)
    if not found:
        own.unlink()
    return found and bool(kept)


def wait_for(file: str) -> None:
    while not Path(file).exists():
        time.sleep(0.05)


def draw_for_ever(file: str) -> None:
    """Waits with a progress bar, disabled or not."""
    from tqdm import tqdm

    with tqdm(disable=True):
        wait_for_ever(file)


def wait_for_ever(file: str) -> None:
    Path(file).write_text(str(os.getpid()))
    time.sleep(600)
