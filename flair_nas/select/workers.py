"""Jobs in several processes on this machine: one that dies is begun again, and none outlives this process."""

from __future__ import annotations

import concurrent.futures
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
from tqdm import tqdm

if TYPE_CHECKING:
    from flair_nas.select.config import PoolSettings
    from flair_nas.select.ray_pool import RayPool

log = logging.getLogger("flair_nas")


class Job(NamedTuple):
    """Work for one process.

    Args:
        name: for messages.
        work: a function of a module; what it is given and what it returns is pickled.
        arguments: what it is given.
    """

    name: str
    work: Callable[..., Any]
    arguments: tuple[Any, ...]


class Outcome(NamedTuple):
    """How a job ended.

    Args:
        job: which one.
        result: what its work returned; None if that failed.
        error: what it raised, if it did.
    """

    job: Job
    result: Any
    error: BaseException | None


class Died(Exception):
    """A process ended without a word, killed or out of memory, as often as it was tried."""


class Pool:
    """Processes that do jobs. One is kept for the next job, with what its modules have loaded.

    Args:
        workers: how many processes at most; where the memory that is free is less than what one has taken so far, no
            further one is started until one ends.
        threads: of PyTorch, in each of them.
        tries: how often a job is begun whose process dies.
    """

    def __init__(self, workers: int, *, threads: int = 1, tries: int = 2) -> None:
        self.workers, self.threads, self.tries = workers, threads, tries
        self.free: list[ProcessPoolExecutor] = []
        self.running: dict[Future[Any], tuple[int, ProcessPoolExecutor]] = {}

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all processes, those at work at once."""
        for _number, slot in self.running.values():
            _end(slot)
        for slot in self.free:
            slot.shutdown()

    def run(self, jobs: Sequence[Job]) -> Generator[Outcome, None, None]:
        """Does all jobs, in their order as far as processes are free, and gives each when it has ended."""
        left, tried = list(range(len(jobs))), [0] * len(jobs)
        while left or self.running:
            while left and (slot := self._free_slot()):
                number = left.pop(0)
                tried[number] += 1
                self.running[slot.submit(jobs[number].work, *jobs[number].arguments)] = number, slot
            ended, _ = concurrent.futures.wait(self.running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ended:
                number, slot = self.running.pop(future)
                job, error = jobs[number], future.exception()
                if not isinstance(error, BrokenProcessPool):
                    self.free.append(slot)
                    yield Outcome(job, None if error else future.result(), error)
                    continue
                slot.shutdown(wait=False)
                if tried[number] < self.tries:
                    log.warning("%s: its process has died; it is begun again from its last checkpoint", job.name)
                    left.insert(0, number)
                else:
                    times = "once" if self.tries == 1 else f"{self.tries} times"
                    yield Outcome(job, None, Died(f"its process has died {times}; is there memory enough?"))

    def _free_slot(self) -> ProcessPoolExecutor | None:
        """A process that is free, or a new one; None where there is neither place nor memory."""
        at_work = [slot for _, slot in self.running.values()]
        if self.free:
            return self.free.pop(0)
        if len(at_work) < self.workers and (not at_work or _has_room(at_work)):
            return _new_slot(self.threads)
        return None


def make_pool(config: PoolSettings) -> Pool | RayPool:
    """The pool that settings describe.

    Raises:
        FlairNasError: as `RayPool`.
    """
    if config.engine == "ray":
        from flair_nas.select.ray_pool import RayPool

        return RayPool(config.workers, address=config.ray_address, gpu=config.device != "cpu")
    return Pool(config.workers or len(os.sched_getaffinity(0)))


def _new_slot(threads: int) -> ProcessPoolExecutor:
    """An executor of one process, so that its death is of no concern to the others."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)  # read when torch is loaded
    try:
        context = multiprocessing.get_context("spawn")
        slot = ProcessPoolExecutor(1, mp_context=context, initializer=_begin, initargs=(threads,))
        slot.submit(os.getpid).result()  # it is started now, in this environment
        return slot
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _processes(slot: ProcessPoolExecutor) -> list[Any]:
    return list((slot._processes or {}).values())


def _has_room(slots: Sequence[ProcessPoolExecutor]) -> bool:
    """Whether as much memory is free as the largest process has now."""
    sizes = [0]
    for slot in slots:
        for process in _processes(slot):
            try:
                sizes.append(psutil.Process(process.pid).memory_info().rss)
            except psutil.Error:  # it has just ended
                continue
    return psutil.virtual_memory().available > 1.2 * max(sizes)


def _end(slot: ProcessPoolExecutor) -> None:
    for process in _processes(slot):
        process.kill()
    slot.shutdown(wait=True, cancel_futures=True)


# --- in a process ---


def _begin(threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits for this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tqdm.set_lock(threading.RLock())  # its own is a semaphore, too, which Python misses after a process was killed
    import torch

    torch.set_num_threads(threads)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
