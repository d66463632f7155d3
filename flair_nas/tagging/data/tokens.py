"""Tokens of a line of text, with their positions in it."""

from __future__ import annotations

import functools
import re

from flair.data import Sentence, Token
from flair.tokenization import SegtokTokenizer
from segtok.tokenizer import word_tokenizer

_WORD = re.compile(r"[^ \t\r\n\ufeff][^ \t\r\n]*")


def tokens_of(line: str, tokenized: bool = False) -> list[Token]:
    """Split a line into tokens, each with the text of the line from `start_position` to `end_position`.

    Flair's own `Sentence(line)` deletes zero-width characters, and its positions are those of the shortened text.

    Args:
        line: one sentence.
        tokenized: split at blanks and tabs only; a byte order mark before a word and other white space alone are no
            words. Default: split by Flair's tokenizer, which ignores zero-width characters.
    """
    if tokenized:
        words = [match for match in _WORD.finditer(line) if not match[0].isspace()]
        return [Token(word[0], start_position=word.start()) for word in words]
    visible = [_to_visible(character) for character in line]
    places = [place for place, character in enumerate(visible) if character]  # in the line, of each character of `text`
    text, end = "".join(visible), 0
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
def _to_visible(character: str) -> str:
    """Return the tokenizer's input for a character: a blank for white space, an empty text for zero width."""
    return " " if character.isspace() else Sentence._handle_problem_characters(character)


def _words(text: str) -> list[str]:
    """Split text at blanks and where Flair's tokenizer does, so that no other character is lost or repeated."""
    words: list[str] = SegtokTokenizer().tokenize(text)
    if "".join(words) != text.replace(" ", ""):  # segtok repeats parts of a word with several apostrophes, as aʼbʼs
        words = word_tokenizer(text)
    return words
