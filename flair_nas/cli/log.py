"""Messages of a command: one plain line each, on standard error."""

from __future__ import annotations

import argparse
import logging
import sys
import warnings


def shows_progress(arguments: argparse.Namespace) -> bool:
    """Return True if progress bars are wanted and standard error is a terminal."""
    return not arguments.quiet and sys.stderr.isatty()


def quiet_libraries(arguments: argparse.Namespace) -> None:
    """Send the log of flair-nas to standard error, and silence warnings unless ``--verbose`` is given.

    Args:
        arguments: with `quiet` and `verbose`.
    """
    if not arguments.verbose:
        warnings.simplefilter("ignore")
    log = logging.getLogger("flair_nas")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.handlers = [handler]
    log.setLevel(logging.ERROR if arguments.quiet else logging.INFO)
    log.propagate = False


def quiet_flair(arguments: argparse.Namespace) -> None:
    """Do the same, and send Flair's log to standard error: warnings and errors unless ``--verbose`` is given.

    Args:
        arguments: with `quiet` and `verbose`.
    """
    quiet_libraries(arguments)
    from flair_nas.tagging.quiet import log_flair_to_stderr

    log_flair_to_stderr(logging.INFO if arguments.verbose else logging.ERROR if arguments.quiet else logging.WARNING)
