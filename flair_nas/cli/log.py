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
