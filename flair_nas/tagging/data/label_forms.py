"""Forms of labels of spans: BIO, BIOES, BMES, BILOU, without a type, with the type first."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from flair_nas.errors import FlairNasError, listed

log = logging.getLogger("flair_nas")

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
_OF_FLAIR = ("<unk>", "<START>", "<STOP>")
_BRACKETS = re.compile(r"\([^()*]+\*?.*|\*\)+")  # (PER* and *), as in CoNLL-2012


def read_labels(path: Path, lines: Mapping[str, int]) -> Mapping[str, str] | None:
    """Return the BIOES tag of each label, or None if labels are of single words; log a form other than BIO.

    `lines` has the number of the first line of the file with each label, for errors.
    """
    labels = lines.keys()
    for label in sorted(labels):
        if fault := _find_fault(label, labels):
            raise FlairNasError(f"{path}:{lines[label]}: {label!r} {fault}")
    inside = sorted(set(labels) - {"O"})
    if all(map(SPAN_TAG.fullmatch, inside)):
        return {label: label for label in labels}
    strange = [label for label in inside if not _WITH_LETTER.fullmatch(label)]
    if strange and any(map(SPAN_TAG.fullmatch, inside)):
        raise FlairNasError(
            f"{path}:{lines[strange[0]]}: {strange[0]!r} among tags such as 'B-PER'; all have to be O or begin with "
            "B-, I-, E- or S-: correct the row (delete it if it names the columns), or convert the file to BIO"
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
        read = listed([tags[label] for label in inside], 4)
        read = f"spans of one type, {ONE_TYPE}" if form is _LETTER_ALONE else read
        log.info("%s: labels %s are read as %s", path, listed(inside, 4), read)
        return {"O": "O", "o": "O", **tags}
    if "O" in labels:
        log.warning(
            "%s: labels such as %r have no B- or I-, so they are of single words, as O is, and figures count words; "
            "for spans, write B-%s on the first word and I-%s on further ones",
            *(path, *3 * inside[:1]),
        )
    return None


def begins(before: str, tag: str) -> bool:
    """Return True if an entity begins at a tag, in any of BIO, IOB1, BIOES and IOE2."""
    return tag[0] in "BS" or (tag[0] in "IE" and (before[0] not in "BI" or before[2:] != tag[2:]))


def to_bio(tags: Sequence[str]) -> list[str]:
    """Return BIO tags; Flair's own decoder continues a span at an E- after another E- or another type."""
    before = ("O", *tags)
    return [("B" if begins(b, tag) else "I") + tag[1:] if tag[0] in "BIES" else "O" for b, tag in zip(before, tags)]


def _find_fault(label: str, labels: Collection[str]) -> str:
    """Return the fault of a label and its remedy, or an empty text."""
    if label in _OF_FLAIR or label[2:] in _OF_FLAIR:
        return "is a label that Flair has of its own; call it otherwise"
    if label in ("", "_"):
        return "stands for no label; write O, as BIO does, or choose another column by --columns"
    if _NAMED.fullmatch(label):
        return "has a name before the tag; write the tag alone into a column of its own"
    if _NESTED.fullmatch(label):
        return "is of nested spans; write a column for each layer, and choose one by --columns"
    if _BRACKETS.fullmatch(label) and "*" in labels:
        return "marks spans by brackets, as CoNLL-2012 does; convert the file to BIO"
    if _WITHOUT_TYPE.fullmatch(label):
        return f"has no type; write {label}PER, or {label[0]} alone for spans of one type"
    return ""
