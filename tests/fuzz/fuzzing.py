"""What fuzz tests share: how often each of them runs, what is counted, and what a call on fuzzed input promises."""

from __future__ import annotations

import contextlib
import functools
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psutil
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import UnsatisfiedAssumption

from flair_nas.errors import FlairNasError

TRIES: Counter[str] = Counter()
"""How many examples have been run, by kind; those that hypothesis threw away are not counted."""

LONGER = 5  # so many times the examples of the short form are a round of the long one
LONG = "fuzz"  # the profile of the long form, whose examples follow the seed

SECONDS = 5.0  # of CPU time, for one call: far more than any needs, far less than what is not linear takes
WAIT = 20.0  # seconds by the clock, after which a call is taken to hang
MEMORY = 1 << 30  # bytes that a call may ask for
LONGEST = 2000  # characters of a message

settings.register_profile(
    LONG,
    deadline=None,  # CPU time is looked at instead, which other work on the machine does not change
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)


def fuzzed(kind: str, tries: int, *, shrink: bool = True, **strategies: Any) -> Callable[[Any], Any]:
    """Makes a test of a function, which hypothesis calls with what strategies give; the other arguments are fixtures.

    The short form has so many tries, always the same ones. They are counted by kind.
    """
    profile = settings.get_profile(LONG)
    phases = [phase for phase in profile.phases if shrink or phase != Phase.shrink]
    if settings.default is profile:
        chosen = settings(profile, max_examples=LONGER * tries, phases=phases)
    else:
        chosen = settings(profile, max_examples=tries, phases=phases, derandomize=True)

    def decorated(test: Callable[..., None]) -> Any:
        @functools.wraps(test)
        def counted(*arguments: Any, **named: Any) -> None:
            try:
                test(*arguments, **named)
            except UnsatisfiedAssumption:
                raise
            except BaseException:
                TRIES[kind] += 1
                raise
            TRIES[kind] += 1

        return chosen(given(**strategies)(counted))

    return decorated


def outcome(call: Callable[[], Any], *allowed: type[Exception]) -> Any:
    """What a call gives, or the error by which it refuses: soon, and in words that can be shown."""
    started = time.process_time()
    try:
        with bounded():
            found = call()
    except (FlairNasError, *allowed) as error:
        check_message(str(error))
        found = error
    spent = time.process_time() - started
    assert spent <= SECONDS, f"it took {spent:.1f} s of CPU time"
    return found


def check_message(text: str) -> None:
    """A message says something, in a few lines that every terminal and file can take."""
    assert text.strip()
    assert len(text) <= LONGEST, f"a message of {len(text):,} characters: {text[:200]}..."
    text.encode("utf-8")


class _Hanging(BaseException):
    """No code takes this for an error that it knows."""


@contextlib.contextmanager
def bounded(seconds: float = WAIT) -> Iterator[None]:
    """Makes a failure of what hangs, and a MemoryError of what would fill the machine."""

    def stop(*_: object) -> None:
        raise _Hanging

    before = signal.signal(signal.SIGALRM, stop)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + MEMORY, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _Hanging:
        raise AssertionError(f"it had not ended after {seconds:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)
