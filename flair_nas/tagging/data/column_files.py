"""Column files: one token per line, columns separated by blanks or tabs, an empty line after each sentence."""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flair.data import Sentence, Token, get_spans_from_bio
from flair.datasets import FlairDatapointDataset

from flair_nas.errors import FlairNasError, brief, shown
from flair_nas.storage.paths import user_path
from flair_nas.tagging.data.column_rows import DOCUMENT_SEPARATOR, Block, ColumnFormat, Row, count_columns, read_blocks
from flair_nas.tagging.data.label_forms import SPAN_TAG, read_labels, to_bio

PREDICTED = "predicted"
"""The label type under which evaluation keeps predictions."""

HEAD, FEATURES, SPACE = ("head", "head_id"), ("feats", "misc"), "space-after"
"""Names of columns with a meaning in Flair: the head of a word, its features, a dash if no blank follows."""

NO_LABELS = ("text", *HEAD, *FEATURES, SPACE)


def parse_columns(text: str) -> dict[int, str]:
    """Return the name of each column by its number, from 0, as ``text=0,ner=3`` gives them."""
    columns: dict[int, str] = {}
    for part in text.split(","):
        match = re.fullmatch(r"([^\s=]+)\s*=\s*([0-9]{1,4})", part.strip())
        if not match:
            raise FlairNasError(f"columns {brief(text)}: {brief(part)} is not name=number, as in text=0,ner=3")
        if int(match[2]) in columns:
            raise FlairNasError(f"columns {brief(text)}: column {match[2]} has two names; numbers count from 0")
        columns[int(match[2])] = match[1]
    return columns


def read_column_file(
    path: str | Path, columns: Mapping[int, str] | None, label_type: str, form: ColumnFormat | None = None
) -> list[Sentence]:
    """Read the sentences of one column file, with the arguments and checks of a part of a corpus."""
    path, form = user_path(path), form or ColumnFormat()
    columns, label_type = pick_columns(path, columns, label_type, form)
    return read_part(path, columns, label_type, form).datapoints


def pick_columns(
    path: Path, columns: Mapping[int, str] | None, label_type: str | None, form: ColumnFormat
) -> tuple[Mapping[int, str], str]:
    """Return the columns of a file, and the label type: the requested one, else ``ner``, else the only other column."""
    if columns is None:
        columns = {0: "text", count_columns(path, form) - 1: label_type or "ner"}
    names = list(columns.values())
    faults = {
        f"{PREDICTED!r} is the name of predictions; call the column otherwise": PREDICTED in names,
        "a name has characters that cannot be printed": not "".join(names).isprintable(),
        "none is the text; write for example text=0,ner=3": "text" not in names,
        "a name comes twice; leave out the column that is not needed": len({*names}) < len(names),
        "columns are counted from 0, from the left": any(number < 0 for number in columns),
    }
    for fault, holds in faults.items():
        if holds:
            written = ",".join(f"{name}={number}" for number, name in columns.items())
            raise FlairNasError(f"columns {brief(written)}: {fault}")
    names.remove("text")
    if not names:
        raise FlairNasError("columns: there is none besides the text; name the label column too, as in text=0,ner=3")
    if label_type is None:
        label_type = "ner" if "ner" in names else names[0]
        if len(names) > 1 and label_type != "ner":
            raise FlairNasError(f"several columns could be the label: {', '.join(names)}; choose one by label type")
    if label_type not in names:
        raise FlairNasError(f"label type {brief(label_type)} is none of the columns: {', '.join(names)}")
    if label_type in NO_LABELS:
        raise FlairNasError(f"label type {label_type!r}: Flair has a meaning for this name; call the column otherwise")
    return columns, label_type


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Switch the garbage collector off, which would search all sentences again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_without_collection()
def read_part(
    path: Path, columns: Mapping[int, str], label_type: str, form: ColumnFormat
) -> FlairDatapointDataset[Sentence]:
    """Read one part of a corpus word for word. Errors name the line."""
    number = {name: column for column, name in columns.items()}
    text_column, label_column = number["text"], number[label_type]
    blocks = read_blocks(path, text_column, label_column, form)
    rows = [row for block in blocks if not block.is_mark for row in block.rows]
    first = rows[0]  # all have the same number of columns
    for column, name in columns.items():
        if column >= len(first.fields):
            fault = f"there is no column {column} ({name}): the row is {first}; columns count from 0"
            raise FlairNasError(f"{path}:{first.line}: {fault}")
    for row in rows:
        text = row.fields[text_column]
        if text[:1] in ("", " ") or text.isspace():
            raise FlairNasError(f"{path}:{row.line}: the text is empty: {row}; give the token a text or delete the row")
    tagged = next((row for row in rows if row.fields[text_column] != "O"), None)
    if tagged and all(text == "O" or SPAN_TAG.fullmatch(text) for text in (row.fields[text_column] for row in rows)):
        raise FlairNasError(
            f"{path}:{tagged.line}: the text of every word is a tag, such as {tagged.fields[text_column]!r}; are "
            f"columns swapped? Try --columns text={label_column},{label_type}={text_column}"
        )
    tags = {column: _tags(rows, column) for name, column in number.items() if name not in NO_LABELS}
    tags[label_column] = read_labels(path, {row.fields[label_column]: row.line for row in reversed(rows)})
    try:
        return FlairDatapointDataset(_make_sentences(blocks, columns, tags))
    except ValueError as error:
        raise FlairNasError(f"{path}: the column {' or '.join(HEAD)} holds no numbers ({shown(error)})") from None


def _tags(rows: Sequence[Row], column: int) -> Mapping[str, str] | None:
    """Return the BIOES tag of each label of another column, or None if its labels are of single words, as in Flair."""
    labels = {row.fields[column] for row in rows}
    if all(label in ("O", "_") or SPAN_TAG.fullmatch(label) for label in labels):
        return {label: label for label in labels}
    return None


def _make_sentences(
    blocks: Sequence[Block], columns: Mapping[int, str], tags: Mapping[int, Mapping[str, str] | None]
) -> list[Sentence]:
    """Return the sentences of a file, each linked to the one before it; `tags` is None for columns of single words."""
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
            for places, score, value in get_spans_from_bio(to_bio([names[row.fields[column]] for row in block.rows])):
                sentence[places[0] : places[-1] + 1].add_label(name, value, score)
        if sentences:
            sentence._previous_sentence, sentences[-1]._next_sentence = sentences[-1], sentence
        sentences.append(sentence)
    return sentences


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
