"""Prediction with trained taggers: loading, tagging lines, and writing the result."""

from __future__ import annotations

import io
import itertools
import json
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import flair
import torch
from flair.data import Sentence, Token
from flair.embeddings import CharacterEmbeddings
from flair.models import SequenceTagger

from flair_nas.errors import FlairNasError, shown
from flair_nas.library.downloads import PREFIX, fetch_folder, refuse_offline
from flair_nas.runs.checkpoints import verify_checksums
from flair_nas.runtime.vectors import mix_up
from flair_nas.runtime.words import check_characters, split_words
from flair_nas.settings.resolve import explain_other_run, find_command
from flair_nas.storage.paths import check_model, typed, user_path
from flair_nas.tagging.data.frozen_embeddings import is_long, members_of
from flair_nas.tagging.evaluation import check_is_tagger, tags_of
from flair_nas.tagging.patches.span_scores import use_probabilities
from flair_nas.tagging.quiet import OF_ALL_WORDS, no_flair_remarks
from flair_nas.tagging.safe_file import CONFIG, WEIGHTS, holds_safe_tagger, read_safe

_BATCHES_AT_ONCE = 16
"""Batches that Flair sorts by length together. A batch costs as much as its longest sentence."""


def load_tagger(path: str | Path) -> SequenceTagger:
    """Load a tagger and check its checksums.

    If a folder has ``model.safetensors`` and ``config.json``, they are read; they are data. Other files are Flair's
    own pickles. Loading a pickle runs the code in it, so load only files that you trust. Scores of labels are
    probabilities (see `use_probabilities`).

    Args:
        path: a model file, the folder of a training run or of `flair-nas tag publish`, or
            ``hf://owner/name[@revision]`` for a repository on the Hugging Face Hub.

    Raises:
        FlairNasError: a file is missing, cut short, or of another kind.

    Example:
        The folder is that of the example of `train_taggers`.

        >>> from flair.data import Sentence
        >>> from flair_nas import load_tagger
        >>> tagger = load_tagger("runs/first")
        >>> tagger.predict(Sentence("Dr Helen Marsh opened the market in Leeds ."))
    """
    return use_probabilities(_load(path))


