"""The error for the user, and the parts of its messages."""

from __future__ import annotations

import difflib
import math
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence


class FlairNasError(ValueError):
    """The error for input that cannot be used. Its message says what is wrong, where, and what to do.

    Args:
        message: the message, which `printable` shortens.

    Example:
        >>> from flair_nas import FlairNasError, TaggerConfig
        >>> try:
        ...     TaggerConfig(hidden_size=0)
        ... except FlairNasError as error:
        ...     print(error)
        settings that cannot be used: hidden_size must be a whole number from 1 to 1,000,000, got 0
    """

    __module__ = "flair_nas"

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(str(message)))


class NotFiniteError(FlairNasError):
    """A loss or gradient that is not finite."""


def name_largest_gradient(norms: Mapping[str, float]) -> str:
    """Return a clause on the largest gradient, by the norms of all. Not a number is larger than all numbers."""
    name = max(norms, key=lambda name: (math.isnan(norms[name]), norms[name]))
    return f"the largest gradient is that of {name}, its norm is {norms[name]:g}"


def printable(message: str) -> str:
    """Return a message that every file and terminal can hold, without the middle of more than 2,000 characters."""
    text = message.encode("utf-8", "backslashreplace").decode()  # escapes halves of characters
    return text if len(text) <= 2000 else f"{text[:1400]} ... {text[-500:]}"


def did_you_mean(text: str, names: Iterable[str] | Mapping[str, str], count: int = 3) -> str:
    """Return a 'did you mean' question that ends in a blank, or an empty string if no name is close.

    Initials stand for their name: ``lr`` for ``learning_rate``. A mapping gives the form in which a name is offered.
    """
    spelling = {name.lower(): names[name] if isinstance(names, Mapping) else name for name in names}
    short = text.lower().strip("-")
    initials = {name: "".join(word[:1] for word in name.replace("_", "-").split("-")) for name in spelling}
    if abbreviated := [spelling[name] for name in spelling if len(short) > 1 and short == initials[name]]:
        return f"did you mean {' or '.join(abbreviated[:count])}? "
    matches = difflib.get_close_matches(text.lower(), spelling, n=count, cutoff=0.6)
    ratios = [difflib.SequenceMatcher(None, name, text.lower()).ratio() for name in matches]
    close = [spelling[name] for name, ratio in zip(matches, ratios) if ratio > max(ratios) - 0.15]
    return f"did you mean {' or '.join(close)}? " if close else ""


def as_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, HTML and cells of tables included."""
    return re.sub(r"[\\`<>|*]|&(?=#?\w+;)", r"\\\g<0>", text)


def listed(texts: Sequence[str], most: int = 20) -> str:
    """Join the first texts by commas; dots stand for the others."""
    return ", ".join(texts[:most]) + ", ..." * (len(texts) > most)


def shown(error: BaseException) -> str:
    """Return another library's error on one line of at most 200 characters."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 200 else text[:197] + "..."


def brief(value: object, limit: int = 120) -> str:
    """Return the repr of a value on one short line, however large or deep the value is."""
    shorter = reprlib.Repr()
    shorter.maxlevel, shorter.maxstring, shorter.maxother = 4, limit, limit
    shorter.maxlist = shorter.maxtuple = shorter.maxdict = 12
    try:
        text = shorter.repr(value)
    except ValueError:  # an integer of some thousand digits
        text = f"a large {type(value).__name__}"
    return text if len(text) <= limit else text[: limit - 3] + "..."
