"""Tokens of a line of text, each with its position in that line."""

from __future__ import annotations

import functools
import re

from flair.data import Sentence, Token
from flair.tokenization import SegtokTokenizer, word_tokenizer

_WORD = re.compile(r"[^ \t\r\n\ufeff][^ \t\r\n]*")


def tokens_of(line: str, tokenized: bool = False) -> list[Token]:
    """Split a line into tokens whose text is the line's own, between `start_position` and `end_position`.

    Flair's own `Sentence(line)` deletes zero-width characters, and its positions are those of the shortened text.

    Args:
        line: one sentence.
        tokenized: separate words at blanks and tabs alone. A byte order mark before a word is no part of it, and white
            space of other kinds alone is no word. Otherwise Flair's tokenizer separates them, as if zero-width
            characters were not there.

    Returns:
        The tokens, in order; none if the line has no words.
    """
    if tokenized:
        words = [match for match in _WORD.finditer(line) if not match[0].isspace()]
        return [Token(word[0], start_position=word.start()) for word in words]
    read = [_as_read(character) for character in line]
    places = [place for place, character in enumerate(read) if character]  # in the line, of what the tokenizer reads
    text, end = "".join(read), 0
    tokens: list[Token] = []
    for word in _words(text):
        start = text.index(word, end)
        if tokens:
            tokens[-1].whitespace_after = start - end
        end = start + len(word)
        first, last = places[start], places[end - 1]
        tokens.append(Token(line[first : last + 1], start_position=first))
    return tokens


@functools.cache
def _as_read(character: str) -> str:
    """Return what the tokenizer reads in place of a character: a blank for white space, nothing for zero width."""
    return " " if character.isspace() else Sentence._handle_problem_characters(character)


def _words(text: str) -> list[str]:
    """Split text at blanks and where Flair's tokenizer does; together they hold every other character once."""
    words: list[str] = SegtokTokenizer().tokenize(text)
    if "".join(words) != text.replace(" ", ""):  # segtok repeats parts of a word with several apostrophes, as aʼbʼs
        words = word_tokenizer(text)
    return words
