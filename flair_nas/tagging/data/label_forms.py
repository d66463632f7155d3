"""Forms of labels of spans: BIO, BIOES, BMES, BILOU, without a type, with the type first."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from flair_nas.errors import listed

SPAN_TAG = re.compile(r"[BIES]-.+")
ONE_TYPE = "SPAN"
"""The type of spans whose labels have none."""

_LETTERS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S", "W": "S"}
_LETTER = f"(?P<letter>[{''.join(_LETTERS)}])"
_WITH_LETTER = re.compile(f"(?i:{_LETTER})-(?P<type>.+)")
_LETTER_ALONE = re.compile(_LETTER)
_UNUSUAL = (re.compile(f"{_LETTER}[_:./](?P<type>.+)"), re.compile(f"(?P<type>.+)[-_:./]{_LETTER}"))
_NESTED = re.compile(r"(O|[BIES]-[^|+;,/&]+)([|+;,/&]+(O|[BIES]-[^|+;,/&]+))+")
_WITHOUT_TYPE = re.compile(f"{_LETTER}[-_]")
_NAMED = re.compile(r"[^=]+=[BIES]-.+")  # name=B-PER, among the features of CoNLL-U
_BRACKETS = re.compile(r"\([^()*]+\*?.*|\*\)+")  # (PER* and *), as in CoNLL-2012


class LabelFault(NamedTuple):
    """A label that is no tag, and advice."""

    label: str
    advice: str


class LabelForm(NamedTuple):
    """The form of a column's labels.

    Args:
        tags: the BIOES tag of each label, or None if the labels are of single words.
        note: a remark for the log, or an empty text.
    """

    tags: Mapping[str, str] | None
    note: str = ""


def form_of(labels: Collection[str]) -> LabelForm | LabelFault:
    """Return the form of labels, or the first faulty label.

    Args:
        labels: the different values of a column of labels.
    """
    for label in sorted(labels):
        if label in ("", "_"):
            return LabelFault(label, "stands for no label; write O, as BIO does, or choose another column by --columns")
        if _NAMED.fullmatch(label):
            return LabelFault(label, "has a name before the tag; write the tag alone into a column of its own")
        if _NESTED.fullmatch(label):
            return LabelFault(label, "is of nested spans; write a column for each layer, and choose one by --columns")
        if _BRACKETS.fullmatch(label) and "*" in labels:
            return LabelFault(label, "marks spans by brackets, as CoNLL-2012 does; convert the file to BIO")
        if _WITHOUT_TYPE.fullmatch(label):
            return LabelFault(label, f"has no type; write {label}PER, or {label[0]} alone for spans of one type")
    inside = sorted(set(labels) - {"O"})
    if all(map(SPAN_TAG.fullmatch, inside)):
        return LabelForm({label: label for label in labels})
    strange = [label for label in inside if not _WITH_LETTER.fullmatch(label)]
    if strange and any(map(SPAN_TAG.fullmatch, inside)):
        return LabelFault(
            strange[0],
            "among tags such as 'B-PER'; all have to be O or begin with B-, I-, E- or S-: correct the row, or convert "
            "the file to BIO",
        )
    inside = [label for label in inside if label != "o"] or inside
    for form in (_WITH_LETTER, _LETTER_ALONE, *_UNUSUAL):
        matches = {label: match for label in inside if (match := form.fullmatch(label))}
        letters = {match["letter"].upper() for match in matches.values()}
        if len(matches) < len(inside) or form is not _WITH_LETTER and not letters & {"B", "I"}:
            continue
        if form in _UNUSUAL and "O" not in labels:
            continue
        types = {label: match.groupdict().get("type", ONE_TYPE) for label, match in matches.items()}
        tags = {label: f"{_LETTERS[match['letter'].upper()]}-{types[label]}" for label, match in matches.items()}
        read = (
            f"spans of one type, {ONE_TYPE}" if form is _LETTER_ALONE else listed([tags[label] for label in inside], 4)
        )
        return LabelForm({"O": "O", "o": "O", **tags}, f"labels {listed(inside, 4)} are read as {read}")
    if "O" not in labels:
        return LabelForm(None)
    return LabelForm(
        None,
        f"labels such as {inside[0]!r} have no B- or I-, so they are of single words, as O is, and figures "
        f"count words; for spans, write B-{inside[0]} on the first word and I-{inside[0]} on further ones",
    )
