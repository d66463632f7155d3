"""What all tests share: one thread, so that figures are the same everywhere, compiled kernels, logs as before."""

from __future__ import annotations

import gc
import logging
import multiprocessing.forkserver
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; sums depend on the number of threads
CACHE = Path(__file__).resolve().parents[1] / ".pytest_cache"
os.environ["FLAIR_NAS_KERNELS_CACHE"] = str(CACHE / "kernels")
# one for each processor that a leg of portable.py makes believe: inductor runs what it finds, for whichever compiled
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(CACHE / "inductor" / os.environ.get("ATEN_CPU_CAPABILITY", "own"))
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # tests in the background of a shell; processes inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("suite", deadline=None)  # other work on the machine makes no test fail
settings.load_profile("suite")

LONG = ("test_website.py", "test_readme.py", "test_examples.py", "test_pretend_device.py", "test_figures.py")
"""Files that take minutes; they come first, so that no process is at work long after the others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long files."""
    items.sort(key=lambda item: item.path.name not in LONG)


def pytest_collection_finish() -> None:
    """Keep what is imported from the garbage collector, which would look through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def kernels_are_compiled() -> None:
    """Else the first process that wants them would take long, and say so where a test looks at what it says."""
    from flair_nas.nn.kernels.native import build

    build.library()


@pytest.fixture
def bfloat16() -> None:
    """Asked for by tests that train in bfloat16, which not every processor can."""
    import torch

    from flair_nas.errors import FlairNasError
    from flair_nas.runs.device import check_precision

    try:
        check_precision("bfloat16", torch.device("cpu"))
    except FlairNasError as error:
        pytest.skip(str(error))


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


@pytest.fixture(scope="module", params=["native", "columns", "plain"])
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """What recurrences run on; a module that uses it runs its tests on each engine."""
    from flair_nas.nn.kernels.native import build

    if request.param == "native" and build.built().library is None:
        pytest.skip("no native kernels here")
    with pytest.MonkeyPatch.context() as patch:
        # auto is native where there are such kernels, and columns for cells that these cannot run
        patch.setenv("FLAIR_NAS_KERNELS", "auto" if request.param == "native" else request.param)
        yield request.param
