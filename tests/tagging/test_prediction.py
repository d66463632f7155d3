"""Tagging text: words, offsets and text are those of the line that was given, whatever characters are in it."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import flair
import pytest
import torch
from flair.data import Dictionary, Sentence
from flair.embeddings import CharacterEmbeddings, HashEmbeddings
from flair.models import SequenceTagger
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flair_nas import FlairNasError
from flair_nas.tagging.data.column_files import read_column_file
from flair_nas.tagging.evaluation import tags_of
from flair_nas.tagging.prediction import tag_lines, to_columns, to_json_line, to_text, tokens_of

ODD = (
    *("\u200b", "\u200c", "\u200d", "\ufeff", "\ufe0f", "\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x85", "\x92"),
    *("\xa0", "\u3000", "\t", "\r", "#", "-DOCSTART-", "ʼ", "🎉", "❤️", "👨‍👩‍👧", "می‌خوانم", "é", "e\u0301"),
)
PIECES = st.sampled_from([*ODD, *"ab.' ,-[O", "New York", " B-PER", "# id"])
ANY = st.characters(exclude_categories=["Cs"], exclude_characters="\n")
LINES = st.lists(PIECES | ANY, max_size=12).map("".join)
ODD_LINE = "\ufeff Ada\u200c \u200b N\u200cew\xa0York,\tdon't \u200c"


@functools.cache
def tagger(spans: bool = True) -> SequenceTagger:
    """An untrained tagger, which finds many things."""
    flair.set_seed(1)
    labels = Dictionary(add_unk=False)
    labels.span_labels = spans
    for label in ("PER", "LOC") if spans else ("O", "NOUN", "PROPER NOUN"):
        labels.add_item(label)
    return SequenceTagger(HashEmbeddings(50, 4), labels, "ner", hidden_size=4, use_crf=False)


@given(LINES)
@example(ODD_LINE)
@example("aʼbʼs")  # Flair itself ends with an error
@example("")
def test_tokens_are_pieces_of_the_line_and_leave_out_nothing_that_is_seen(line: str) -> None:
    end = 0
    for token in tokens_of(line):
        assert token.text == line[token.start_position : token.end_position] != ""
        assert not any(character.isspace() for character in token.text)
        left_out, end = line[end : token.start_position], token.end_position
        assert not re.sub(r"[\s\u200b\u200c\ufe0f\ufeff\u0080-\u0099]", "", left_out)
    assert not re.sub(r"[\s\u200b\u200c\ufe0f\ufeff\u0080-\u0099]", "", line[end:])


@given(LINES)
@example("Hugo\tBrandt  New\xa0York \x0c \u200c \ufeff \ufeffend")
def test_tokenized_words_are_what_lies_between_blanks_and_tabs(line: str) -> None:
    tokens = tokens_of(line, tokenized=True)
    words = [word.lstrip("\ufeff") for word in re.split("[ \t\r]", line)]  # a byte order mark is no part of a word
    assert [token.text for token in tokens] == [word for word in words if word.strip()]
    assert all(token.text == line[token.start_position : token.end_position] for token in tokens)


@given(st.text("abs AS.,!?'’-:;()1₂é\t\xa0"))
@example("Dr. Helen Marsh's train (No. 5) can't leave Leeds.")
def test_tokens_of_plain_text_are_those_of_flair(line: str) -> None:
    ours, flairs = (
        [(token.text, token.start_position, token.whitespace_after) for token in sentence]
        for sentence in (Sentence(tokens_of(line)) if line.strip() else [], Sentence(line))
    )
    assert ours == flairs


@settings(max_examples=50)
@given(st.lists(LINES, max_size=4), st.booleans(), st.booleans())
@example([ODD_LINE], False, True)
def test_places_text_and_brackets_are_of_the_line(lines: list[str], tokenized: bool, spans: bool) -> None:
    for line, sentence in zip(lines, tag_lines(tagger(spans), lines, tokenized=tokenized), strict=True):
        found = json.loads(to_json_line(line, sentence, "ner"))
        assert found["text"] == line
        bracketed, end = "", 0
        for label in sorted(found["labels"], key=lambda label: label["start"]):
            assert line[label["start"] : label["end"]] == label["text"] != ""
            bracketed += f"{line[end : label['start']]}[{label['label']} {label['text']}]"
            end = label["end"]
        assert to_text(line, sentence, "ner") == bracketed + line[end:]
        assert found["tokens"] == [token.text for token in sentence or ()]


@settings(max_examples=50)
@given(st.lists(LINES, min_size=1, max_size=4), st.booleans(), st.booleans())
@example(["New York is # 3 big", "Hugo\tBrandt lives", "# Hugo", "#"], True, True)
@example([ODD_LINE, "\ufeffHugo Brandt", "a\u2028b\x85c\x1cd\re", "- O", "\x0c \x1c a"], True, True)
@example(["# # #", "\xa0 \u200b", "Hugo -DOCSTART- Brandt"], True, False)
def test_columns_are_read_back(lines: list[str], tokenized: bool, spans: bool) -> None:
    tagged = [s for s in tag_lines(tagger(spans), lines, tokenized=tokenized) if s is not None]
    # a first sentence with all tags: one that no other word than # has is not known as a tag
    known = "Leeds\tB-LOC\n\n" if spans else "Leeds\tNOUN\nHugo\tPROPER NOUN\n\n"
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder, "tagged.txt")).write_bytes(
            (known + "".join(to_columns("", sentence, "ner") + "\n" for sentence in tagged)).encode()
        )
        found = read_column_file(file, None, "ner")[1:]
    expected = [[(token.text, tag) for token, tag in zip(s, tags_of(s, "ner"))] for s in tagged]
    read = [[(token.text, tag) for token, tag in zip(s, tags_of(s, "ner"))] for s in found]
    if any(word == "-DOCSTART-" for sentence in expected for word, _ in sentence):  # by which documents are parted
        expected, read = ([[(word, "") for s in of for word, _ in s]] for of in (expected, read))
    assert read == expected


def test_a_line_is_tagged_before_the_next_is_asked_for_where_batches_are_of_one() -> None:
    def typed() -> Iterator[str]:
        yield "Ada saw London ."
        pytest.fail("asked for another line")

    next(tag_lines(tagger(), typed(), batch_size=1))


def test_one_text_is_parted_at_line_ends_alone() -> None:
    text = "Ada\u2028saw\r\nLondon\x85too\n\n"
    found = [[token.text for token in sentence or ()] for sentence in tag_lines(tagger(), text, tokenized=True)]
    assert found == [["Ada\u2028saw"], ["London\x85too"], []]


def test_half_of_a_character_is_refused_as_by_the_command() -> None:
    with pytest.raises(FlairNasError, match=r"^sentence 2, '\\udc80': not UTF-8"):
        list(tag_lines(tagger(), ["Ada", "\udc80"]))


def test_words_of_a_long_line_are_not_padded_to_its_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    flair.set_seed(1)
    characters = Dictionary()
    for character in "abcdefg":
        characters.add_item(character)
    member = CharacterEmbeddings(characters, 5, 4)
    named = SequenceTagger(member, tagger().label_dictionary, "ner", hidden_size=4, use_crf=False)
    text = " ".join(["abc", "ga", "g" * 5000, *["fed"] * 20, "abc"])
    long = Sentence(tokens_of(text))
    member.embed([long])
    expected = torch.stack([token.get_embedding() for token in long])
    sizes: list[int] = []
    member.char_rnn.register_forward_hook(lambda _, inputs, __: sizes.append(inputs[0].numel()))
    tagged: list[Sentence] = []
    monkeypatch.setattr(named, "predict", lambda sentences, **_: tagged.extend(sentences))
    assert len([*tag_lines(named, [text, "abc"])]) == 2 and max(sizes) == 5 * 5000
    found = torch.stack([token.get_embedding() for token in tagged[1]])
    torch.testing.assert_close(found, expected)


def test_a_long_line_is_no_batch_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A character model would read 31 short lines as long as the long one."""
    batches = []
    embed = HashEmbeddings.embed

    def listen(self: HashEmbeddings, sentences: list[Sentence]) -> object:
        batches.append([len(sentence) for sentence in sentences])
        return embed(self, sentences)

    monkeypatch.setattr(HashEmbeddings, "embed", listen)
    lines = ["Ada saw London"] * 5 + ["New York " * 1000] + ["Ada"] * 3
    tagged = [*tag_lines(tagger(), lines)]
    assert sorted(map(len, batches)) == [1, 8] and [2000] in batches
    assert [sentence is not None and sentence.has_label("ner") for sentence in tagged] == [True] * 9
    assert tagged[6] is not None and tagged[6].previous_sentence() is tagged[5]
