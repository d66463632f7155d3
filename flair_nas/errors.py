"""The error that a user can act on, and what its messages are made of."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


class FlairNasError(ValueError):
    """Something that the user gave cannot be used; the message says what, where, and what to do."""


def did_you_mean(text: str, names: Iterable[str] | Mapping[str, str], count: int = 3) -> str:
    """A question that offers the names closest to a text, best first, and ends in a blank; empty when none is close.

    Args:
        text: what was written.
        names: what is known; a mapping says under which form a name is offered.
        count: how many are offered at most.
    """
    spelling = {name.lower(): names[name] if isinstance(names, Mapping) else name for name in names}
    close = [spelling[name] for name in difflib.get_close_matches(text.lower(), spelling, n=count, cutoff=0.6)]
    return f"did you mean {' or '.join(close)}? " if close else ""


def shown(error: BaseException) -> str:
    """Another library's error on one short line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
