"""Valid texts that are cut up and put together otherwise: these get further into a parser than noise does."""

from __future__ import annotations

from typing import Any, TypeVar

from hypothesis import strategies as st

Text = TypeVar("Text", str, bytes)

LIMIT = 100_000  # of the length
ANYTHING = st.text(st.characters(exclude_categories=()))  # halves of surrogate pairs, too
CHANGES = ("insert", "delete", "repeat", "replace", "swap")


def mutate(text: Text, change: str, start: int, length: int, piece: Text, times: int) -> Text:
    """One of CHANGES of a part of a text; a piece is inserted, or stands for the part."""
    before, part, after = text[:start], text[start : start + length], text[start + length :]
    if change == "insert":
        return before + piece * times + part + after
    if change == "delete":
        return before + after
    if change == "repeat":
        return before + part * times + after
    if change == "replace":
        return before + piece + after
    return after + part + before


@st.composite
def mutated(draw: st.DrawFn, valid: st.SearchStrategy[Text], pieces: st.SearchStrategy[Text], most: int = 4) -> Any:
    """A valid text after some changes, or after none; pieces are words of the format, and others."""
    text: Any = draw(valid)
    for _ in range(draw(st.integers(0, most))):
        start = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 40))
        times = draw(st.sampled_from([1, 2, 3, 30, 3000]))
        text = mutate(text, draw(st.sampled_from(CHANGES)), start, length, draw(pieces), times)[:LIMIT]
    return text


def pieces_of(*words: str) -> st.SearchStrategy[str]:
    """Words of a format, characters that separate things anywhere, and any other text."""
    return st.sampled_from([*words, *" \t\n\r\0,;:=+-/.'\"\\(){}[]~#&*!|>%@`\ufeff\u2028\x85\x1c٣²\ud800"]) | ANYTHING
