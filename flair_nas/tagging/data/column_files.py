"""Column files: one token per line, columns separated by blanks or tabs, an empty line after each sentence."""

from __future__ import annotations

import contextlib
import gc
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flair.data import Sentence, Token, get_spans_from_bio
from flair.datasets import FlairDatapointDataset

from flair_nas.errors import FlairNasError, brief, shown
from flair_nas.storage.paths import user_path
from flair_nas.tagging.data.column_rows import DOCUMENT_SEPARATOR, Block, Row, count_columns, read_blocks
from flair_nas.tagging.data.label_forms import SPAN_TAG, begins, read_labels, to_bio

PREDICTED = "predicted"
"""The label type under which evaluation keeps predictions."""

Tags = Mapping[str, str]
"""The BIOES tag of each label of a column of spans."""

log = logging.getLogger("flair_nas")

OF_FLAIR = ("<unk>", "<START>", "<STOP>")  # labels that Flair has of its own
NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")
HEAD, FEATURES, SPACE = ("head", "head_id"), ("feats", "misc"), "space-after"
"""Names of columns with a meaning in Flair: the head of a word, its features, a dash if no blank follows."""

NO_LABELS = ("text", *HEAD, *FEATURES, SPACE)
MANY_LABELS = 50
MANY_NUMBERS = 20


def parse_columns(text: str) -> dict[int, str]:
    """Return column number, from 0, to name for the written form of columns, such as ``text=0,ner=3``.

    Raises:
        FlairNasError: the form is wrong, a number or a name comes twice, or no column is the text.
    """
    columns: dict[int, str] = {}
    for part in text.split(","):
        match = re.fullmatch(r"([^\s=]+)\s*=\s*([0-9]{1,4})", part.strip())
        if not match:
            raise FlairNasError(
                f"columns {brief(text)}: {brief(part)} is not name=number; write for example text=0,ner=3"
            )
        if int(match[2]) in columns:
            raise FlairNasError(f"columns {brief(text)}: column {match[2]} has two names; numbers count from 0")
        columns[int(match[2])] = match[1]
    _check_columns(columns)
    return columns


def read_column_file(
    path: str | Path,
    columns: Mapping[int, str] | None,
    label_type: str,
    *,
    delimiter: str | None = None,
    comment: str | None = None,
) -> list[Sentence]:
    """Read the sentences of one column file, with the arguments and checks of a part of a corpus.

    Raises:
        FlairNasError: the file is missing or faulty, or `columns` does not fit it.
    """
    path = user_path(path)
    columns, label_type = pick_columns(path, columns, label_type, delimiter, comment)
    return read_part(path, columns, label_type, delimiter, comment).datapoints


def pick_columns(
    path: Path, columns: Mapping[int, str] | None, label_type: str | None, delimiter: str | None, comment: str | None
) -> tuple[Mapping[int, str], str]:
    """Return the columns of a file, and the label type: the requested one, else ``ner``, else the only other column.

    Raises:
        FlairNasError: the columns cannot be used, or no column or several could be the label.
    """
    if columns is None:
        columns = {0: "text", count_columns(path, delimiter, comment) - 1: label_type or "ner"}
    _check_columns(columns)
    names = [name for name in columns.values() if name != "text"]
    if not names:
        raise FlairNasError("columns: there is none besides the text; name the label column too, as in text=0,ner=3")
    if label_type is None and len(names) > 1 and "ner" not in names:
        raise FlairNasError(f"several columns could be the label: {', '.join(names)}; say which one, as label type")
    if label_type is None:
        return columns, "ner" if "ner" in names else names[0]
    if label_type not in names:
        raise FlairNasError(f"label type {brief(label_type)} is none of the columns: {', '.join(names)}")
    if label_type in NO_LABELS:
        raise FlairNasError(
            f"label type {label_type!r}: Flair has a meaning for this name of a column, which is no label; call it "
            "otherwise"
        )
    return columns, label_type


