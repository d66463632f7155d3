"""The error that a user can act on, and what its messages are made of."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable, Mapping, Sequence


class FlairNasError(ValueError):
    """Something that the user gave cannot be used; the message says what, where, and what to do.

    Args:
        message: as `printable` makes it.
    """

    __module__ = "flair_nas"

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(str(message)))


class NotFiniteError(FlairNasError):
    """A loss or gradient that is not finite."""


def printable(message: str, limit: int = 2000) -> str:
    """A message that fits a screen, and that every file can hold: what users gave, and names of files, may be anything.

    Args:
        message: halves of characters in it, as a file's name may have, are written as Python writes them.
        limit: of its length in characters; the middle of a longer one is left out.
    """
    text = message.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= limit else f"{text[: limit - 600]} ... {text[-500:]}"


def did_you_mean(text: str, names: Iterable[str] | Mapping[str, str], count: int = 3) -> str:
    """A question that offers the names closest to a text, best first, and ends in a blank; empty when none is close.

    Initials stand for their name: ``lr`` for ``learning_rate``.

    Args:
        text: what was written.
        names: what is known; a mapping says under which form a name is offered.
        count: how many are offered at most.
    """
    spelling = {name.lower(): names[name] if isinstance(names, Mapping) else name for name in names}
    short = text.lower().strip("-")
    if meant := [spelling[name] for name in spelling if len(short) > 1 and short == _initials(name)]:  # lr is no slip
        return f"did you mean {' or '.join(meant[:count])}? "
    found = difflib.get_close_matches(text.lower(), spelling, n=count, cutoff=0.6)
    likeness = [difflib.SequenceMatcher(None, name, text.lower()).ratio() for name in found]
    close = [spelling[name] for name, like in zip(found, likeness) if like > max(likeness) - 0.15]
    return f"did you mean {' or '.join(close)}? " if close else ""


def _initials(name: str) -> str:
    return "".join(word[:1] for word in name.replace("_", "-").split("-"))


def listed(texts: Sequence[str], most: int = 20) -> str:
    """The first of these texts, joined by commas; dots stand for the others."""
    return ", ".join(texts[:most]) + ", ..." * (len(texts) > most)


def shown(error: BaseException) -> str:
    """Another library's error on one short line; dots stand for its end, if it is long."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 200 else text[:197] + "..."


def brief(value: object, limit: int = 120) -> str:
    """The repr of a value on one short line, however large or deep the value is; the middle may be left out."""
    shorter = reprlib.Repr()
    shorter.maxlevel, shorter.maxstring, shorter.maxother = 4, limit, limit
    shorter.maxlist = shorter.maxtuple = shorter.maxdict = 12
    try:
        text = shorter.repr(value)
    except ValueError:  # Python writes no integer of some thousand digits
        text = f"a large {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 3] + "..."
