"""Annotated data as other tools export it: CSV with sentence numbers, JSON with character offsets or with tokens."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from flair_nas.errors import FlairNasError, brief, listed
from flair_nas.storage.paths import read_utf8
from flair_nas.tagging.data.column_rows import SENTENCE_HEADING, WORD_HEADINGS
from flair_nas.tagging.data.label_forms import SPAN_TAG

log = logging.getLogger("flair_nas")

_LABEL_HEADINGS = ("tag", "tags", "ner", "ner_tag", "ner_tags", "label", "labels", "bio", "iob")
_TOKENS, _TAGS = ("tokens", "words"), ("ner_tags", "tags", "ner", "labels", "label")
_SPANS = ("spans", "entities", "label", "labels")
_START, _BETWEEN = re.compile(r"\s*(\[(?=\s*[\[{]))?\s*"), re.compile(r"[\s,]*")  # of records, in a list or without
_KINDS = (
    '{"text": ..., "spans": [{"start": 0, "end": 5, "label": "PER"}]}, {"text": ..., "label": [[0, 5, "PER"]]}, '
    '{"tokens": [...], "ner_tags": [...]} or the JSON of Label Studio'
)


class Span(NamedTuple):
    """A labelled part of a text; `quoted` is its text if the file repeats it."""

    start: int
    end: int
    label: str
    quoted: str | None = None


class Tagged(NamedTuple):
    """The words of a sentence with their tags, and the line in which it begins."""

    line: int
    words: list[str]
    tags: list[str]


class Annotated(NamedTuple):
    """A text of any number of sentences with spans, and the line in which it begins."""

    line: int
    text: str
    spans: list[Span]


Records: TypeAlias = "Iterator[Tagged | Annotated]"


class Notes(dict[str, list[str]]):
    """Notes on what is left out or changed, by kind, with the lines."""

    def add(self, kind: str, line: int, what: str = "") -> None:
        """Add a line, and what it has, to those of a kind."""
        self.setdefault(kind, []).append(f"line {line}{what and f', {what}'}")

    def report(self, path: Path) -> None:
        """Log each kind with its first three places."""
        for kind, places in self.items():
            log.warning("%s: %s: %s (%s)", path, kind, f"{len(places):,}", "; ".join(places[:3]))


def read_annotations(path: Path, notes: Notes) -> Records:
    """Read a file of CSV or JSON. Errors name the line."""
    text = read_utf8(path)
    return _read_json(path, text, notes) if text.lstrip()[:1] in ("{", "[") else _read_csv(path, text, notes)


def _read_csv(path: Path, text: str, notes: Notes) -> Records:
    """Read a row for each word, with a sentence number in each row or in the first row of a sentence."""
    rows = _read_rows(path, text)
    (_, headings), rows = rows[0], rows[1:]
    word, label, number = _find_columns(path, headings)
    if number is None and all(fields for _, fields in rows):
        raise FlairNasError(f"{path}: nothing says where sentences end; add a column 'Sentence #' that numbers them")
    sentences: list[Tagged] = []
    seen = {current := ""}
    begins = True
    for line, fields in rows:
        value = fields[number] if fields and number is not None else ""
        if value and value != current:
            begins, current = True, value
            if value in seen:
                notes.add("sentence numbers that come again, taken for new sentences", line, brief(value))
            seen.add(value)
        if not fields:
            begins = True
            continue
        if begins:
            sentences.append(Tagged(line, [], []))
            begins = False
        sentences[-1].words.append(fields[word])
        sentences[-1].tags.append(fields[label])
    if number is not None and len(rows) == len(sentences) > 1:
        raise FlairNasError(f"{path}: the column {headings[number]!r} differs in all rows, so it numbers no sentences")
    yield from sentences


def _read_rows(path: Path, text: str) -> list[tuple[int, list[str]]]:
    """Return line and fields of each row of CSV, without fields for an empty one; the first has the headings."""
    mark = max(",;\t", key=text.lstrip("\r\n").partition("\n")[0].count)
    # a word that is a quote is written as """" in CSV, but as it is in most files with tabs
    quoting: Any = csv.QUOTE_NONE if mark == "\t" and '""' not in text else csv.QUOTE_MINIMAL
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark, quoting=quoting)
    rows: list[tuple[int, list[str]]] = []
    try:
        for row in reader:
            fields = [field.strip() for field in row]
            if not rows and not any(fields):
                continue  # an empty line before the headings
            line = reader.line_num
            if any("\n" in field or "\r" in field for field in fields):
                raise FlairNasError(f'{path}:{line}: a quote before it is not closed; a quote that is a word is """"')
            if rows and any(fields) and len(fields) != len(rows[0][1]):
                raise FlairNasError(
                    f"{path}:{line}: {len(fields)} columns, where line {rows[0][0]} names {len(rows[0][1])}; put "
                    f"quotes around a field that holds {mark!r}"
                )
            rows.append((line, fields if any(fields) else []))
    except csv.Error as error:
        raise FlairNasError(f"{path}:{reader.line_num}: not CSV ({error}); is a quote before it not closed?") from None
    if not rows:
        raise FlairNasError(f"{path} is empty")
    return rows


