"""Flair sentences from the rows of a column file, as Flair's `ColumnDataset` makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flair.data import Sentence, Token, get_spans_from_bio

from flair_nas.tagging.data.column_rows import DOCUMENT_SEPARATOR, Block

HEAD, FEATURES, SPACE = ("head", "head_id"), ("feats", "misc"), "space-after"
"""Names of columns with a meaning in Flair: the head of a word, its features, a dash if no blank follows."""

Tags = Mapping[str, str]
"""The BIOES tag of each label of a column of spans."""


def make_sentences(
    blocks: Sequence[Block], columns: Mapping[int, str], tags: Mapping[int, Tags | None]
) -> list[Sentence]:
    """Return the sentences of a file, each linked to the one before it; `tags` is None for columns of single words.

    Raises:
        ValueError: the head of a word is no number.
    """
    (text_column,) = (column for column, name in columns.items() if name == "text")
    spans = [(column, columns[column], names) for column, names in tags.items() if names is not None]
    words = {column: columns[column] for column in columns if column != text_column and tags.get(column) is None}
    sentences: list[Sentence] = []
    for block in blocks:
        tokens: list[Token] = []
        start = 0
        for row in block.rows:
            token = Token(DOCUMENT_SEPARATOR if block.is_mark else row.fields[text_column], start_position=start)
            for column, name in words.items():
                if column < len(row.fields):  # a document mark may have fewer
                    _annotate(token, name, row.fields[column])
            start = token.end_position + token.whitespace_after
            tokens.append(token)
        sentence = Sentence(tokens)
        sentence.is_document_boundary = block.is_mark
        for column, name, names in () if block.is_mark else spans:
            for places, score, value in get_spans_from_bio(_to_bio([names[row.fields[column]] for row in block.rows])):
                sentence[places[0] : places[-1] + 1].add_label(name, value, score)
        if sentences:
            sentence._previous_sentence, sentences[-1]._next_sentence = sentences[-1], sentence
        sentences.append(sentence)
    return sentences


def begins(before: str, tag: str) -> bool:
    """Return True if an entity begins at a tag, in any of BIO, IOB1, BIOES and IOE2."""
    return tag[0] in "BS" or (tag[0] in "IE" and (before[0] not in "BI" or before[2:] != tag[2:]))


def _to_bio(tags: Sequence[str]) -> list[str]:
    """Return BIO tags; Flair's own decoder continues a span at an E- after another E- or another type."""
    before = ("O", *tags)
    return [("B" if begins(b, tag) else "I") + tag[1:] if tag[0] in "BIES" else "O" for b, tag in zip(before, tags)]


def _annotate(token: Token, name: str, value: str) -> None:
    """Store the value of a column in a word."""
    if name in HEAD:
        token.head_id = int(value)
    elif name == SPACE:
        token.whitespace_after = int(value != "-")
    elif name in FEATURES:
        for feature in value.split("|"):
            key, equals, label = feature.partition("=")
            if feature == "SpaceAfter=No":
                token.whitespace_after = 0
            elif equals and label != "O":
                token.add_label(key, label)
    elif value not in ("", "O"):
        token.add_label(name, value)
