"""What the package itself says while a command runs: one plain line each, on standard error."""

from __future__ import annotations

import argparse
import logging
import sys
import warnings


def quiet_libraries(arguments: argparse.Namespace) -> None:
    """Lets flair-nas speak on standard error, and libraries warn only when asked. Loads neither torch nor Flair.

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
    """As `quiet_libraries`, and sends Flair's log to standard error, too, where it speaks only when asked.

    Args:
        arguments: with `quiet` and `verbose`.
    """
    quiet_libraries(arguments)
    from flair_nas.tagging.quiet import log_to_stderr

    log_to_stderr(
        flair=logging.INFO if arguments.verbose else logging.ERROR if arguments.quiet else logging.WARNING,
        own=logging.ERROR if arguments.quiet else logging.INFO,
    )
