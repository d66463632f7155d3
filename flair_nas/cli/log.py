"""Messages of a command, in plain lines on standard error, and tables and sizes in its results."""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any


def shows_progress(arguments: argparse.Namespace) -> bool:
    """Return True if progress bars are wanted and standard error is a terminal."""
    return not arguments.quiet and sys.stderr.isatty()


def quiet_libraries(arguments: argparse.Namespace) -> None:
    """Send the log of flair-nas to standard error, and silence warnings unless ``--verbose`` is given."""
    if not arguments.verbose:
        warnings.simplefilter("ignore")
    _send_to_stderr("flair_nas", logging.ERROR if arguments.quiet else logging.INFO)


def quiet_flair(arguments: argparse.Namespace) -> None:
    """Quiet libraries, and send Flair's log to standard error: only warnings and errors without ``--verbose``."""
    quiet_libraries(arguments)
    import flair_nas.tagging.quiet  # noqa: F401  # Flair sets up its log when it is imported

    level = logging.INFO if arguments.verbose else logging.ERROR if arguments.quiet else logging.WARNING
    _send_to_stderr("flair", level)


def _send_to_stderr(name: str, level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.getLogger(name)
    log.handlers, log.propagate = [handler], False
    log.setLevel(level)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of text in columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())


def format_size(figures: Mapping[str, Any], kind: str = "parameters") -> str:
    """Return the number of parameters and the peak memory of a training in words."""
    rnn = f"{figures['rnn_parameters']:,} of them in the recurrent layer"
    return f"{figures['parameters']:,} {kind}, {rnn}; peak memory {figures['peak_memory_mb']:,.0f} MB"
