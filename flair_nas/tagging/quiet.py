"""Keeping what Flair prints out of what the command prints."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from unittest import mock

import flair
from flair.file_utils import Tqdm


@contextlib.contextmanager
def no_flair_bars() -> Iterator[None]:
    """Within the block, what Flair would draw a bar for is iterated over silently."""
    with mock.patch.object(Tqdm, "tqdm", lambda iterable=None, *_, **__: iterable):
        yield


def log_to_stderr(level: int) -> None:
    """Sends the log of Flair, which goes to standard output, and of flair-nas to standard error.

    Args:
        level: what is less urgent is dropped.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for logger in (flair.logger, logging.getLogger("flair_nas")):
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
