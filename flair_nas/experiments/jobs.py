"""Jobs, their outcomes, and the pools that run them."""

from __future__ import annotations

import concurrent.futures
import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

TRIES = 2
"""Number of attempts at a job, if its process dies."""

log = logging.getLogger("flair_nas")


class Job(NamedTuple):
    """Work for one process: a function of a module, whose arguments and result are pickled."""

    name: str
    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    data: str = ""  # short name of the data

    @property
    def kind(self) -> tuple[Callable[..., Any], str]:
        """Function and data: jobs that agree in both need about as much memory."""
        return self.work, self.data


class Outcome(NamedTuple):
    """The end of a job: the result of its function, or the exception that it raised."""

    job: Job
    result: Any
    error: BaseException | None


def run_here(jobs: Sequence[Job]) -> Iterator[Outcome]:
    """Run jobs in this process, which has already loaded what they need."""
    for job in jobs:
        try:
            yield Outcome(job, job.work(*job.arguments), None)
        except Exception as error:
            yield Outcome(job, None, error)


class ProcessDiedError(Exception):
    """Error of a job whose process was killed or ran out of memory at each try."""


class Pool(AbstractContextManager["Pool"]):
    """Processes that run at most `workers` jobs at a time: `LocalPool` on this machine, `RayPool` on a cluster."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.at_work: dict[Future[Any], Any] = {}  # handle of each job at work

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, jobs: Iterable[Job | None]) -> Generator[Outcome, None, None]:
        """Run jobs in their order, and yield their outcomes as they end.

        Whenever a process is free, the next job is taken. None means that there is no job now, though the end of
        another may bring one. If the generator is closed early, it ends the jobs at work.
        """
        source, again, running = iter(jobs), deque[tuple[Job, int]](), dict[Future[Any], tuple[Job, int]]()
        try:
            while True:
                while len(running) < self.workers:
                    if not again and (job := next(source, None)) is not None:
                        again.append((job, 1))
                    if not again or running and not self._has_room(again[0][0]):
                        break
                    job, attempt = again.popleft()
                    running[self._start(job)] = job, attempt
                if not running:
                    return
                # a job that waits for memory looks for it again each second
                patience = 1.0 if again and len(running) < self.workers else None
                for future in concurrent.futures.wait(running, patience, concurrent.futures.FIRST_COMPLETED).done:
                    job, attempt = running.pop(future)
                    outcome = self._finish(job, future)
                    if outcome is None and attempt < TRIES:
                        log.warning("%s: its process has died; it begins again from its last checkpoint", job.name)
                        again.appendleft((job, attempt + 1))
                        continue
                    died = ProcessDiedError(f"its process has died {TRIES} times; is there memory enough?")
                    yield outcome or Outcome(job, None, died)
        finally:
            self._end(running)

    def _has_room(self, job: Job) -> bool:
        """Return True if there is memory for one more job."""
        return True

    @abstractmethod
    def _start(self, job: Job) -> Future[Any]:
        """Begin a job."""

    @abstractmethod
    def _finish(self, job: Job, future: Future[Any]) -> Outcome | None:
        """Return the outcome of a job that has ended, or None if its process has died."""

    def _end(self, futures: Iterable[Future[Any]]) -> None:
        """End those of some jobs that are at work."""
        for future in list(futures):
            if future in self.at_work:
                self._kill(self.at_work.pop(future))

    @abstractmethod
    def _kill(self, handle: Any) -> None:
        """End a job that is at work."""

    def close(self) -> None:
        """End all processes, those at work at once."""
        self._end(self.at_work)
