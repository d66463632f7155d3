"""Fixtures of the tests of searches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from small_search import no_picture

from flair_nas.drawing import charts


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give each module a cache of token ids of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAIR_NAS_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("PYTHONWARNINGS", "ignore:resource_tracker")
        yield


@pytest.fixture
def columns_without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run PyTorch's operators and draw nothing, as both take less time for small models."""
    monkeypatch.setenv("FLAIR_NAS_KERNELS", "columns")
    monkeypatch.setattr(charts, "draw_progress", no_picture)
