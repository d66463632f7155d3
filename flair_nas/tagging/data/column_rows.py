"""Rows of a column file: which lines are words, and which are comments, document marks or ranges of words."""

from __future__ import annotations

import io
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from flair_nas.errors import FlairNasError, brief
from flair_nas.settings.fields import setting
from flair_nas.storage.paths import read_utf8, typed
from flair_nas.tagging.data.label_forms import SPAN_TAG

DOCUMENT_SEPARATOR = "-DOCSTART-"

log = logging.getLogger("flair_nas")

_BLANK = " \t\n\r\f\v"
_BY_BLANKS = re.compile("[ \t]+")
_NUMBER = re.compile("[0-9]+")
_NO_WORD = re.compile(r"[0-9]+[-.][0-9]+")  # of CoNLL-U: a range of words, 3-4, or an empty node, 5.1
_LONG = 200  # words of a sentence
_JSON = re.compile(r'\s*([\[{]\s*$|\{\s*"|\[\s*[\[{"])')
_ENDS_SENTENCE = "EndOfSentence"  # in a column of HIPE, alone or as in NoSpaceAfter|EndOfSentence

WORD_HEADINGS = {"token", "tokens", "word", "words", "form", "text"}
"""Names of the column of words in a row that names the columns."""
SENTENCE_HEADING = re.compile(r"sent(ence)?s?[ _]*(#|id|idx|index|no|nr|number|num)?\.?", re.IGNORECASE)
"""Names of a column that numbers sentences."""


def _check_delimiter(text: str) -> str:
    """Return the fault of a text as the delimiter of columns, or an empty text."""
    if len(text) < 2:
        return ""
    try:
        pattern = re.compile(text)
    except re.error as error:
        return f"must be a regular expression ({error})"
    return "must match no empty text and have no groups but (?:...)" if pattern.match("") or pattern.groups else ""


@dataclass
class ColumnFormat:
    """The format of a column file. Each field is also a setting of all commands that read a corpus."""

    delimiter: str | None = setting(
        None, "a character or regular expression that separates columns (tabs if each row has one, else blanks)",
        check=_check_delimiter, flair="column_delimiter",
    )  # fmt: skip
    comment: str | None = setting(
        None, "beginning of rows that are comments (# in rows that are no words)", flair="comment_symbol"
    )


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


def count_columns(path: Path, form: ColumnFormat) -> int:
    """Return the number of columns that most rows of a file have, which is at least two.

    The last one has the labels. Others that have tags of spans, too, are logged.
    """
    rows = _plain([row for block in _read_rows(path, form) for row in block], form)
    if not rows:
        raise _no_sentence(path)
    if (width := _usual_width(rows)) < 2:
        raise FlairNasError(
            f"{path}:{rows[0].line}: no label column, the row is {rows[0]}; columns are separated by blanks or tabs, "
            f"and the label is the last. For CSV: {_convert(path)}, or --delimiter"
        )
    for column in range(1, width - 1):
        texts = {row.fields[column] for row in rows if len(row.fields) == width} - {"O", "_"}
        if texts and all(map(SPAN_TAG.fullmatch, texts)):
            log.info(
                "%s: the last column has the labels; column %d has tags of spans, too, as %s: --columns text=0,ner=%d",
                *(path, column, min(texts), column),
            )
    return width


def read_blocks(path: Path, text_column: int, label_column: int, form: ColumnFormat) -> list[Block]:
    """Return the words of a file by sentence, log the number of other rows, and warn of long sentences.

    The first row may name the columns. Where a column holds ``EndOfSentence``, the sentence ends after the row. By
    default, a row that begins with ``#`` is a word if it has a label and as many columns as others.
    """
    raw = _read_rows(path, form)
    headings = _find_headings(_plain([row for block in raw for row in block], form), text_column, label_column)
    plain = [[row for row in block if not _may_be_mark(row.text, form) and row not in headings] for block in raw]
    is_counted = text_column > 0 and _is_counted(plain)
    is_word = _hash_rule([row for block in plain for row in block], label_column, is_counted)

    ends = f"{_ENDS_SENTENCE!r}, which ends a sentence"
    kinds: dict[str, list[Row]] = defaultdict(list)
    blocks = [Block([])]
    for rows in raw:
        for row in rows:
            if row in headings:
                kinds["headings"].append(row)
            elif row.text.startswith(form.comment or "#") and (form.comment or not is_word(row)):
                kinds["comments"].append(row)
            elif is_counted and _NO_WORD.fullmatch(row.fields[0]):
                kinds["ranges of words" if "-" in row.fields[0] else "empty nodes"].append(row)
            elif DOCUMENT_SEPARATOR in (row.fields[0], *row.fields[text_column : text_column + 1]):
                kinds["document marks"].append(row)
                blocks += [Block([row], is_mark=True), Block([])]
            else:
                blocks[-1].rows.append(row)
                others = (field.split("|") for place, field in enumerate(row.fields) if place != text_column)
                if _ENDS_SENTENCE in row.text and any(_ENDS_SENTENCE in parts for parts in others):
                    kinds[ends].append(row)
                    blocks.append(Block([]))
        blocks.append(Block([]))
    blocks = [block for block in blocks if block.rows]
    _check_widths(path, [row for block in blocks if not block.is_mark for row in block.rows])
    if parts := [f"{kind}: {len(rows):,} (first, line {rows[0].line})" for kind, rows in kinds.items()]:
        log.info("%s holds %s", path, ", ".join(parts))
    _warn_of_long(path, blocks)
    return blocks


