"""Flair's output and device within a block."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from unittest import mock

import flair
import torch
from flair.file_utils import Tqdm

from flair_nas.runs.device import choose_device

OF_ALL_WORDS = ("[b'", "vocabulary size of ", "SequenceTagger predicts: ")
"""Beginnings of Flair's log messages that list a whole vocabulary or all tags."""


@contextlib.contextmanager
def flair_device(name: str | None) -> Iterator[torch.device]:
    """Let Flair compute on a device, cpu, cuda or cuda:N, within the block. None keeps Flair's choice."""
    with mock.patch.object(flair, "device", flair.device if name is None else choose_device(name)):
        yield flair.device


@contextlib.contextmanager
def no_flair_bars() -> Iterator[None]:
    """Switch Flair's progress bars off within the block."""
    with mock.patch.object(Tqdm, "tqdm", lambda iterable=None, *_, **__: iterable):
        yield


@contextlib.contextmanager
def no_flair_remarks(*beginnings: str, below: int = logging.NOTSET) -> Iterator[None]:
    """Drop Flair's log messages with these beginnings, or below a level, within the block."""

    def is_wanted(record: logging.LogRecord) -> bool:
        return record.levelno >= below and not record.getMessage().startswith(beginnings)

    flair.logger.addFilter(is_wanted)
    try:
        yield
    finally:
        flair.logger.removeFilter(is_wanted)
