"""Rows of a column file: which lines are words, and which are comments, document marks or ranges of words."""

from __future__ import annotations

import io
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from flair_nas.errors import FlairNasError, brief
from flair_nas.storage.paths import read_utf8, typed
from flair_nas.tagging.config import is_delimiter
from flair_nas.tagging.data.label_forms import SPAN_TAG

DOCUMENT_SEPARATOR = "-DOCSTART-"

log = logging.getLogger("flair_nas")

_BLANK = " \t\n\r\f\v"
_BY_BLANKS = re.compile("[ \t]+")
_NUMBER = re.compile("[0-9]+")
_NO_WORD = re.compile(r"[0-9]+[-.][0-9]+")  # of CoNLL-U: a range of words, 3-4, or an empty node, 5.1
_FEW = 100  # different labels
_SAMPLE = 1000  # rows that show the kind of a file
_LONG = 200  # words of a sentence
_JSON = re.compile(r'\s*([\[{]\s*$|\{\s*"|\[\s*[\[{"])')
_ENDS_SENTENCE = "EndOfSentence"  # in a column of HIPE, alone or as in NoSpaceAfter|EndOfSentence

WORD_HEADINGS = ("token", "tokens", "word", "words", "form", "text")
"""Names of the column of words in a row that names the columns."""
SENTENCE_HEADING = re.compile(r"sent(ence)?s?[ _]*(#|id|idx|index|no|nr|number|num)?\.?", re.IGNORECASE)
"""Names of a column that numbers sentences."""


class Row(NamedTuple):
    """A line of a file: its number from 1, its text, and its columns."""

    line: int
    text: str
    fields: list[str]

    def __str__(self) -> str:
        return ", ".join(f"column {number} {field!r}" for number, field in enumerate(self.fields))


class Block(NamedTuple):
    """Rows between two empty lines or document marks, or one document mark."""

    rows: list[Row]
    is_mark: bool = False


def count_columns(path: Path, delimiter: str | None = None, comment: str | None = None) -> int:
    """Return the number of columns that most rows of a file have.

    Raises:
        FlairNasError: the file cannot be read, or its rows have no column besides the text.
    """
    rows = _plain([row for block in _read_rows(path, delimiter, comment) for row in block], comment)
    if not rows:
        raise _no_sentence(path)
    if (width := _usual_width(rows)) < 2:
        raise FlairNasError(
            f"{path}:{rows[0].line}: no label column, the row is {rows[0]}; columns are separated by blanks or tabs, "
            "and the label is the last"
        )
    return width


def read_blocks(
    path: Path, text_column: int, label_column: int, delimiter: str | None = None, comment: str | None = None
) -> list[Block]:
    """Return the words of a file by sentence, log the number of other rows, and warn of long sentences.

    The first row may name the columns. Where a column holds ``EndOfSentence``, the sentence ends after the row.

    Args:
        path: the file.
        text_column: number of the column of words, from 0.
        label_column: number of the column of labels.
        delimiter: character or regular expression that separates columns. Default: tabs if every row has one, else
            blanks and tabs.
        comment: beginning of rows that are comments. Default: ``#`` in rows that are no words; a word has as many
            columns as other rows, and a label.

    Raises:
        FlairNasError: the file cannot be read, holds no word, or its rows have different numbers of columns.
    """
    raw = _read_rows(path, delimiter, comment)
    headings = _find_headings(path, _plain([row for block in raw for row in block], comment), text_column, label_column)
    plain = [[row for row in block if not _may_be_mark(row, comment) and row not in headings] for block in raw]
    is_counted = text_column > 0 and _is_counted(plain)
    is_word = _hash_rule([row for block in plain for row in block], label_column, is_counted)

    comments: list[Row] = []
    ranges: list[Row] = []
    ends: list[Row] = []
    blocks: list[Block] = []
    for block in raw:
        rows: list[Row] = []
        for row in block:
            if row in headings:
                continue
            if row.text.startswith(comment or "#") and (comment or not is_word(row)):
                comments.append(row)
            elif is_counted and _NO_WORD.fullmatch(row.fields[0]):
                ranges.append(row)
            elif DOCUMENT_SEPARATOR in (row.fields[0], *row.fields[text_column : text_column + 1]):
                blocks += [Block(rows), Block([row], is_mark=True)]
                rows = []
            else:
                rows.append(row)
                if _ends_sentence(row, text_column):
                    blocks.append(Block(rows))
                    ends.append(row)
                    rows = []
        blocks.append(Block(rows))
    blocks = [block for block in blocks if block.rows]
    _check_widths(path, [row for block in blocks if not block.is_mark for row in block.rows], delimiter)
    _log_kinds(
        path,
        {"headings": headings, f"{_ENDS_SENTENCE!r}, which ends a sentence": ends, "comments": comments},
        ranges,
        blocks,
    )
    _warn_of_long(path, blocks)
    return blocks


