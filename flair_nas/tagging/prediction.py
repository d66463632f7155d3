"""Tagging text with a trained tagger, and writing the result."""

from __future__ import annotations

import io
import itertools
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import flair
import torch
from flair.data import Label, Sentence
from flair.models import SequenceTagger

from flair_nas.errors import FlairNasError
from flair_nas.library.hugging_face import PREFIX, fetch_folder, refuse_offline
from flair_nas.runs.checkpoints import check_sums
from flair_nas.runs.device import choose_device
from flair_nas.settings.resolve import is_of_another_command, read_run_settings
from flair_nas.settings.yaml_files import UnknownSettings
from flair_nas.storage.paths import no_model, typed, user_path
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.data.tokens import tokens_of
from flair_nas.tagging.evaluation import tags_of
from flair_nas.tagging.quiet import OF_ALL_WORDS, no_flair_remarks
from flair_nas.tagging.safe_file import CONFIG, WEIGHTS, holds_safe_tagger, read_safe

_OF_ANOTHER = "is a run of another command than flair-nas tag"
_BATCHES_AT_ONCE = 16
"""Flair sorts what it is given by length, and character language models read a whole batch as its longest sentence."""


def load_tagger(path: str | Path, device: str | None = None) -> SequenceTagger:
    """Load a tagger; its sums are checked.

    A folder's ``model.safetensors`` and ``config.json`` are data, and go first. Without either it is Flair's own file,
    a pickle: loading one runs whatever code is in it, so take these from where you trust.

    Args:
        path: a model file, a folder (of a training run, or as `flair-nas tag publish` writes it), or
            ``hf://owner/name[@revision]``, a repository with such a folder on the Hugging Face Hub.
        device: has Flair compute on cpu, cuda or cuda:N from now on; None leaves Flair's choice.

    Raises:
        FlairNasError: there is no such file, it is cut short, or it holds something else; one of the two files of data
            is missing; no such device here.
    """
    if device is not None:
        flair.device = choose_device(device)
    if str(path).startswith(PREFIX):
        return read_safe(_fetched(str(path)))
    path = user_path(path)
    if path.is_dir():
        if holds_safe_tagger(path):
            return read_safe(path)
        if not (path / "model.pt").exists():
            raise FlairNasError(f"{path}: no model.pt in this folder; {_instead_of_a_model(path)}")
        path = path / "model.pt"
    if not path.is_file():
        raise FlairNasError(no_model(path))
    try:
        if zipfile.is_zipfile(path):  # Flair's oldest taggers are none, and have no sums
            check_sums(path)
        with no_flair_remarks(*OF_ALL_WORDS):
            return SequenceTagger.load(path)
    except (FlairNasError, MemoryError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        if is_of_another_command(path.parent, TaggerConfig):
            raise FlairNasError(f"{path}: this is no tagger; its folder {_OF_ANOTHER}") from None
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FlairNasError(
            f"{path}: not a whole tagger file ({reason}); it may be cut short or of another kind"
        ) from None


def _instead_of_a_model(folder: Path) -> str:
    """What a folder without a model holds, or how its training goes on."""
    reason = f"its training is not finished; flair-nas tag train --resume {typed(folder)} goes on"
    try:
        read_run_settings(folder / "config.yaml", TaggerConfig)
    except UnknownSettings:
        return f"it {_OF_ANOTHER}"
    except FlairNasError:
        reason = "is its training finished?"
    there = ", ".join(sorted(file.name for file in folder.glob("*.pt")))
    return f"it holds {there}: give the file itself" if there else reason


def _fetched(source: str) -> Path:
    """The folder of a repository's tagger, as far as it is data."""
    folder = fetch_folder(source, (WEIGHTS, CONFIG))
    if folder is None or not all((folder / name).is_file() for name in (WEIGHTS, CONFIG)):
        refuse_offline(source)  # what is kept may be a part
        name = source.removeprefix(PREFIX)
        raise FlairNasError(
            f"{source}: this repository has no {WEIGHTS} with a {CONFIG}; if you trust its author, Flair reads its "
            f'pickle: SequenceTagger.load("{name}")'
        )
    return folder


def tag_lines(
    tagger: SequenceTagger, lines: Iterable[str], *, batch_size: int = 32, tokenized: bool = False
) -> Iterator[Sentence | None]:
    """Tag lines as they come.

    Args:
        tagger: a trained tagger.
        lines: one sentence each, or one text with a sentence a line.
        batch_size: lines that are tagged together.
        tokenized: words are separated by blanks or tabs already; otherwise Flair's tokenizer separates them.

    Yields:
        The tagged sentences, in the order of the lines; None for a line without words, as Flair has no empty sentences.
        Words are as in the line, and positions are those in the line.
    """
    remaining = iter(io.StringIO(lines, newline=None) if isinstance(lines, str) else lines)
    count = _BATCHES_AT_ONCE * batch_size if batch_size > 1 else 1
    while some := list(itertools.islice(remaining, count)):
        sentences = [Sentence(tokens) if (tokens := tokens_of(line, tokenized)) else None for line in some]
        tagger.predict([sentence for sentence in sentences if sentence is not None], mini_batch_size=batch_size)
        yield from sentences


def to_text(line: str, sentence: Sentence | None, label_type: str) -> str:
    """Return the line with its spans in brackets: ``[PER Ada Lovelace] lived in [LOC London].``"""
    for label in sorted(_labels(sentence, label_type), key=lambda label: -label.data_point.start_position):
        start, end = label.data_point.start_position, label.data_point.end_position
        line = f"{line[:start]}[{label.value} {line[start:end]}]{line[end:]}"
    return line


def to_columns(line: str, sentence: Sentence | None, label_type: str) -> str:
    """Return a row per token, token and tag with a tab between, and an empty line after the sentence."""
    if sentence is None:
        return ""
    return "".join(f"{token.text}\t{tag}\n" for token, tag in zip(sentence, tags_of(sentence, label_type)))


def to_json_line(line: str, sentence: Sentence | None, label_type: str) -> str:
    """Return a JSON object: the line, its tokens, and labels with their place in the line (from 0), and score."""
    labels = [
        {
            "label": label.value,
            "text": line[label.data_point.start_position : label.data_point.end_position],
            "start": label.data_point.start_position,
            "end": label.data_point.end_position,
            "score": round(label.score, 6),
        }
        for label in _labels(sentence, label_type)
    ]
    tokens = [token.text for token in sentence or ()]
    return json.dumps({"text": line, "tokens": tokens, "labels": labels}, ensure_ascii=False)


def _labels(sentence: Sentence | None, label_type: str) -> list[Label]:
    return [] if sentence is None else sentence.get_labels(label_type)


FORMATS: dict[str, Callable[[str, Sentence | None, str], str]] = {
    "text": to_text,
    "columns": to_columns,
    "jsonl": to_json_line,
}
