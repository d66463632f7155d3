"""Forms of labels of spans: BIO, BIOES, BMES, BILOU, without a type, with the type first."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

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


class TagError(Exception):
    """A label that is no tag; its arguments are the label and advice."""


def read_labels(labels: Collection[str]) -> tuple[Mapping[str, str] | None, str]:
    """Return the BIOES tag of each label, or None if labels are of single words, and a remark or an empty text.

    Raises:
        TagError: a label is faulty.
    """
    for label in sorted(labels):
        if label in ("", "_"):
            raise TagError(label, "stands for no label; write O, as BIO does, or choose another column by --columns")
        if _NAMED.fullmatch(label):
            raise TagError(label, "has a name before the tag; write the tag alone into a column of its own")
        if _NESTED.fullmatch(label):
            raise TagError(label, "is of nested spans; write a column for each layer, and choose one by --columns")
        if _BRACKETS.fullmatch(label) and "*" in labels:
            raise TagError(label, "marks spans by brackets, as CoNLL-2012 does; convert the file to BIO")
        if _WITHOUT_TYPE.fullmatch(label):
            raise TagError(label, f"has no type; write {label}PER, or {label[0]} alone for spans of one type")
    inside = sorted(set(labels) - {"O"})
    if all(map(SPAN_TAG.fullmatch, inside)):
        return {label: label for label in labels}, ""
    strange = [label for label in inside if not _WITH_LETTER.fullmatch(label)]
    if strange and any(map(SPAN_TAG.fullmatch, inside)):
        raise TagError(
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
        return {"O": "O", "o": "O", **tags}, f"labels {listed(inside, 4)} are read as {read}"
    if "O" not in labels:
        return None, ""
    return (
        None,
        f"labels such as {inside[0]!r} have no B- or I-, so they are of single words, as O is, and figures "
        f"count words; for spans, write B-{inside[0]} on the first word and I-{inside[0]} on further ones",
    )
