"""What Ctrl-C and SIGTERM do to the command: it ends in good order, or at once if there is nothing to put in order."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

_WORDS = {signal.SIGINT: "stopped", signal.SIGTERM: "terminated"}


def is_command() -> bool:
    """Whether this process is the command, and not a program of somebody's own that uses the package."""
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    return name == "flair-nas" or name == "-m" and "flair_nas" in sys.orig_argv


def stop_at_once() -> None:
    """From now on a signal ends the process with a line; one that the process was told to ignore is ignored."""
    _handle(_end)


def stopped_at_once() -> contextlib.AbstractContextManager[None]:
    """As `stop_at_once`, within the block; for imports, as libraries turn an interrupt of theirs into anything."""
    return _handled(_end)


def stopped_in_order() -> contextlib.AbstractContextManager[None]:
    """Within the block a signal raises a KeyboardInterrupt; while that is dealt with, a second one ends the process."""
    return _handled(_interrupt)


def ignore() -> None:
    """From now on signals do nothing."""
    _handle(signal.SIG_IGN)


@contextlib.contextmanager
def _handled(handler: Callable[[int, object], None]) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in _WORDS}
    _handle(handler)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, old in before.items():
                signal.signal(number, old)


def _handle(handler: Callable[[int, object], None] | signal.Handlers) -> None:
    if threading.current_thread() is threading.main_thread():  # no other may
        for number in _WORDS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                signal.signal(number, handler)


def _end(number: int, frame: object) -> None:
    os.write(2, f"flair-nas: {_WORDS[signal.Signals(number)]}\n".encode())
    os._exit(130)


def _interrupt(number: int, frame: object) -> None:
    _handle(_end)
    raise KeyboardInterrupt(_WORDS[signal.SIGTERM] if number == signal.SIGTERM else "")
