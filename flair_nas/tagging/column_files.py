"""Column files: a token a line, columns parted by white space, an empty line after each sentence.

They are checked before Flair reads them, which silently drops what it cannot read.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from flair.data import Sentence
from flair.datasets.sequence_labeling import ColumnDataset

from flair_nas.errors import FlairNasError, brief, shown
from flair_nas.paths import check_regular, how_to_convert, user_path

DOCUMENT_SEPARATOR = "-DOCSTART-"
COMMENT = "# "
PREDICTED = "predicted"
"""The label type under which evaluation keeps predictions."""

log = logging.getLogger("flair_nas")

OF_FLAIR = ("<unk>", "<START>", "<STOP>")  # labels that Flair has of its own
SPAN_TAG = re.compile(r"[BIES]-.+")
NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")
MANY_LABELS = 50
MANY_NUMBERS = 20


class _Row(NamedTuple):
    """One token's line: its number in the file, counted from 1, and its columns."""

    line: int
    fields: list[str]


def parse_columns(text: str) -> dict[int, str]:
    """Reads the written form of columns, such as ``text=0,ner=3``.

    Args:
        text: names and column numbers, counted from 0.

    Returns:
        Column number to name, such as ``{0: "text", 3: "ner"}``.

    Raises:
        FlairNasError: it is not of that form, a number or a name comes twice, or none is the text.
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
    check_columns(columns)
    return columns


def read_column_file(path: str | Path, columns: Mapping[int, str] | None, label_type: str) -> list[Sentence]:
    """Reads one column file, with the same checks as the files of a corpus.

    Args:
        path: the file.
        columns: column number, from 0, to name; one is ``text``. None: the text is first and the label last.
        label_type: the name of the label column.

    Returns:
        The sentences, in order.

    Raises:
        FlairNasError: the file is missing or faulty, or `columns` does not fit it.
    """
    path = user_path(path)
    if columns is None:
        columns = {0: "text", last_column(path): label_type}
    check_columns(columns)
    return read_part(path, columns, pick_label_type(columns, label_type)).sentences


def check_columns(columns: Mapping[int, str]) -> None:
    """Refuses columns that cannot be: no text, a name twice, a name with a meaning, a number below 0.

    Args:
        columns: column number, from 0, to name.

    Raises:
        FlairNasError: they cannot be used.
    """
    names = list(columns.values())
    written = ",".join(f"{name}={number}" for number, name in columns.items())
    for name in names:
        _check_name(name)
    if "text" not in names:
        raise FlairNasError(f"columns {brief(written)}: none is the text; write for example text=0,ner=3")
    if len(set(names)) < len(names):
        raise FlairNasError(f"columns {brief(written)}: a name comes twice; leave the column out that is not needed")
    if any(number < 0 for number in columns):
        raise FlairNasError(f"columns {brief(written)}: columns are counted from 0, from the left")


def _check_name(name: str) -> None:
    """Refuses a column or label type by which others than the gold labels would be meant."""
    if name == PREDICTED:
        raise FlairNasError(
            f"the name {PREDICTED!r} is that of what taggers predict; call the column or label otherwise"
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise FlairNasError(f"{brief(name)} is no name of a column or label: it holds halves of characters") from None


def pick_label_type(columns: Mapping[int, str], label_type: str | None) -> str:
    """The label type among columns: the one that is asked for, else ``ner``, else the only one besides the text.

    Args:
        columns: column number, from 0, to name.
        label_type: what is asked for.

    Raises:
        FlairNasError: it is none of them, or several could be meant.
    """
    names = [name for name in columns.values() if name != "text"]
    if label_type is not None:
        _check_name(label_type)
    if not names:
        raise FlairNasError("columns: there is none besides the text; name the label column too, as in text=0,ner=3")
    if label_type is None and len(names) > 1 and "ner" not in names:
        raise FlairNasError(f"several columns could be the label: {', '.join(names)}; say which one, as label type")
    if label_type is None:
        return "ner" if "ner" in names else names[0]
    if label_type not in names:
        raise FlairNasError(f"label type {brief(label_type)} is none of the columns: {', '.join(names)}")
    return label_type


def last_column(path: Path) -> int:
    """The number of the last column of a file, from 0.

    Args:
        path: the file.

    Raises:
        FlairNasError: it cannot be read, or has no column besides the text.
    """
    first = next(_sentences(path, text_column=0))[0]
    if len(first.fields) < 2:
        raise FlairNasError(
            f"{path}:{first.line}: no label column, the row is {_shown(first)}; columns are parted by blanks or tabs, "
            "and the label is the last"
        )
    return len(first.fields) - 1


def read_part(path: Path, columns: Mapping[int, str], label_type: str) -> ColumnDataset:
    """Checks a file and reads it with Flair.

    Args:
        path: the file.
        columns: column number, from 0, to name.
        label_type: the name of the label column.

    Raises:
        FlairNasError: the file is missing or faulty; the message has its line.
    """
    column = {name: number for number, name in columns.items()}
    sentences = list(_sentences(path, column["text"]))
    rows = [row for sentence in sentences for row in sentence]
    _check_rows(path, rows, columns, column["text"])
    _check_labels(path, rows, column["text"], column[label_type])
    _tell_strays(path, sentences, column[label_type])
    try:
        dataset = ColumnDataset(
            path,
            dict(columns),
            comment_symbol=COMMENT,
            document_separator_token=DOCUMENT_SEPARATOR,
            encoding="utf-8-sig",
        )
    except ValueError as error:  # some names of columns, as head, have Flair expect numbers
        raise FlairNasError(
            f"{path}: Flair cannot read the columns {', '.join(columns.values())} ({shown(error)}); a name that it has "
            "a meaning for, such as head, may be the reason"
        ) from None
    _check_tag_level(path, rows, column[label_type], dataset)
    return dataset


def _sentences(path: Path, text_column: int) -> Iterator[list[_Row]]:
    """The rows of a file by sentence, parted as Flair parts them; comments and document boundaries are left out."""
    try:
        check_regular(path)
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise FlairNasError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FlairNasError(f"{path}: not UTF-8 at byte {error.start}; {how_to_convert(error.object)}") from error
    found = False
    rows: list[_Row] = []
    for number, line in enumerate([*io.StringIO(text, newline=None), "\n"], start=1):
        if not line.isspace():
            if not line.startswith(COMMENT):
                rows.append(_Row(number, re.split(r"\s+", line.rstrip())))
            continue
        # A boundary may have fewer columns than a token, but only by itself: with others it would spoil their spans.
        is_boundary = len(rows) == 1 and rows[0].fields[text_column : text_column + 1] == [DOCUMENT_SEPARATOR]
        if rows and not is_boundary:
            found = True
            yield rows
        rows = []
    if not found:
        raise FlairNasError(f"{path} holds no sentence: a row for each token is wanted, such as 'London B-LOC'")


def _shown(row: _Row) -> str:
    return ", ".join(f"column {number} {field!r}" for number, field in enumerate(row.fields))


def _check_rows(path: Path, rows: list[_Row], columns: Mapping[int, str], text_column: int) -> None:
    """Every row has a text, the columns asked for, and as many as the first: Flair silently drops what lacks some."""
    first = rows[0]
    for number, name in columns.items():
        if number >= len(first.fields):
            raise FlairNasError(
                f"{path}:{first.line}: there is no column {number} ({name}): the row is {_shown(first)}; "
                "columns count from 0, parted by white space"
            )
    for row in rows:
        if len(row.fields) != len(first.fields):
            raise FlairNasError(
                f"{path}:{row.line}: {len(row.fields)} columns, where line {first.line} has {len(first.fields)}: "
                f"the row is {_shown(row)}; columns are parted by white space, sentences by an empty line"
            )
        if not row.fields[text_column]:
            raise FlairNasError(
                f"{path}:{row.line}: the text is empty: white space begins the row, {_shown(row)}; "
                "give the token a text or delete the row"
            )


def _check_labels(path: Path, rows: list[_Row], text_column: int, label_column: int) -> None:
    """The label column holds tags.

    Where some labels are of the BIO or BIOES form, all are, or ``O``. Other labels, such as parts of speech, are few:
    more than 50 different ones must not be more than half as many as the different words, and more than 20 must not
    all be numbers. A column of words, lemmas, positions or scores fails this at any size of a file that matters.
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
    sample = f"line {rows[0].line} is {_shown(rows[0])}; choose another label column"
    if any(SPAN_TAG.fullmatch(word) for word in words) and all(w == "O" or SPAN_TAG.fullmatch(w) for w in words):
        raise FlairNasError(f"{where}, but column {text_column}, the text, does: are they swapped? {sample}")
    if len(labels) > MANY_LABELS and 2 * len(labels) > len(words):
        raise FlairNasError(f"{where}: {len(labels)} different values beside {len(words)} different words; {sample}")
    if len(labels) > MANY_NUMBERS and all(NUMBER.fullmatch(label) for label in labels):
        raise FlairNasError(f"{where}: {len(labels)} different values, all of them numbers; {sample}")
    if len(strange) < len(labels - {"O"}):
        row = next(row for row in rows if row.fields[label_column] in strange)
        raise FlairNasError(
            f"{path}:{row.line}: {row.fields[label_column]!r} among tags such as 'B-PER'; all have to be O or begin "
            f"with B-, I-, E- or S-: correct the row, or convert the file to BIO"
        )


