"""Names of stacked embeddings, in whose order Flair joins the vectors of a token."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from flair.embeddings.base import TokenEmbeddings
from flair.embeddings.token import FastTextEmbeddings, HashEmbeddings, OneHotEmbeddings, PooledFlairEmbeddings

from flair_nas.errors import FlairNasError
from flair_nas.tagging.config import FAST_TEXT

_NAMELESS = (OneHotEmbeddings, PooledFlairEmbeddings, HashEmbeddings)
"""Embeddings whose names Flair 0.15 does not save."""


def name_in_order(members: Sequence[TokenEmbeddings]) -> None:
    """Prefix the names of a stack's members with numbers, unless Flair would lose the number when it saves them.

    A loaded stack then joins its vectors in the same order as before. The model must not have learned yet.

    Raises:
        FlairNasError: two members would have one name after loading, and one of them would be lost.
    """
    for number, member in enumerate(members):
        name = re.sub(r"^\d+-", "", member.name)
        if isinstance(member, FastTextEmbeddings):
            member.name = FAST_TEXT
        else:
            member.name = name if isinstance(member, _NAMELESS) else f"{number}-{name}"
    for name, count in Counter(member.name for member in members).items():
        if count > 1:
            raise FlairNasError(
                f"{count} embeddings of the stack would be called {name!r} after saving and loading, and all but one "
                "of them lost, as Flair saves no names of these; leave out all but one"
            )
