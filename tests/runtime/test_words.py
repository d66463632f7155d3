"""Words without Flair against Flair's tokenizer; what they leave out is tested with prediction."""

from __future__ import annotations

import pytest
from flair.data import Sentence
from hypothesis import given
from hypothesis import strategies as st

from flair_nas.runtime.words import _to_visible, split_words

TEXT = st.text(
    st.sampled_from("ab ,.'’-()€%12\u0091") | st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc", "Cf"])
)


@given(TEXT)
def test_words_are_those_of_flair(text: str) -> None:
    try:
        expected = [(token.text, token.start_position) for token in Sentence(text)]
    except ValueError:  # segtok repeats parts of words with several apostrophes
        return
    if Sentence._handle_problem_characters(text) == text:
        assert [(word.text, word.start) for word in split_words(text)] == expected


@pytest.mark.parametrize("text", ["Dr. Marsh (62) didn't  pay €3.50, did she?", "Ends here. Begins: there!", "a\tb"])
def test_blanks_lie_between_words(text: str) -> None:
    for tokenized in (False, True):
        words = split_words(text, tokenized)
        assert [word.blanks for word in words][-1] == 0
        assert all(text[word.start :].startswith(word.text) for word in words)
        for word, after in zip(words, words[1:]):
            assert tokenized or word.start + len(word.text) + word.blanks == after.start


def test_every_character_is_read_as_flair_reads_it() -> None:
    for number in range(1 << 16):
        character = chr(number)
        if not character.isspace():
            assert _to_visible(character) == Sentence._handle_problem_characters(character)
