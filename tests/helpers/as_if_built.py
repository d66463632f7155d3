"""Stand-ins for native kernels, or for their absence, in tests of choices and messages."""

from __future__ import annotations

import ctypes

import pytest

from flair_nas.nn.kernels.native import build

WHY = "no C++ compiler found (g++ or clang++); install one"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLAIR_NAS_KERNELS", raising=False)


def there_are(monkeypatch: pytest.MonkeyPatch, native: bool) -> None:
    """Pretend that there are native kernels, or none."""
    place = {"compiler": "/usr/bin/g++ (g++ 12)", "place": "/cache/kernels/key.so"}
    found = build.Built(ctypes.CDLL(None), **place) if native else build.Built(None, reason=WHY)
    monkeypatch.setattr(build, "built", lambda: found)
    monkeypatch.setattr(build, "library", lambda: found.library)


def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each request for native kernels fail."""

    def fail() -> None:
        raise AssertionError("asked for native kernels")

    monkeypatch.setattr(build, "built", fail)
    monkeypatch.setattr(build, "library", fail)
