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


OF_ALL_WORDS = ("[b'", "vocabulary size of ", "SequenceTagger predicts: ")
"""How remarks begin that list a whole vocabulary, or all tags."""


@contextlib.contextmanager
def no_flair_remarks(*beginnings: str) -> Iterator[None]:
    """Within the block, Flair logs nothing that begins so."""

    def wanted(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(beginnings)

    flair.logger.addFilter(wanted)
    try:
        yield
    finally:
        flair.logger.removeFilter(wanted)


@contextlib.contextmanager
def flair_says(level: int) -> Iterator[None]:
    """Within the block, Flair logs nothing below a level."""
    before = flair.logger.level
    flair.logger.setLevel(max(before, level))
    try:
        yield
    finally:
        flair.logger.setLevel(before)


def log_to_stderr(*, flair: int, own: int) -> None:
    """Sends the log of Flair, which goes to standard output, and of flair-nas to standard error.

    Args:
        flair: the level below which Flair's remarks are dropped.
        own: the same for flair-nas.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for logger, level in ((logging.getLogger("flair"), flair), (logging.getLogger("flair_nas"), own)):
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
