"""Words of a line, as Flair's tokenizer finds them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from segtok.segmenter import split_single
from segtok.tokenizer import split_contractions, word_tokenizer

from flair_nas.errors import FlairNasError, brief

_WORD = re.compile(r"[^ \t\r\n\ufeff][^ \t\r\n]*")
_ZERO_WIDTH = "\u200b\u200c\ufe0f\ufeff\u2028\u2029"
"""Characters that Flair deletes."""
_HALF = re.compile("[\ud800-\udfff]")
LONG = 5000
"""Characters of a sentence above which it is tagged alone: a batch takes as much memory as its longest sentence."""


class Word(NamedTuple):
    """A word of a line.

    Args:
        text: the text of the line from `start` on.
        start: its position in the line.
        blanks: blanks between the word and the next one.
    """

    text: str
    start: int
    blanks: int


def check_characters(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines.

    Raises:
        FlairNasError: a line has half of a character, which stands for bytes that are not UTF-8.
    """
    for number, line in enumerate(lines, start=1):
        if _HALF.search(line):
            raise FlairNasError(f"sentence {number}, {brief(line)}: not UTF-8")
        yield line


def split_words(line: str, tokenized: bool = False) -> list[Word]:
    """Split a line into words, each with the text of the line.

    Flair's own `Sentence(line)` deletes zero-width characters, and its positions are those of the shortened text.

    Args:
        line: the line.
        tokenized: split at blanks and tabs alone. Default: by segtok, as Flair does.
    """
    if tokenized:  # a byte order mark before a word and white space other than blanks and tabs alone are no words
        matches = [match for match in _WORD.finditer(line) if not match[0].isspace()]
        places = [(match.start(), match.end(), 1) for match in matches]
    else:
        places = _find_words(line)
    words = [Word(line[start:end], start, blanks) for start, end, blanks in places]
    return [*words[:-1], words[-1]._replace(blanks=0)] if words else []


def _find_words(line: str) -> list[tuple[int, int, int]]:
    """Return start, end and the blanks after each word that segtok finds."""
    visible = [_to_visible(character) for character in line]
    places = [place for place, character in enumerate(visible) if character]  # in the line, of each character of `text`
    text, end = "".join(visible), 0
    parts = [word for part in split_single(text) for word in split_contractions(word_tokenizer(part)) if word]
    if "".join(parts) != text.replace(" ", ""):  # segtok repeats parts of a word with several apostrophes, as aʼbʼs
        parts = word_tokenizer(text)
    words: list[tuple[int, int, int]] = []
    for word in parts:
        start = text.index(word, end)
        if words:
            words[-1] = (*words[-1][:2], start - end)
        end = start + len(word)
        words.append((places[start], places[end - 1] + 1, 0))
    return words


@functools.cache
def _to_visible(character: str) -> str:
    """Return the tokenizer's input for a character: a blank for white space, an empty text for zero width."""
    if character.isspace():
        return " "
    if character in _ZERO_WIDTH:
        return ""
    if "\x80" <= character <= "\x99":  # Flair reads these as of Windows-1252
        return bytes([ord(character)]).decode("windows-1252", errors="ignore")
    return character
