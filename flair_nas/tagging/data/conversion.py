"""Conversion of annotated data that other tools export to column files."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from segtok.segmenter import split_single

from flair_nas.errors import FlairNasError, brief
from flair_nas.runtime.words import split_words
from flair_nas.storage.files import whole_file
from flair_nas.storage.parts import PART_NAMES, part_of
from flair_nas.storage.paths import typed, user_path
from flair_nas.tagging.data.annotations import Annotated, Notes, Span, Tagged, read_annotations
from flair_nas.tagging.data.label_forms import read_labels, to_bio


class ConvertedPart(NamedTuple):
    """A column file that was written."""

    path: Path
    sentences: int  # number of sentences
    words: int  # number of words
    labels: Counter[str]  # of entities by label, or of words where labels have no B- and I-


def convert_corpus(files: str | Path | Sequence[str | Path], out: str | Path) -> dict[str, ConvertedPart]:
    """Write a folder of column files from data that other tools export, as `load_corpus` and `tag train` take it.

    What is left out or changed is logged: spans that end within a word, overlaps, empty texts and others.

    Args:
        files: CSV with headings, a row for each word, and a column that numbers sentences; or JSON, also a record in
            each line, with a text and spans of characters (spaCy, Prodigy, doccano, Label Studio), or with tokens and
            tags. A file with ``dev``, ``valid`` or ``test`` in its name becomes that part, all others ``train``.
        out: the folder for ``train.txt``, ``dev.txt`` and ``test.txt``. None of them may be there.

    Returns:
        The written files by part.

    Raises:
        FlairNasError: a file cannot be used, or would be replaced. Nothing is written then.

    Example:
        >>> from pathlib import Path
        >>> from flair_nas import convert_corpus
        >>> text = '{"text": "Ada lives in Leeds.", "spans": [{"start": 13, "end": 18, "label": "LOC"}]}'
        >>> _ = Path("places.jsonl").write_text(text)
        >>> convert_corpus(["places.jsonl"], "places")["train"].labels
        Counter({'LOC': 1})
    """
    files = [files] if isinstance(files, (str, Path)) else files
    sources: dict[str, list[Path]] = {}
    for file in map(user_path, files):
        sources.setdefault(part_of(file) or "train", []).append(file)
    paths = {part: user_path(out) / f"{part}.txt" for part in PART_NAMES if part in sources}
    if there := [typed(path) for path in paths.values() if path.exists()]:
        raise FlairNasError(f"{', '.join(there)} would be replaced; give another --out, or delete it")
    parts = {part: [sentence for file in sources[part] for sentence in _convert(file)] for part in paths}
    user_path(out).mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:  # all files, or none
        for part, path in paths.items():
            rows = ("".join(f"{word}\t{tag}\n" for word, tag in sentence) for sentence in parts[part])
            stack.enter_context(whole_file(path)).write_text("\n".join(rows), encoding="utf-8")
    return {part: _describe(paths[part], parts[part]) for part in paths}


def _describe(path: Path, sentences: Sequence[Sequence[tuple[str, str]]]) -> ConvertedPart:
    tags = Counter(tag for sentence in sentences for _, tag in sentence)
    is_spans = all(tag == "O" or tag[:2] in ("B-", "I-") for tag in tags)
    labels = Counter({tag[2:]: n for tag, n in tags.items() if tag[:2] == "B-"}) if is_spans else tags
    return ConvertedPart(path, len(sentences), sum(map(len, sentences)), labels)


def _convert(path: Path) -> list[list[tuple[str, str]]]:
    """Return the sentences of a file as words with tags, and log what is left out or changed."""
    notes = Notes()
    sentences: list[Tagged] = []
    for record in read_annotations(path, notes):
        if isinstance(record, Tagged):
            sentences += _plain_words(record, notes)
        else:
            sentences += _tag(record, notes)
    if not sentences:
        notes.report(path)
        raise FlairNasError(f"{path} holds no annotated sentence")
    lines = {tag: sentence.line for sentence in reversed(sentences) for tag in sentence.tags}
    forms = read_labels(path, lines)
    converted = []
    for line, words, tags in sentences:
        bio = to_bio([forms[tag] for tag in tags]) if forms else tags
        for word, tag, now in zip(words, tags, bio):
            if now != tag:
                notes.add("tags in another form than BIO, rewritten", line, f"{brief(word)}: {tag} to {now}")
        converted.append(list(zip(words, bio)))
    notes.report(path)
    return converted


def _plain_words(sentence: Tagged, notes: Notes) -> Iterator[Tagged]:
    """Yield a sentence whose words fit into a column: without line ends and tabs, and none of white space alone."""
    line, words, tags = sentence
    kept = Tagged(line, [], [])
    begins = ""  # the tag of a word before that is left out, which begins an entity
    for word, tag in zip(words, tags):
        text = " ".join(word.split())
        if not text:
            notes.add("words of white space alone, left out", line, f"{word!r}, {tag}")
            begins = tag if tag.startswith("B-") else begins
            continue
        if text != word:
            notes.add("words with white space, which becomes a blank", line, brief(word))
        kept.words.append(text)
        kept.tags.append(begins if begins and tag == f"I{begins[1:]}" else tag)
        begins = ""
    if kept.words:
        yield kept
    else:
        notes.add("sentences without words, left out", line)


def _tag(record: Annotated, notes: Notes) -> Iterator[Tagged]:
    """Yield the sentences of a text, whose words `tag predict` finds, with the tags of its spans."""
    line, text, _ = record
    spans = _fitting(record, notes)
    places = _split_sentences(text, spans)
    if not places:
        notes.add("texts without words, left out", line)
    for start, end in places:
        words = [(start + word.start, start + word.start + len(word.text)) for word in split_words(text[start:end])]
        tags = ["O"] * len(words)
        for span in (span for span in spans if start <= span.start < end):
            inside = [place for place, (first, last) in enumerate(words) if first < span.end and last > span.start]
            shown = brief(text[span.start : span.end], 60)
            if not inside:
                notes.add("spans without a word, left out", line, shown)
                continue
            if any(tags[place] != "O" for place in inside):
                notes.add("spans that overlap a longer or earlier one, left out", line, f"{shown}, {span.label}")
                continue
            whole = words[inside[0]][0], words[inside[-1]][1]
            if whole != (span.start, span.end):
                notes.add(
                    "spans that end within a word, widened to all of it",
                    *(line, f"{shown} to {brief(text[slice(*whole)], 60)}"),
                )
            for place in inside:
                tags[place] = f"{'B' if place == inside[0] else 'I'}-{span.label}"
        if words:
            yield Tagged(line, [text[first:last] for first, last in words], tags)


def _fitting(record: Annotated, notes: Notes) -> list[Span]:
    """Return the spans that lie within the text, without white space at their ends; the longest come first."""
    spans: list[Span] = []
    for span in record.spans:
        start, end = span.start, span.end
        part = record.text[start:end] if 0 <= start < end <= len(record.text) else ""
        quoted = None if span.quoted is None else span.quoted.replace("\\n", "\n").split()
        if not part.strip() or (quoted is not None and quoted != part.split()):
            what = f"{start} to {end}, {brief(part, 60)}" + (f", not {brief(span.quoted, 60)}" if span.quoted else "")
            notes.add("spans that do not fit the text, left out", record.line, what)
            continue
        start, end = start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())
        if end - start < len(part):
            notes.add("spans with white space at an end, taken without it", record.line, brief(part, 60))
        spans.append(Span(start, end, span.label))
    return sorted(dict.fromkeys(spans), key=lambda span: (span.start - span.end, span.start))


def _split_sentences(text: str, spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Return start and end of each sentence; no sentence ends within a span."""
    places: list[tuple[int, int]] = []
    text, end = text.replace("\r", "\n"), 0
    for sentence in split_single(text):
        if not sentence.strip():
            continue
        start = text.index(sentence, end)
        end = start + len(sentence)
        if places and any(span.start < places[-1][1] and start < span.end for span in spans):
            start = places.pop()[0]
        places.append((start, end))
    return places
