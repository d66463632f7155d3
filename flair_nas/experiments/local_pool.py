"""Jobs in several processes on this machine: one that dies is begun again, and none outlives this process."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from flair_nas.errors import FlairNasError
from flair_nas.experiments.jobs import Died, Job, Outcome, always
from flair_nas.experiments.memory import Memory, forget_peak
from flair_nas.runs.signals import block_interrupt

if TYPE_CHECKING:
    pass

log = logging.getLogger("flair_nas")

_LOOK = 1.0  # seconds from one look at the memory to the next, where a job waits for it
_IMPORTING = 113  # how a process ends that has begun its parent's work anew


class LocalPool:
    """Processes that do jobs. One is kept for the next job, with what its modules have loaded.

    Args:
        workers: how many processes at most; fewer where there is not the memory that a further one will take.
        threads: of PyTorch, in each of them.
        gpus: the GPUs that they are spread over, by their names in ``CUDA_VISIBLE_DEVICES``; none if jobs say it all.
        tries: how often a job is begun whose process dies.
    """

    def __init__(self, workers: int, *, threads: int = 1, gpus: Sequence[str] = (), tries: int = 2) -> None:
        self.workers, self.threads, self.gpus, self.tries = workers, threads, gpus, tries
        self.free: list[_Slot] = []
        self.at_work: dict[_Slot, Job] = {}
        self.memory = Memory()

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends all processes, those at work at once."""
        for slot in self.at_work:
            slot.kill()
        for slot in self.free:
            slot.executor.shutdown()

    def run(self, jobs: Sequence[Job], may_begin: Callable[[Job], bool] = always) -> Generator[Outcome, None, None]:
        """Does all jobs, in their order as far as processes are free, and gives each when it has ended.

        Closed before the last one, it ends those of its jobs that are at work.

        Args:
            jobs: what is to be done.
            may_begin: asked before each; from the first that may not, none is begun.

        Raises:
            FlairNasError: a process cannot begin, as it imports a script that does all of this again.
        """
        left, tried = list(range(len(jobs))), [0] * len(jobs)
        running: dict[Future[Any], tuple[int, _Slot]] = {}  # of this call alone: another one's jobs have other numbers
        try:
            while left or running:
                while left and len(running) < self.workers and (not running or self._has_room(jobs[left[0]])):
                    if not tried[left[0]] and not may_begin(jobs[left[0]]):
                        left.clear()
                        break
                    number = left.pop(0)
                    tried[number] += 1
                    future, slot = self._start(jobs[number])
                    running[future] = number, slot
                if not running:
                    return
                waits = _LOOK if left and len(running) < self.workers else None  # for memory
                ended, _ = concurrent.futures.wait(running, waits, concurrent.futures.FIRST_COMPLETED)
                for future in ended:
                    number, slot = running.pop(future)
                    job = self.at_work.pop(slot)
                    outcome = self._outcome(job, slot, future)
                    if outcome is None and tried[number] < self.tries:
                        log.warning("%s: its process has died; it is begun again from its last checkpoint", job.name)
                        left.insert(0, number)
                        continue
                    times = "once" if self.tries == 1 else f"{self.tries} times"
                    died = Died(f"its process has died {times}; is there memory enough?")
                    yield outcome or Outcome(job, None, died)
        finally:
            for _number, slot in running.values():
                self.at_work.pop(slot, None)
                slot.kill()

    def _has_room(self, job: Job) -> bool:
        process = self.free[0].process if self.free else None
        return self.memory.has_room(job.kind, process, [(at.kind, slot.process) for slot, at in self.at_work.items()])

    def _start(self, job: Job) -> tuple[Future[Any], _Slot]:
        """Gives a job to a process that is free, or to a new one."""
        while True:
            slot = self.free.pop(0) if self.free else _Slot(self.threads, self._next_gpu())
            self.at_work[slot] = job
            try:
                return slot.submit(job), slot
            except BrokenProcessPool:  # it was free, and the system has ended it for want of memory, or somebody has
                log.warning("a process that had no work has died; another one takes its place")
                del self.at_work[slot]
                slot.executor.shutdown(wait=False)

    def _outcome(self, job: Job, slot: _Slot, future: Future[Any]) -> Outcome | None:
        """How a job has ended; None if its process has died, which else is free again."""
        error = future.exception()
        if isinstance(error, BrokenProcessPool):
            slot.executor.shutdown()
            if slot.exit_status == _IMPORTING:
                raise FlairNasError(
                    "this script starts processes, and each of them imports it; put what it does under the line "
                    'if __name__ == "__main__":'
                )
            return None
        if error is None:
            self.memory.ended(job.kind, slot.process)
        self.free.append(slot)
        return Outcome(job, None if error else future.result(), error)

    def _next_gpu(self) -> str | None:
        """The one that the fewest processes have; None if there is none to choose."""
        taken = [slot.gpu for slot in (*self.free, *self.at_work)]
        return min(self.gpus, key=taken.count, default=None)


class _Slot:
    """An executor of one process, so that its death is of no concern to the others."""

    def __init__(self, threads: int, gpu: str | None) -> None:
        self.gpu = gpu
        self.environment = {"OMP_NUM_THREADS": str(threads)}  # read when torch is loaded
        if gpu is not None:
            self.environment["CUDA_VISIBLE_DEVICES"] = gpu
        context = multiprocessing.get_context("spawn")
        self.executor = ProcessPoolExecutor(1, mp_context=context, initializer=_begin, initargs=(threads,))
        self._begun: list[Any] = []

    def submit(self, job: Job) -> Future[Any]:
        """Begins a job, the first one with its process.

        Raises:
            BrokenProcessPool: the process has died since the job before.
        """
        forget_peak(self.process)
        with _environment(self.environment), block_interrupt():  # Ctrl-C is for this process
            future = self.executor.submit(job.work, *job.arguments)
        self._begun = list((self.executor._processes or {}).values())
        return future

    @property
    def exit_status(self) -> int | None:
        """How its process has ended; None if it has not, or there was none."""
        return next((process.exitcode for process in self._begun), None)

    @property
    def process(self) -> int:
        """Its number; 0, which none has, before there is one and after it."""
        return next(iter(list(self.executor._processes or {})), 0)

    def kill(self) -> None:
        for process in list((self.executor._processes or {}).values()):
            process.kill()
        self.executor.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# --- in a process ---


def not_while_imported() -> None:
    """Ends a process of a pool that is still importing the script which has the pool: it would begin all of it again.

    The pool then says so. For functions that make a pool, before anything else.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing itself asks
        os._exit(_IMPORTING)


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