def _tell_strays(path: Path, sentences: list[list[_Row]], label_column: int) -> None:
    """Tells of spans that begin with I- in a file where others begin with B-: Flair reads them, too.

    In the older IOB1 form all spans begin with I-, but for one right behind another of its type.
    """
    beginnings: dict[str, list[_Row]] = {"B": [], "I": []}
    for sentence in sentences:
        before = "O"
        for row in sentence:
            tag = row.fields[label_column]
            if SPAN_TAG.fullmatch(tag) and tag[0] in beginnings and (before == "O" or before[2:] != tag[2:]):
                beginnings[tag[0]].append(row)
            before = tag
    if beginnings["B"] and (strays := beginnings["I"]):
        log.info(  # no warning: CoNLL-2000 as published has 25
            "%s: I- follows no tag of its type %s (first, line %d is %s), where other entities begin with B-: an "
            "entity is taken to begin there",
            *(path, "once" if len(strays) == 1 else f"{len(strays)} times", strays[0].line, _shown(strays[0])),
        )


def _check_tag_level(path: Path, rows: list[_Row], label_column: int, dataset: ColumnDataset) -> None:
    """Flair tells tags of tokens from tags of spans by a file's first five sentences; O alone it takes for spans."""
    tags = {row.fields[label_column] for row in rows} - {"O"}
    if tags and not any(SPAN_TAG.fullmatch(tag) for tag in tags) and label_column in dataset.span_level_tag_columns:
        raise FlairNasError(
            f"{path}: no tag but O in the first five sentences (or before a block of comments alone), so that Flair "
            f"would take tags such as {min(tags)!r} for BIO; begin the file with a sentence that has tags"
        )
