"""Changes to Flair's classes that are made once, however often they are asked for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

_DONE = "_flair_nas_registered"


def once(name: str) -> Callable[[Callable[[Any], None]], Callable[[ModuleType], None]]:
    """Makes a function that changes a class one that changes the class of a module; a second call does nothing.

    Args:
        name: of the class.
    """

    def decorated(change: Callable[[Any], None]) -> Callable[[ModuleType], None]:
        @functools.wraps(change)
        def register(module: ModuleType) -> None:
            owner = getattr(module, name)
            if not getattr(owner, _DONE, False):
                change(owner)
                setattr(owner, _DONE, True)

        return register

    return decorated
