"""Native kernels as if there were some, or none, for tests of what is chosen and told."""

from __future__ import annotations

import ctypes

import pytest

from flair_nas.nn.kernels.native import build

WHY = "no C++ compiler found (g++ or clang++); install one"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLAIR_NAS_KERNELS", raising=False)


def there_are(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    """Whether there are native kernels here."""
    place = {"compiler": "/usr/bin/g++ (g++ 12)", "place": "/cache/kernels/key.so"}
    found = build.Built(ctypes.CDLL(None), **place) if native else build.Built(None, reason=WHY)
    monkeypatch.setattr(build, "built", lambda: found)
    monkeypatch.setattr(build, "library", lambda: found.library)


def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for native kernels fails."""

    def fail() -> None:
        raise AssertionError("asked for native kernels")

    monkeypatch.setattr(build, "built", fail)
    monkeypatch.setattr(build, "library", fail)
