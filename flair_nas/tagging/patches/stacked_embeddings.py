"""The order in which a stack of embeddings is read, which saving a tagger must not change."""

from __future__ import annotations

import re
import warnings
from collections import Counter

from flair.embeddings import (
    FastTextEmbeddings,
    HashEmbeddings,
    OneHotEmbeddings,
    PooledFlairEmbeddings,
    StackedEmbeddings,
    TokenEmbeddings,
)

from flair_nas.errors import FlairNasError

_NAMELESS = (OneHotEmbeddings, PooledFlairEmbeddings, HashEmbeddings)
"""Embeddings whose names Flair 0.15 does not save."""


def keep_order(embeddings: TokenEmbeddings, *, refuse: bool = True) -> None:
    """Gives the members of a stack the names that they will have when they are loaded again.

    Flair joins the vectors of a word in the order of their names. A stack puts numbers before these,
    ``0-one-hot-text``; of some members it loses the numbers when it saves them, so that a loaded tagger would read its
    input in another order, and find nothing. Without the numbers, order is the same before and after.

    Args:
        embeddings: of a tagger that has not learned yet; what is no stack is left alone.
        refuse: refuse what cannot be mended; else warn of it, as Flair's own taggers were let have it before.

    Raises:
        FlairNasError: two members would have one name when they are loaded, and one of them would be lost.
    """
    if not isinstance(embeddings, StackedEmbeddings):
        return
    for member in embeddings.embeddings:
        if isinstance(member, _NAMELESS):
            member.name = re.sub(r"^\d+-", "", member.name)
        elif isinstance(member, FastTextEmbeddings):
            member.name = "/fasttext"  # first, as that of a temporary file is where it is loaded without flair-nas
    for name, count in Counter(member.name for member in embeddings.embeddings).items():
        if count > 1:
            fault = (
                f"{count} embeddings of the stack would be called {name!r} once they are saved and loaded, and all but "
                "one of them lost, as Flair saves no names of these: leave out all but one"
            )
            if refuse:
                raise FlairNasError(fault)
            warnings.warn(fault, stacklevel=3)