def _check_columns(columns: Mapping[int, str]) -> None:
    """Refuse columns without a text, with a repeated or reserved name, or with a number below 0."""
    names = list(columns.values())
    written = ",".join(f"{name}={number}" for number, name in columns.items())
    if PREDICTED in names:
        raise FlairNasError(
            f"the name {PREDICTED!r} is that of what taggers predict; call the column or label otherwise"
        )
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise FlairNasError(
                f"{brief(name)} is no name of a column or label: it holds halves of characters"
            ) from None
    if "text" not in names:
        raise FlairNasError(f"columns {brief(written)}: none is the text; write for example text=0,ner=3")
    if len(set(names)) < len(names):
        raise FlairNasError(f"columns {brief(written)}: a name comes twice; leave the column out that is not needed")
    if any(number < 0 for number in columns):
        raise FlairNasError(f"columns {brief(written)}: columns are counted from 0, from the left")


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
    path: Path, columns: Mapping[int, str], label_type: str, delimiter: str | None, comment: str | None
) -> FlairDatapointDataset[Sentence]:
    """Read one part of a corpus word for word.

    Raises:
        FlairNasError: the file is missing or faulty; the message names the line.
    """
    number = {name: column for column, name in columns.items()}
    text_column, label_column = number["text"], number[label_type]
    blocks = read_blocks(path, text_column, label_column, delimiter, comment)
    rows = [row for block in blocks if not block.is_mark for row in block.rows]
    _check_rows(path, rows, columns, text_column)
    _check_labels(path, rows, text_column, label_column)
    label_tags = read_labels(path, {row.fields[label_column]: row.line for row in reversed(rows)})
    tags = {column: _tags(rows, column) for name, column in number.items() if name not in NO_LABELS}
    tags[label_column] = label_tags
    if label_tags is not None:
        _log_strays(path, blocks, label_column, label_tags)
    try:
        return FlairDatapointDataset(_make_sentences(blocks, columns, tags))
    except ValueError as error:
        raise FlairNasError(f"{path}: the column {' or '.join(HEAD)} holds no numbers ({shown(error)})") from None


def _check_rows(path: Path, rows: Sequence[Row], columns: Mapping[int, str], text_column: int) -> None:
    """Refuse rows without a text or a column; all rows have the same number of columns."""
    first = rows[0]
    for number, name in columns.items():
        if number >= len(first.fields):
            raise FlairNasError(
                f"{path}:{first.line}: there is no column {number} ({name}): the row is {first}; columns count from 0, "
                "separated by blanks or tabs"
            )
    for row in rows:
        text = row.fields[text_column]
        if text[:1] in ("", " ") or text.isspace():
            raise FlairNasError(
                f"{path}:{row.line}: the text is empty: white space begins the row, {row}; give the token a text or "
                "delete the row"
            )


def _check_labels(path: Path, rows: Sequence[Row], text_column: int, label_column: int) -> None:
    """Refuse a label column that holds no tags but words, lemmas, positions or scores.

    If some labels have the BIO or BIOES form, all must have it or be ``O``. Other labels, such as parts of speech, are
    few: more than 50 must not exceed half the number of different words, and more than 20 must not all be numbers.
    """
    labels = {row.fields[label_column] for row in rows}
    words = {row.fields[text_column] for row in rows}
    for label in sorted(labels):
        if label in OF_FLAIR or label[2:] in OF_FLAIR:
            raise FlairNasError(f"{path}: the tag {label!r} is one that Flair has of its own; call it otherwise")
    strange = {label for label in labels if label != "O" and not SPAN_TAG.fullmatch(label)}
    if not strange:
        return
    where = f"{path}: column {label_column} holds no tags"
    sample = f"line {rows[0].line} is {rows[0]}; choose another label column"
    if any(SPAN_TAG.fullmatch(word) for word in words) and all(w == "O" or SPAN_TAG.fullmatch(w) for w in words):
        raise FlairNasError(f"{where}, but column {text_column}, the text, does: are they swapped? {sample}")
    if len(labels) > MANY_LABELS and 2 * len(labels) > len(words):
        raise FlairNasError(f"{where}: {len(labels)} different values beside {len(words)} different words; {sample}")
    if len(labels) > MANY_NUMBERS and all(NUMBER.fullmatch(label) for label in labels):
        raise FlairNasError(f"{where}: {len(labels)} different values, all of them numbers; {sample}")


def _tags(rows: Sequence[Row], column: int) -> Tags | None:
    """Return the BIOES tags of another column, or None if its labels are of single words, as in Flair."""
    labels = {row.fields[column] for row in rows}
    if all(label in ("O", "_") or SPAN_TAG.fullmatch(label) for label in labels):
        return {label: label for label in labels}
    return None


def _log_strays(path: Path, blocks: Sequence[Block], column: int, tags: Tags) -> None:
    """Log spans that begin with I- or E- if others begin with B- or S-.

    In the older IOB1 form all spans begin with I-, except one directly after another of its type.
    """
    beginnings: dict[bool, list[Row]] = {True: [], False: []}
    for block in blocks:
        before = "O"
        for row in () if block.is_mark else block.rows:
            tag = tags[row.fields[column]]
            if begins(before, tag) and (tag[0] in "IE" or before[2:] != tag[2:]):
                beginnings[tag[0] in "BS"].append(row)
            before = tag
    if beginnings[True] and (strays := beginnings[False]):
        times, first = "once" if len(strays) == 1 else f"{len(strays)} times", strays[0]
        log.info(  # no warning: CoNLL-2000 as published has 25
            "%s: %s- follows no tag of its type %s (first, line %d is %s), where other entities begin with B-: an "
            "entity is taken to begin there",
            *(path, tags[first.fields[column]][0], times, first.line, first),
        )


def _make_sentences(
    blocks: Sequence[Block], columns: Mapping[int, str], tags: Mapping[int, Tags | None]
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
