"""Jobs, their outcomes, and the interface of what runs them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol


class Job(NamedTuple):
    """Work for one process.

    Args:
        name: for messages.
        work: a function of a module; what it is given and what it returns is pickled.
        arguments: what it is given.
        data: what it works on, in a few words; jobs of one work on the same data take about as much memory.
    """

    name: str
    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    data: str = ""

    @property
    def kind(self) -> tuple[Callable[..., Any], str]:
        """What is alike in jobs that take about as much memory."""
        return self.work, self.data


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


def always(_: Job) -> bool:
    """A job may begin."""
    return True


class Died(Exception):
    """A process ended without a word, killed or out of memory, as often as it was tried."""


class Pool(Protocol):
    """Processes that do jobs: `LocalPool` on this machine, `RayPool` on a cluster."""

    workers: int

    def __enter__(self) -> Pool:
        """Return the pool."""

    def __exit__(self, *_: object) -> None:
        """End all processes, those at work at once."""

    def run(self, jobs: Sequence[Job], may_begin: Callable[[Job], bool] = always) -> Generator[Outcome, None, None]:
        """Run jobs in their order as far as processes are free, and yield the outcome of each.

        Closed before the last one, it ends those of its jobs that are at work.

        Args:
            jobs: the jobs.
            may_begin: asked before each; from the first that may not, none is begun.
        """