def _find_columns(path: Path, headings: Sequence[str]) -> tuple[int, int, int | None]:
    """Return the columns of words, of labels and of sentence numbers, and log them."""
    names = [heading.casefold() for heading in headings]
    word = next((place for place, name in enumerate(names) if name in WORD_HEADINGS), None)
    number = next((place for place, name in enumerate(names) if SENTENCE_HEADING.fullmatch(name)), None)
    others = [place for place in range(len(names)) if place not in (word, number)]
    tag = headings[-1].rpartition(" ")[2]
    if word is None and (tag == "O" or SPAN_TAG.fullmatch(tag)):
        raise FlairNasError(
            f"{path}:1: a column file as it is: the row ends with the tag {tag!r}; put it as train.txt into a folder, "
            "and name the folder as corpus"
        )
    if word is None or not others:
        expected = "headings such as 'Sentence #', 'Word' and 'Tag' are expected"
        raise FlairNasError(f"{path}:1: {expected}, got {brief(list(headings))}; name the columns so, if this is CSV")
    labels = [place for place in others if names[place] in _LABEL_HEADINGS]
    label = (labels or others)[-1]
    unused = [repr(headings[place]) for place in others if place != label]
    log.info(
        "%s: words of column %r, labels of column %r%s%s",
        *(path, headings[word], headings[label]),
        f", sentences by column {headings[number]!r}" if number is not None else "",
        f"; not used: {listed(unused)}" if unused else "",
    )
    return word, label, number


def _read_json(path: Path, text: str, notes: Notes) -> Records:
    """Read records, one after another or in a list."""
    decoder = json.JSONDecoder()
    start = _START.match(text)
    assert start is not None
    end, counted, line = start.end(), 0, 1
    while end < len(text) and not (text[end] == "]" and start[1]):
        line, counted = line + text.count("\n", counted, end), end
        try:
            record, end = decoder.raw_decode(text, end)
        except json.JSONDecodeError as error:
            raise FlairNasError(f"{path}:{error.lineno}: not JSON ({error.msg}); is the file cut short?") from None
        yield from _read_record(f"{path}:{line}", line, record, notes)
        end += len(_BETWEEN.match(text, end)[0])  # type: ignore[index]  # it matches an empty text
    if bool(start[1]) != (text[end:].strip() == "]"):
        raise FlairNasError(f"{path}: not JSON: the list of records does not end as it should; is the file cut short?")


