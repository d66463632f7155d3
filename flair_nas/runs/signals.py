"""Handlers of Ctrl-C (SIGINT) and SIGTERM, installed for the length of a block and in the main thread alone."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

_WORDS = {signal.SIGINT: "stopped", signal.SIGTERM: "terminated"}

Handler = Callable[[int, object], None]


def exit_on_signal() -> contextlib.AbstractContextManager[None]:
    """Let a signal end the process with one line and exit code 130 while the block runs.

    Use it for imports. Libraries turn a KeyboardInterrupt during their import into errors of their own.
    """
    return _handled(_exit)


def interrupt_on_signal() -> contextlib.AbstractContextManager[None]:
    """Let a signal raise KeyboardInterrupt while the block runs. A second one ends the process."""
    return _handled(_interrupt)


def ignore_signals() -> None:
    """Ignore both signals from now on."""
    _install(signal.SIG_IGN)


@contextlib.contextmanager
def block_interrupt() -> Iterator[None]:
    """Block SIGINT in this thread while the block runs. Processes that start in the block never get it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _handled(handler: Handler) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in _WORDS}
    _install(handler)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, old in before.items():
                signal.signal(number, old)


def _install(handler: Handler | signal.Handlers) -> None:
    """Install a handler of both signals. A signal that the process ignored from its start stays ignored."""
    if threading.current_thread() is threading.main_thread():  # Python allows it nowhere else
        for number in _WORDS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                signal.signal(number, handler)


def _exit(number: int, frame: object) -> None:
    os.write(2, f"flair-nas: {_WORDS[signal.Signals(number)]}\n".encode())
    os._exit(130)


def _interrupt(number: int, frame: object) -> None:
    _install(_exit)
    raise KeyboardInterrupt("terminated" if number == signal.SIGTERM else "")