def _find_headings(path: Path, rows: Sequence[Row], text_column: int, label_column: int) -> Sequence[Row]:
    """Return the first row if it names the columns: a heading of words above them, and a label that no other row has.

    Raises:
        FlairNasError: a column numbers the sentences.
    """
    if not rows:
        return ()
    fields = rows[0].fields
    heading, label = ("".join(fields[column : column + 1]) for column in (text_column, label_column))
    if {field.casefold() for field in fields} & {*WORD_HEADINGS}:
        for field in filter(SENTENCE_HEADING.fullmatch, fields):
            raise FlairNasError(
                f"{path}:{rows[0].line}: the column {field!r} numbers the sentences; write column files with: "
                f"{_convert(path)}"
            )
    is_tag = not label or label == "O" or SPAN_TAG.fullmatch(label)
    if heading.casefold() not in WORD_HEADINGS or is_tag:
        return ()
    return () if any(label in row.fields[label_column : label_column + 1] for row in rows[1:]) else rows[:1]


def _ends_sentence(row: Row, text_column: int) -> bool:
    """Return True if a column other than the text says that a sentence ends after a row."""
    if _ENDS_SENTENCE not in row.text:  # fast
        return False
    return any(_ENDS_SENTENCE in field.split("|") for place, field in enumerate(row.fields) if place != text_column)


def _warn_of_long(path: Path, blocks: Sequence[Block]) -> None:
    """Warn of long sentences, which take much time and memory, and may be several."""
    if long := [block.rows for block in blocks if len(block.rows) > _LONG]:
        others = f" ({len(long)} sentences have more than {_LONG})" if len(long) > 1 else ""
        log.warning(
            "%s:%d: a sentence of %s words begins here%s; an empty line ends a sentence, is one missing?",
            *(path, long[0][0].line, f"{len(long[0]):,}", others),
        )


def _read_rows(path: Path, delimiter: str | None, comment: str | None) -> list[list[Row]]:
    """Return all rows, by the empty lines between them."""
    blocks: list[list[Row]] = [[]]
    for number, line in enumerate(io.StringIO(read_utf8(path), newline=None), start=1):
        if not line.isspace():
            blocks[-1].append(Row(number, line.rstrip("\n"), []))
        elif blocks[-1]:
            blocks.append([])
    rows = [row for block in blocks for row in block]
    if rows and _JSON.match(rows[0].text):
        raise FlairNasError(f"{path} is JSON; write column files with: {_convert(path)}")
    split = _splitter(_plain(rows, comment), delimiter)
    for row in rows:
        row.fields.extend(split(row.text))
    if not delimiter:
        _refuse_csv(path, _plain(rows[:_SAMPLE], comment))
    return blocks


def _plain(rows: Sequence[Row], comment: str | None) -> Sequence[Row]:
    """Return the rows that are certainly words, or all rows if there are none."""
    return [row for row in rows if not _may_be_mark(row, comment)] or rows


def _may_be_mark(row: Row, comment: str | None) -> bool:
    """Return True if a row may be a comment or a document mark."""
    return row.text.startswith((comment or "#", DOCUMENT_SEPARATOR))


def _splitter(rows: Sequence[Row], delimiter: str | None) -> Callable[[str], list[str]]:
    """Return the function that splits a line into columns."""
    if delimiter:
        if problem := is_delimiter(delimiter):
            raise FlairNasError(f"delimiter {problem}, got {brief(delimiter)}")
        pattern = re.compile(re.escape(delimiter) if len(delimiter) == 1 else delimiter)
        at_end = _BLANK.replace("\t", "") if delimiter in ("\t", r"\t") else _BLANK
        return lambda text: [field.strip(" \t") for field in pattern.split(text.rstrip(at_end))]
    if not all("\t" in row.text for row in rows):
        return lambda text: _BY_BLANKS.split(text.rstrip(_BLANK))
    for at_end in (_BLANK.replace("\t", ""), _BLANK):  # a column may be empty, if all rows then have as many
        split = partial(_split_at_tabs, at_end)
        fields = [split(row.text) for row in rows]
        if len(set(map(len, fields))) == 1 and any(row[-1] for row in fields):
            return split
    return lambda text: [field for place, field in enumerate(_split_at_tabs(_BLANK, text)) if field or not place]


def _split_at_tabs(at_end: str, text: str) -> list[str]:
    first, *others = text.rstrip(at_end).split("\t")
    return [first.rstrip(" "), *(field.strip(" ") for field in others)]


def _usual_width(rows: Iterable[Row]) -> int:
    return Counter(len(row.fields) for row in rows).most_common(1)[0][0]


def _is_counted(plain: Sequence[Sequence[Row]]) -> bool:
    """Return True if the first column counts the words of a sentence, as in CoNLL-U and GermEval."""
    rows = [[row.fields[0] for row in block if not _NO_WORD.fullmatch(row.fields[0])] for block in plain]
    numbers = next(filter(None, rows), [])
    first = [field for block in rows for field in block]
    counted = sum(_NUMBER.fullmatch(field) is not None for field in first)
    return numbers == [str(place + 1) for place in range(len(numbers))] and counted > 0.9 * len(first)