def _read_record(where: str, line: int, record: Any, notes: Notes) -> Records:
    """Yield what a record of JSON holds, if it is annotated."""
    if isinstance(record, list) and len(record) == 2 and isinstance(record[1], dict):  # of spaCy 2
        record = {"text": record[0], **record[1]}
    if not isinstance(record, dict):
        raise FlairNasError(f"{where}: {brief(record)} is no record; known are {_KINDS}")
    words, tags = _first_list(record, _TOKENS), _first_list(record, _TAGS)
    if isinstance(record.get("data"), dict):
        yield from _read_label_studio(where, line, record, notes)
    elif (answer := record.get("answer", "accept")) != "accept":  # of Prodigy
        notes.add("texts that were not accepted, left out", line, brief(answer))
    elif words is not None and tags is not None and all(isinstance(word, str) for word in words):
        if any(isinstance(tag, int) for tag in tags):
            raise FlairNasError(f"{where}: tags are numbers; write the names that they stand for, such as 'B-PER'")
        if len(words) != len(tags) or not all(isinstance(tag, str) for tag in tags):
            raise FlairNasError(f"{where}: {len(words)} tokens and {len(tags)} tags; each token needs a tag, a text")
        yield Tagged(line, list(words), list(tags))
    elif isinstance(record.get("text"), str) and ("answer" in record or any(key in record for key in _SPANS)):
        items: Any = next((record[key] for key in _SPANS if record.get(key)), [])
        yield Annotated(line, record["text"], _read_spans(where, items))
    else:
        raise FlairNasError(f"{where}: a record with the keys {listed([*record])} is not known; known are {_KINDS}")


def _first_list(record: Mapping[str, Any], keys: Sequence[str]) -> list[Any] | None:
    return next((record[key] for key in keys if isinstance(record.get(key), list)), None)


def _read_label_studio(where: str, line: int, task: Mapping[str, Any], notes: Notes) -> Records:
    """Yield the text of a task with the spans of its first annotation."""
    data = task["data"]
    texts = [data["text"]] if "text" in data else [value for value in data.values() if isinstance(value, str)]
    if len(texts) != 1 or not isinstance(texts[0], str):
        raise FlairNasError(f"{where}: the data of this task is no single text: {brief(data)}; name the text 'text'")
    annotations = task.get("annotations") or []
    if not isinstance(annotations, list) or not all(isinstance(each, dict) for each in annotations):
        raise FlairNasError(f"{where}: the annotations of this task are no list of objects: {brief(annotations)}")
    annotations = [each for each in annotations if not each.get("was_cancelled")]
    if not annotations:
        notes.add("tasks without an annotation, left out", line, brief(texts[0], 60))
        return
    if len(annotations) > 1:
        notes.add("tasks with several annotations, of which the first counts", line)
    values = []
    for result in annotations[0].get("result", ()):
        if "labels" in (value := result.get("value") or {}):
            values.append(value)
        else:
            notes.add("results other than spans, left out", line, brief(result.get("type")))
    yield Annotated(line, texts[0], _read_spans(where, values))


def _read_spans(where: str, items: Any) -> list[Span]:
    """Return spans that are lists of start, end and label, or have these names; several labels make several spans."""
    spans: list[Span] = []
    for item in items if isinstance(items, list) else [items]:
        quoted = None
        if isinstance(item, dict):
            start, end = (item.get(name, item.get(f"{name}_offset")) for name in ("start", "end"))
            label = item.get("label") or item.get("labels")
            quoted = text if isinstance(text := item.get("text"), str) else None
        else:
            start, end, label = item if isinstance(item, list) and len(item) == 3 else (None, None, None)
        for one in label if isinstance(label, list) else [label]:
            if not (type(start) is type(end) is int and isinstance(one, str) and one.strip() and one.isprintable()):
                needs = "it needs start and end, counted in characters from 0, and a label"
                raise FlairNasError(f"{where}: {brief(item)} is no span: {needs}")
            spans.append(Span(start, end, one.strip(), quoted))
    return list(dict.fromkeys(spans))