def _read_rows(path: Path, form: ColumnFormat) -> list[list[Row]]:
    """Return all rows, by the empty lines between them. Refuse JSON, and CSV that has headings."""
    lines = [line.rstrip("\n") for line in io.StringIO(read_utf8(path), newline=None)]
    texts = [line for line in lines if line and not line.isspace()]
    first = texts[0] if texts else ""
    headings = {field.strip(' "').casefold() for field in re.split("[,;\t]", first)}
    is_csv = not form.delimiter and len(headings) > 1 and "\t" not in first
    is_csv = not headings.isdisjoint(WORD_HEADINGS) and (is_csv or any(map(SENTENCE_HEADING.fullmatch, headings)))
    if _JSON.match(first) or is_csv:
        raise FlairNasError(f"{path} is JSON or CSV with headings; write column files with: {_convert(path)}")
    split = _splitter([text for text in texts if not _may_be_mark(text, form)] or texts, form.delimiter)
    blocks: list[list[Row]] = [[]]
    for number, line in enumerate(lines, start=1):
        if line and not line.isspace():
            blocks[-1].append(Row(number, line, split(line)))
        else:
            blocks.append([])
    return blocks


def _plain(rows: Sequence[Row], form: ColumnFormat) -> Sequence[Row]:
    """Return the rows that are certainly words, or all rows if there are none."""
    return [row for row in rows if not _may_be_mark(row.text, form)] or rows


def _may_be_mark(text: str, form: ColumnFormat) -> bool:
    """Return True if a row may be a comment or a document mark."""
    return text.startswith((form.comment or "#", DOCUMENT_SEPARATOR))


def _splitter(texts: Sequence[str], delimiter: str | None) -> Callable[[str], list[str]]:
    """Return a function that splits a line into columns, chosen by lines that are certainly words."""
    if delimiter:
        if problem := _check_delimiter(delimiter):
            raise FlairNasError(f"delimiter {problem}, got {brief(delimiter)}")
        pattern = re.compile(re.escape(delimiter) if len(delimiter) == 1 else delimiter)
        at_end = _BLANK.replace("\t", "") if delimiter in ("\t", r"\t") else _BLANK
        return lambda text: [field.strip(" \t") for field in pattern.split(text.rstrip(at_end))]
    if not all("\t" in text for text in texts):
        return lambda text: _BY_BLANKS.split(text.rstrip(_BLANK))
    for at_end in (_BLANK.replace("\t", ""), _BLANK):  # a column may be empty, if all rows then have as many
        rows = [_split_at_tabs(text, at_end) for text in texts]
        if len({*map(len, rows)}) == 1 and any(row[-1] for row in rows):
            return lambda text: _split_at_tabs(text, at_end)
    return lambda text: [field for place, field in enumerate(_split_at_tabs(text, _BLANK)) if field or not place]


def _split_at_tabs(text: str, at_end: str) -> list[str]:
    first, *others = text.rstrip(at_end).split("\t")
    return [first.rstrip(" "), *(field.strip(" ") for field in others)]


def _usual_width(rows: Iterable[Row]) -> int:
    return Counter(len(row.fields) for row in rows).most_common(1)[0][0]


def _find_headings(rows: Sequence[Row], text_column: int, label_column: int) -> Collection[Row]:
    """Return the first row if it names the columns: a heading of words, and a label that no other row has."""
    if not rows:
        return ()
    heading, label = ("".join(rows[0].fields[column : column + 1]) for column in (text_column, label_column))
    if heading.casefold() not in WORD_HEADINGS or label in ("", "O") or SPAN_TAG.fullmatch(label):
        return ()
    return () if any(label in row.fields[label_column : label_column + 1] for row in rows[1:]) else rows[:1]


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
    labels = {"O", "#", *(row.fields[label_column] for row in plain if label_column < len(row.fields))}

    def is_label(field: str) -> bool:
        return field in labels or SPAN_TAG.fullmatch(field) is not None

    def is_word(row: Row) -> bool:
        fields, fits = row.fields, len(row.fields) == width
        if (fits or not plain) and any(map(is_label, (*fields[label_column : label_column + 1], fields[-1]))):
            return True
        # "# text = ..." and "#begin document (x)" are comments; "#tag" is a word, which is refused if its width is odd
        return not row.text[1:2].isspace() and (fits or " " not in row.text or is_label(fields[-1]))

    return is_word


def _check_widths(path: Path, rows: Sequence[Row]) -> None:
    """Refuse rows with different numbers of columns; the message names a row that differs from most."""
    if not rows:
        raise _no_sentence(path)
    width = _usual_width(rows)
    if odd := next((row for row in rows if len(row.fields) != width), None):
        raise FlairNasError(
            f"{path}:{odd.line}: {len(odd.fields)} columns, where most rows have {width}: the row is {odd}; columns "
            "are separated by blanks, or by tabs if every row has one (or --delimiter), sentences by an empty line"
        )


def _warn_of_long(path: Path, blocks: Sequence[Block]) -> None:
    """Warn of long sentences, which take much time and memory, and may be several."""
    if long := [block.rows for block in blocks if len(block.rows) > _LONG]:
        others = f" ({len(long)} sentences have more than {_LONG})" if len(long) > 1 else ""
        log.warning(
            "%s:%d: a sentence of %s words begins here%s; an empty line ends a sentence, is one missing?",
            *(path, long[0][0].line, f"{len(long[0]):,}", others),
        )


def _convert(path: Path) -> str:
    return f"flair-nas convert {typed(path)} --out FOLDER"


def _no_sentence(path: Path) -> FlairNasError:
    return FlairNasError(f"{path} holds no sentence: a row for each token is expected, such as 'London B-LOC'")
