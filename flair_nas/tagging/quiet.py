"""Flair's output and device, for a block or for a whole command."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from unittest import mock

import flair
import torch
from flair.file_utils import Tqdm

from flair_nas.runs.device import autocast, choose_device

OF_ALL_WORDS = ("[b'", "vocabulary size of ", "SequenceTagger predicts: ")
"""Beginnings of Flair's log messages that list a whole vocabulary or all tags."""


def set_flair_device(name: str | None) -> None:
    """Let Flair compute on a device, for a whole command.

    Args:
        name: cpu, cuda or cuda:N; None keeps Flair's choice.

    Raises:
        FlairNasError: there is no such device here.
    """
    if name is not None:
        flair.device = choose_device(name)


def flair_autocast(precision: str) -> torch.autocast:
    """Return the context of a precision on Flair's device: float32, or bfloat16 by autocast.

    Raises:
        FlairNasError: PyTorch cannot run it on this device.
    """
    return autocast(precision, flair.device)


@contextlib.contextmanager
def flair_device(name: str | None) -> Iterator[None]:
    """Let Flair compute on a device within the block; `set_flair_device` explains the names."""
    with mock.patch.object(flair, "device", flair.device):
        set_flair_device(name)
        yield


@contextlib.contextmanager
def no_flair_bars() -> Iterator[None]:
    """Switch Flair's progress bars off within the block."""
    with mock.patch.object(Tqdm, "tqdm", lambda iterable=None, *_, **__: iterable):
        yield


@contextlib.contextmanager
def no_flair_remarks(*beginnings: str) -> Iterator[None]:
    """Drop Flair's log messages with these beginnings within the block."""

    def is_wanted(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(beginnings)

    flair.logger.addFilter(is_wanted)
    try:
        yield
    finally:
        flair.logger.removeFilter(is_wanted)


@contextlib.contextmanager
def flair_says(level: int) -> Iterator[None]:
    """Drop Flair's log messages below a level within the block."""
    before = flair.logger.level
    flair.logger.setLevel(max(before, level))
    try:
        yield
    finally:
        flair.logger.setLevel(before)
