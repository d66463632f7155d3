"""Fixtures of the tests of searches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give each module a cache of token ids of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAIR_NAS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
