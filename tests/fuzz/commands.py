"""The command, run in this process with streams as a terminal has them."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Iterator
from typing import NamedTuple

from fuzzing import bounded

from flair_nas.cli import main


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    errors: str
    usage: bool  # argparse ended it, which repeats an argument however long it is


@contextlib.contextmanager
def logs_as_before() -> Iterator[None]:
    """A command sends logs to standard error for the rest of its process, here to a stream that is gone."""
    logs = [logging.getLogger(name) for name in ("flair_nas", "flair")]
    before = [([*log.handlers], log.propagate, log.level) for log in logs]
    try:
        yield
    finally:
        for log, (handlers, propagate, level) in zip(logs, before):
            log.handlers, log.propagate = handlers, propagate
            log.setLevel(level)


def run(words: list[str], given: bytes = b"") -> Ended:
    """Runs a command with a standard input; any other exception than argparse's comes out."""
    out, errors, before = io.BytesIO(), io.BytesIO(), sys.stdin
    usage = False
    sys.stdin = io.TextIOWrapper(io.BytesIO(given), encoding="utf-8")
    with (
        logs_as_before(),
        io.TextIOWrapper(out, encoding="utf-8", write_through=True) as to_out,
        io.TextIOWrapper(errors, encoding="utf-8", errors="backslashreplace", write_through=True) as to_errors,
    ):
        try:
            with bounded(), contextlib.redirect_stdout(to_out), contextlib.redirect_stderr(to_errors):
                code = main(words)
        except SystemExit as exit:
            assert exit.code in (0, 2)
            code, usage = int(exit.code), True
        finally:
            sys.stdin = before
        if code == 130:  # a Ctrl-C, which was meant for the suite
            raise KeyboardInterrupt
        return Ended(code, out.getvalue().decode(), errors.getvalue().decode(), usage)
