"""Jobs of tests, which another process can import, and a pool that runs them in this one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from flair_nas.errors import FlairNasError
from flair_nas.experiments.jobs import Job, Outcome, ProcessDiedError
from flair_nas.experiments.local_pool import LocalPool

if TYPE_CHECKING:
    import pytest


def run_jobs_here(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    """Let `LocalPool` run jobs in this process; return the list of names that grows with each but estimates."""
    done: list[str] = []

    def run(pool: LocalPool, jobs: Iterable[Job | None]) -> Iterator[Outcome]:
        source = iter(jobs)
        while (job := next(source, None)) is not None:
            if job.work.__name__ != "estimate":
                done.append(job.name)
            try:
                outcome = Outcome(job, job.work(*job.arguments), None)
            except (FlairNasError, OSError, ProcessDiedError) as error:
                outcome = Outcome(job, None, error)
            yield outcome

    monkeypatch.setattr(LocalPool, "run", run)
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(folder / "cache"))
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "columns")  # native ones would be compiled anew for that cache
    return done


def double(number: int) -> tuple[int, int]:
    return 2 * number, os.getpid()


def fail(word: str) -> None:
    raise ValueError(word)


def die_until(folder: str, times: int) -> int:
    """Kill this process a number of times, then return that number."""
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
    """Return True if a number of others are at work at the same time."""
    (Path(folder) / name).touch()
    for _ in range(2400):
        if len(list(Path(folder).iterdir())) > others:
            return True
        time.sleep(0.05)
    return False


def visible(folder: str, name: str, others: int) -> str | None:
    """Return the GPUs of this process while a number of others are at work."""
    assert meet(folder, name, others)
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def take(folder: str, name: str) -> bool:
    """Stay small for a while, then take 800 MB; return True if another job began in that while."""
    own = Path(folder) / name
    own.touch()
    until = time.monotonic() + 3
    found = False
    while not found and time.monotonic() < until:
        found = len(list(Path(folder).iterdir())) > 1
        time.sleep(0.05)
    kept = b"x" * (800 * 10**6)
    if not found:
        own.unlink()
    return found and bool(kept)


def wait_for(file: str) -> None:
    while not Path(file).exists():
        time.sleep(0.05)


def draw_for_ever(file: str) -> None:
    """Wait with a progress bar that is disabled."""
    from tqdm import tqdm

    with tqdm(disable=True):
        wait_for_ever(file)


def wait_for_ever(file: str) -> None:
    Path(file).write_text(str(os.getpid()))
    time.sleep(600)