def _hash_rule(plain: Sequence[Row], label_column: int, is_counted: bool) -> Callable[[Row], bool]:
    """Return a function that returns True if a row that begins with ``#`` is a word."""
    if is_counted:  # words begin with their number
        return lambda row: False
    width = _usual_width(plain) if plain else None
    last = {row.fields[-1] for row in plain}
    labels = {"O", "#", *(row.fields[label_column] for row in plain if label_column < len(row.fields))}
    labels |= last if len(last) <= _FEW else set()  # else they are lemmas or such

    def is_label(field: str) -> bool:
        return field in labels or SPAN_TAG.fullmatch(field) is not None

    def is_word(row: Row) -> bool:
        fields = row.fields
        if width in (None, len(fields)) and any(map(is_label, (*fields[label_column : label_column + 1], fields[-1]))):
            return True
        if row.text[1:2].isspace():  # "# text = ...", "#<TAB>source"
            return False
        # "#tag" without a label, or with one too many, is a word that is refused later; "#begin document" is logged
        return len(fields) == width or " " not in row.text or is_label(fields[-1])

    return is_word


def _check_widths(path: Path, rows: Sequence[Row], delimiter: str | None) -> None:
    """Refuse rows with different numbers of columns; the message names a row that differs from most."""
    if not rows:
        raise _no_sentence(path)
    width = _usual_width(rows)
    odd = next((row for row in rows if len(row.fields) != width), None)
    if odd is None:
        return
    tabbed = [row for row in rows if "\t" in row.text]
    if not delimiter and len(rows) > len(tabbed) > len(rows) / 2:
        odd = next(row for row in rows if "\t" not in row.text)
        raise FlairNasError(
            f"{path}:{odd.line}: no tab in {odd.text!r}, where {len(tabbed):,} of {len(rows):,} rows have one; "
            "tabs separate columns if every row has one: correct this row"
        )
    usual = next(row for row in rows if len(row.fields) == width)
    others = "nearly all others have" if usual.line > odd.line else f"line {usual.line} has"
    raise FlairNasError(
        f"{path}:{odd.line}: {len(odd.fields)} columns, where {others} {width}: the row is {odd}; columns are parted "
        "by blanks or tabs (or what --delimiter says), sentences by an empty line"
    )


def _refuse_csv(path: Path, some: Sequence[Row]) -> None:
    """Refuse rows with as many commas or semicolons each if blanks part them unevenly, or the first has headings."""
    for mark in ",;":
        count, rows = Counter(row.text.count(mark) for row in some).most_common(1)[0] if some else (0, 0)
        if not count or rows < 0.8 * len(some):
            continue
        fields = {field.strip(' "').casefold() for field in some[0].text.split(mark)}
        widths = {len(row.fields) for row in some}
        if len(widths) > 1 or widths == {1} or fields & {*WORD_HEADINGS}:
            raise FlairNasError(
                f"{path} is CSV, with columns separated by {mark!r} (line {some[0].line} is {some[0].text[:100]!r}): "
                f"write column files with: {_convert(path)}, or add --delimiter '{mark}' if it has neither headings "
                "nor quotes, and an empty line after each sentence"
            )


def _convert(path: Path) -> str:
    return f"flair-nas convert {typed(path)} --out FOLDER"


def _no_sentence(path: Path) -> FlairNasError:
    return FlairNasError(f"{path} holds no sentence: a row for each token is expected, such as 'London B-LOC'")


def _log_kinds(path: Path, marks: Mapping[str, Sequence[Row]], others: Sequence[Row], blocks: Sequence[Block]) -> None:
    """Log the rows that are no words or end sentences, and words with ``#`` that could be comments."""
    rows = [row for block in blocks for row in block.rows]
    hashes = [row for row in rows if row.fields[0] == "#"]
    labels = {row.fields[-1] for row in rows if not row.text.startswith("#")}
    first = sum(block.rows[0].fields[0] == "#" for block in blocks)
    kinds = {
        **marks,
        "words '#'": hashes if marks["comments"] or 2 * first > len(blocks) > 1 else [],
        "words '#...' with a label that no other row has": [
            row for row in rows if row.text[0] == "#" and row.fields[0] != "#" and row.fields[-1] not in labels
        ],
        "ranges of words": [row for row in others if "-" in row.fields[0]],
        "empty nodes": [row for row in others if "." in row.fields[0]],
        "document marks": [row for block in blocks if block.is_mark for row in block.rows],
    }
    if parts := [f"{kind}: {len(rows):,} (first, line {rows[0].line})" for kind, rows in kinds.items() if rows]:
        log.info("%s holds %s", path, ", ".join(parts))
