"""Jobs in processes of this machine.

Each process has its own executor: if one dies, the others go on.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from tqdm import tqdm

from flair_nas.errors import FlairNasError
from flair_nas.experiments.jobs import Job, Outcome, Pool
from flair_nas.experiments.memory import Memory
from flair_nas.runs.memory import forget_peak
from flair_nas.runs.signals import block_interrupt

log = logging.getLogger("flair_nas")

_IMPORTING = 113  # exit code of a process that repeats its parent's work as it imports the script


class LocalPool(Pool):
    """Processes of this machine. Each is kept, with its loaded modules, for the next job.

    Args:
        workers: maximum number of processes; a new one starts only if there is memory for its job.
        threads: threads of PyTorch in each process.
        gpus: GPUs for the processes, as ``CUDA_VISIBLE_DEVICES`` names them; if empty, jobs choose a device.
    """

    def __init__(self, workers: int, *, threads: int = 1, gpus: Sequence[str] = ()) -> None:
        super().__init__(workers)
        self.threads, self.gpus = threads, gpus
        self.free: list[_Worker] = []
        self.at_work: dict[Future[Any], tuple[Job, _Worker]] = {}
        self.memory = Memory()

    def close(self) -> None:
        """End all processes, those at work at once."""
        super().close()
        for worker in self.free:
            worker.executor.shutdown()

    def _has_room(self, job: Job) -> bool:
        process = self.free[0].pid if self.free else None
        others = [(job.kind, worker.pid) for job, worker in self.at_work.values()]
        return self.memory.has_room(job.kind, process, others)

    def _start(self, job: Job) -> Future[Any]:
        while True:
            worker = self.free.pop(0) if self.free else _Worker(self.threads, self._next_gpu())
            try:
                future = worker.submit(job)
            except BrokenProcessPool:  # it was killed while it had no work
                log.warning("a process that had no work has died; another one takes its place")
                worker.executor.shutdown(wait=False)
            else:
                self.at_work[future] = job, worker
                return future

    def _finish(self, job: Job, future: Future[Any]) -> Outcome | None:
        _, worker = self.at_work.pop(future)
        error = future.exception()
        if not isinstance(error, BrokenProcessPool):
            if error is None:
                self.memory.ended(job.kind, worker.pid)
            self.free.append(worker)
            return Outcome(job, None if error else future.result(), error)
        worker.executor.shutdown()
        if worker.process is not None and worker.process.exitcode == _IMPORTING:
            guard = 'put its code under the line if __name__ == "__main__":'
            raise FlairNasError(f"this script starts processes, and each of them imports it; {guard}")
        return None

    def _kill(self, handle: tuple[Job, _Worker]) -> None:
        _, worker = handle
        if worker.process is not None:
            worker.process.kill()
        worker.executor.shutdown(wait=True, cancel_futures=True)

    def _next_gpu(self) -> str | None:
        """Return the GPU with the fewest processes, or None if the pool has no GPUs."""
        used = [worker.gpu for worker in [*self.free, *(worker for _, worker in self.at_work.values())]]
        return min(self.gpus, key=used.count, default=None)


class _Worker:
    """An executor of one process."""

    def __init__(self, threads: int, gpu: str | None) -> None:
        self.gpu = gpu
        visible = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        self.environment = {"OMP_NUM_THREADS": str(threads), **visible}  # read when torch is loaded
        context = multiprocessing.get_context("spawn")
        self.executor = ProcessPoolExecutor(1, mp_context=context, initializer=_begin, initargs=(threads,))
        self.process: multiprocessing.process.BaseProcess | None = None

    @property
    def pid(self) -> int:
        """Number of the process; 0 before it starts."""
        return (self.process.pid if self.process else None) or 0

    def submit(self, job: Job) -> Future[Any]:
        """Begin a job; the first one starts the process.

        Raises:
            BrokenProcessPool: the process has died since its last job.
        """
        forget_peak(self.pid)
        with _environment(self.environment), block_interrupt():  # Ctrl-C is for this process
            future = self.executor.submit(job.work, *job.arguments)
        self.process = next(iter((self.executor._processes or {}).values()), self.process)
        return future


@contextlib.contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    """Change the environment while a process starts."""
    before = {name: os.environ[name] for name in changes if name in os.environ}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name in changes:
            del os.environ[name]
        os.environ.update(before)


# --- in a process ---


def not_while_imported() -> None:
    """End this process if it is a worker that still imports its parent's script: it would repeat that script's work.

    Functions that make a pool call this first, and the pool reports the error.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing itself asks
        os._exit(_IMPORTING)


def _begin(threads: int) -> None:
    """Prepare a process for its jobs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits for this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tqdm.set_lock(threading.RLock())  # not its semaphore: Python misses one after a kill
    logging.disable(logging.WARNING)  # the main process has logged the rest
    import torch

    torch.set_num_threads(threads)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)
