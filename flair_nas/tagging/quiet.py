"""Keeping Flair's own progress bars out of those of the command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from flair.file_utils import Tqdm


@contextlib.contextmanager
def no_flair_bars() -> Iterator[None]:
    """Within the block, what Flair would draw a bar for is iterated over silently."""
    with mock.patch.object(Tqdm, "tqdm", lambda iterable=None, *_, **__: iterable):
        yield
