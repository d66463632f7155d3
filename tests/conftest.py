"""What all tests share: one thread, so that figures are the same in every process, and logs as they were before."""

from __future__ import annotations

import logging
import multiprocessing.forkserver
import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; sums depend on the number of threads


@pytest.fixture(autouse=True)
def logs_are_heard() -> None:
    """A command sends the log of the package to standard error for the rest of its process, also in a wider fixture."""
    log = logging.getLogger("flair_nas")
    log.handlers, log.propagate = [], True
    log.setLevel(logging.NOTSET)


@pytest.fixture(scope="module", autouse=True)
def no_server_stays() -> Iterator[None]:
    """A server of processes keeps what it has imported, which the next module's processes may have to be without."""
    yield
    multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]  # there is no public way
