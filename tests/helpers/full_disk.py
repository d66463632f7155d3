"""Let writes fail as on a full disk."""

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let every file of this process and of its children end at ``size`` bytes.

    Nothing is compiled to disk meanwhile. Python would keep a compiled module of which only a part was written,
    and every later import of that module would fail.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with mock.patch.object(sys, "dont_write_bytecode", True), mock.patch.dict(os.environ, PYTHONDONTWRITEBYTECODE="1"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