def _load(path: str | Path) -> SequenceTagger:
    if str(path).startswith(PREFIX):
        return read_safe(_fetch(str(path)))
    path = user_path(path)
    if path.is_dir():
        if (path / "tagger.json").exists():
            raise FlairNasError(f"{path} is an exported tagger; flair_nas.onnx.Tagger runs it")
        if find_command(path) in ("charlm train", "lm train"):
            raise FlairNasError(f"{path}: this is no tagger; {explain_other_run(path, 'tag train')}")
        if holds_safe_tagger(path):
            return read_safe(path)
        if not (path / "model.pt").exists():
            raise FlairNasError(f"{path}: no model.pt in this folder; {_describe_missing(path)}")
        path = path / "model.pt"
    check_model(path)
    try:
        if zipfile.is_zipfile(path):  # Flair's oldest taggers are not, and have no checksums
            verify_checksums(path)
        with no_flair_remarks(*OF_ALL_WORDS):
            return SequenceTagger.load(path)
    except (FlairNasError, MemoryError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        if other := explain_other_run(path.parent, "tag train"):
            raise FlairNasError(f"{path}: this is no tagger; {other}") from None
        raise FlairNasError(
            f"{path}: not a whole tagger file ({shown(error)}); it may be cut short or of another kind"
        ) from None


def _describe_missing(folder: Path) -> str:
    """Say what a folder holds instead of a tagger, or how its training goes on."""
    if there := ", ".join(sorted(file.name for file in folder.glob("*.pt") if "checkpoint" not in file.name)):
        return f"it holds {there}: give the file itself"
    if find_command(folder) == "tag train":
        return f"its training is not finished; flair-nas tag train --resume {typed(folder)} goes on"
    return explain_other_run(folder, "tag train") or "is its training finished?"


def _fetch(source: str) -> Path:
    """Fetch the files of data of a repository's tagger, and return their folder."""
    folder = fetch_folder(source, (WEIGHTS, CONFIG))
    if folder is None or not all((folder / name).is_file() for name in (WEIGHTS, CONFIG)):
        refuse_offline(source)  # the cache may hold one of them
        name = source.removeprefix(PREFIX)
        raise FlairNasError(
            f"{source}: this repository has no {WEIGHTS} with a {CONFIG}; if you trust its author, Flair reads its "
            f'pickle: SequenceTagger.load("{name}")'
        )
    return folder


def tag_lines(
    tagger: SequenceTagger, lines: Iterable[str], *, batch_size: int = 32, tokenized: bool = False
) -> Iterator[Sentence | None]:
    """Tag lines lazily.

    Args:
        tagger: a trained tagger.
        lines: one sentence each, or one text with a sentence a line.
        batch_size: lines that are tagged together.
        tokenized: split words at blanks and tabs. Default: by Flair's tokenizer.

    Yields:
        The tagged sentences, in the order of the lines; None for a line without words. Words and their positions are
        those of the line.

    Raises:
        FlairNasError: a line has half of a character.

    Example:
        The folder is that of the example of `train_taggers`.

        >>> from flair_nas import load_tagger, tag_lines
        >>> lines = ["Anna Weber moved to Hamburg.", "", "It rained."]
        >>> [sentence and len(sentence) for sentence in tag_lines(load_tagger("runs/first"), lines)]
        [6, None, 3]
    """
    check_is_tagger(tagger)
    remaining = check_characters(io.StringIO(lines, newline=None) if isinstance(lines, str) else lines)
    count = _BATCHES_AT_ONCE * batch_size if batch_size > 1 else 1
    while some := list(itertools.islice(remaining, count)):
        sentences = [Sentence(tokens) if (tokens := tokens_of(line, tokenized)) else None for line in some]
        with_words = [sentence for sentence in sentences if sentence is not None]
        Sentence.set_context_for_sentences(with_words)  # some transformers read a sentence's neighbours
        tagger.predict([sentence for sentence in with_words if not is_long(sentence)], mini_batch_size=batch_size)
        for sentence in filter(is_long, with_words):
            for member in members_of(tagger.embeddings):
                if type(member) is CharacterEmbeddings:
                    _embed_characters(member, sentence)
            tagger.predict([sentence])
        yield from sentences


@torch.no_grad()
def _embed_characters(member: CharacterEmbeddings, sentence: Sentence) -> None:
    """Store the vectors of a long sentence's words, one word at a time. Flair pads all words to the longest."""
    numbers = member.char_dictionary.get_idx_for_item
    coded = [tuple(numbers(character) for character in token.text) for token in sentence]
    vectors = {}
    for codes in {*coded}:
        characters = member.char_embedding(torch.tensor(codes, device=flair.device))  # [T, D]
        output, _ = member.char_rnn(characters)  # [T, 2H]
        vectors[codes] = output[-1].clone()  # not all of output
    for token, codes in zip(sentence, mix_up(coded)):
        token.set_embedding(member.name, vectors[codes])


def tokens_of(line: str, tokenized: bool = False) -> list[Token]:
    """Split a line into tokens with their positions in the line."""
    tokens = []
    for word in split_words(line, tokenized):
        token = Token(word.text, start_position=word.start)
        token.whitespace_after = word.blanks
        tokens.append(token)
    return tokens


def drop_unlikely(sentence: Sentence | None, label_type: str, least: float) -> None:
    """Remove the labels of a sentence whose score is below `least`."""
    for label in [*sentence.get_labels(label_type)] if sentence else ():
        if label.score < least:
            label.data_point.remove_labels(label_type)


def to_text(line: str, sentence: Sentence | None, label_type: str) -> str:
    """Return the line with its spans in brackets: ``[PER Ada Lovelace] lived in [LOC London].``"""
    labels = sentence.get_labels(label_type) if sentence else []
    for label in sorted(labels, key=lambda label: -label.data_point.start_position):
        start, end = label.data_point.start_position, label.data_point.end_position
        line = f"{line[:start]}[{label.value} {line[start:end]}]{line[end:]}"
    return line


def to_columns(line: str, sentence: Sentence | None, label_type: str) -> str:
    """Return a row per token: the token, a tab and its tag."""
    if sentence is None:
        return ""
    return "".join(f"{token.text}\t{tag}\n" for token, tag in zip(sentence, tags_of(sentence, label_type)))


def to_json_line(line: str, sentence: Sentence | None, label_type: str) -> str:
    """Return a JSON object: the line, its tokens, and labels with score and position in the line, from 0."""
    labels = [
        {
            "label": label.value,
            "text": line[label.data_point.start_position : label.data_point.end_position],
            "start": label.data_point.start_position,
            "end": label.data_point.end_position,
            "score": round(label.score, 6),
        }
        for label in (sentence.get_labels(label_type) if sentence else ())
    ]
    tokens = [token.text for token in sentence or ()]
    return json.dumps({"text": line, "tokens": tokens, "labels": labels}, ensure_ascii=False)


FORMATS = {"text": to_text, "columns": to_columns, "jsonl": to_json_line}
