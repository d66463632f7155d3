"""Sources of text: folders, files and Flair corpora, each part read as a stream of words."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias, cast

from flair_nas.errors import FlairNasError, brief, listed, shown
from flair_nas.language_model.text.config import TextSettings
from flair_nas.storage.files import hash_file
from flair_nas.storage.parts import find_parts, parts_in
from flair_nas.storage.paths import check_regular, explain_not_utf8, user_path
from flair_nas.storage.resources import resource_path

PARTS = ("train", "valid", "test")
DEMO = "demo"  # the bundled text
# No word can be this, because text with NUL bytes is refused.
LINE_END = "\0"

_PIECE = 1 << 18  # characters: pieces whose words fit the processor's cache are split fastest
_GZIP_MAGIC = b"\x1f\x8b"
_FILES_ARGUMENT = re.compile(r"(train|valid|test)=")

Advance: TypeAlias = Callable[[int], object]
FilePath: TypeAlias = "str | os.PathLike[str]"
TextSource: TypeAlias = object  # FilePath | Mapping[str, FilePath | None] | flair.data.Corpus


class TextPart(NamedTuple):
    """One part of a text.

    `read` yields the tokens anew, in lists of bounded size, with `LINE_END` after the last one of each line. It reports
    the number of bytes that it has read to its second argument.
    """

    label: str  # in messages: a path, or a part of a Flair corpus
    size: int  # bytes
    digest: str  # SHA-256 of the file's bytes, or of the words of a Flair corpus
    read: Callable[[TextSettings, Advance], Iterator[list[str]]]


class Text(NamedTuple):
    """A text: its name in messages, and the parts that exist, by name, in the order train, valid, test."""

    name: str
    parts: dict[str, TextPart]


def split_tokens(text: str, settings: TextSettings) -> list[str]:
    """Return the tokens of a text, with `LINE_END` in place of each end of a line."""
    text = text.lower() if settings.lowercase else text
    if settings.unit == "char":
        return list(text.replace("\n", LINE_END))
    return text.replace("\n", f" {LINE_END} ").split()


def find_text(source: TextSource) -> Text:
    """Return the parts of a text that `flair_nas.language_model.text.corpus.load_text` takes."""
    if source is None or source == "":
        raise FlairNasError(f"no text: give a folder with train and valid text with --text DIR (or --text {DEMO})")
    if isinstance(source, str) and source == DEMO:  # also where there is a folder ./demo, which is given as ./demo
        return _folder_text(resource_path("demo_text"))._replace(name=DEMO)
    if isinstance(source, str) and _FILES_ARGUMENT.match(source) and not os.path.lexists(source):
        source = _parse_files(source)
    if isinstance(source, Mapping):
        return _mapped_text(source)
    if isinstance(source, (str, os.PathLike)):
        path = user_path(source)
        if not path.exists():
            raise FlairNasError(
                f"text {brief(str(source))}: there is no such folder or file; {DEMO} is the bundled text"
            )
        return _folder_text(path) if path.is_dir() else Text(_text_name(path), {"train": _file_part(path)})
    if all(hasattr(source, name) for name in ("train", "dev", "test")):  # so Flair need not be imported
        return _flair_text(source)
    raise FlairNasError(
        f"text must be a folder, a file, files by part or a Flair corpus, got {type(source).__name__}; "
        "files by part are written train=FILE,valid=FILE,test=FILE"
    )


def _parse_files(text: str) -> dict[str, str]:
    """Return the files by part that a text such as ``train=a.txt,valid=b.txt`` names."""
    entries = [entry.strip().partition("=") for entry in text.split(",")]
    files = {part: file for part, _, file in entries}
    if len(files) < len(entries) or not all(files.values()):
        raise FlairNasError(f"text {brief(text)}: write train=FILE,valid=FILE,test=FILE, each at most once")
    return files


def _mapped_text(files: Mapping[str, FilePath | None]) -> Text:
    if files.get("train") is None or not files.keys() <= {*PARTS}:
        parts = listed([str(part) for part in files])
        raise FlairNasError(f"text by part: train is needed, and the parts are {', '.join(PARTS)}; got {parts}")
    paths = {part: user_path(file) for part in PARTS if (file := files.get(part)) is not None}
    return Text(_text_name(paths["train"]), {part: _file_part(path) for part, path in paths.items()})


def _folder_text(folder: Path) -> Text:
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise FlairNasError(f"{folder}: this folder cannot be read ({error.strerror or error})") from None
    files = find_parts(entry for entry in entries if not entry.is_dir())
    if "train" not in files and (folder / "train").is_dir():
        files = {"train": folder / "train", **files}
    if "train" not in files:
        names = listed([entry.name + "/" * entry.is_dir() for entry in entries])
        raise FlairNasError(
            f"{folder}: no file has 'train' in its name, such as train.txt or wiki.train.tokens.gz; the folder holds "
            f"{names or 'nothing'}"
        )
    parts = {"valid" if part == "dev" else part: _path_part(path) for part, path in files.items()}
    return Text(folder.resolve().name or "text", parts)


def _text_name(file: Path) -> str:
    """Return the name of a text: the first word of its file's name that names no part, or else its folder's name."""
    words = [word for word in file.name.split(".")[:-1] or [file.name] if word and not parts_in(word)]
    return words[0] if words else file.resolve().parent.name or "text"


@contextlib.contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Raise a FlairNasError that names the file in place of an error of reading."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FlairNasError(
            f"{path}: this .gz file is damaged or cut short ({shown(error)}); get it again, and test it with gzip -t"
        ) from None
    except OSError as error:
        raise FlairNasError(f"{path}: this file cannot be read ({error.strerror or error})") from None


def _path_part(path: Path) -> TextPart:
    """Return the part of a file, or of all files of a folder one after the other, as Flair's `TextCorpus` has them."""
    if not path.is_dir():
        return _file_part(path)
    files = [_file_part(file) for file in sorted(path.iterdir()) if not file.name.startswith(".")]
    if not files:
        raise FlairNasError(f"{path}: the folder is empty; give files of text, one sentence a line")

    def read(settings: TextSettings, advance: Advance) -> Iterator[list[str]]:
        for file in files:
            yield from file.read(settings, advance)

    digest = hashlib.sha256("".join(file.digest for file in files).encode()).hexdigest()
    return TextPart(str(path), sum(file.size for file in files), digest, read)


def _file_part(path: Path) -> TextPart:
    with _file_errors(path):
        check_regular(path)
        state, digest = path.stat(), hash_file(path)
    if state.st_size == 0:
        raise FlairNasError(f"{path}: the file is empty (0 bytes); give text, one sentence a line")
    return TextPart(str(path), state.st_size, digest, partial(_read_file, path, state))


def _read_file(path: Path, state: os.stat_result, settings: TextSettings, advance: Advance) -> Iterator[list[str]]:
    """Yield the tokens of a file in pieces; refuse one that has changed since it had a state.

    Lines end as in Python's text files, at any of ``\\n``, ``\\r\\n`` and ``\\r``; the end of the file ends the last.
    """
    reported, lines, ended, held = 0, 0, True, ""  # held: the start of a word that goes on in the next piece
    with _file_errors(path), open(path, "rb") as file:
        # bytes that are not UTF-8 become halves of characters, which `_check_characters` refuses
        stream = io.TextIOWrapper(_unpacked(path, file), "utf-8-sig", "surrogateescape")
        while text := stream.read(_PIECE):
            advance(file.raw.tell() - reported)
            reported = file.raw.tell()
            _check_characters(path, text, lines)
            lines += text.count("\n")
            ended = text.endswith("\n")
            if cut := max(text.rfind(blank) for blank in "\n \t") + 1:
                yield split_tokens(held + text[:cut], settings)
                held = text[cut:]
            else:
                held += text
        if not ended:
            yield split_tokens(held + "\n", settings)
        now = os.fstat(file.fileno())
        unchanged = all(getattr(now, name) == getattr(state, name) for name in ("st_ino", "st_size", "st_mtime_ns"))
        _check_unchanged(str(path), unchanged)


def _unpacked(path: Path, file: io.BufferedReader) -> BinaryIO:
    """Return the stream of a file's bytes, which gzip may have packed."""
    packed = path.suffix == ".gz" or file.peek(2)[:2] == _GZIP_MAGIC
    return cast(BinaryIO, gzip.GzipFile(fileobj=file) if packed else file)


def _check_characters(path: Path, text: str, lines: int) -> None:
    """Raise FlairNasError if a text that follows so many lines has NUL bytes, or bytes that are not UTF-8."""
    if LINE_END not in text:
        with contextlib.suppress(UnicodeEncodeError):
            text.encode()
            return
    place = re.search(f"[{LINE_END}\udc80-\udcff]", text)
    assert place is not None
    where = f"{path}:{lines + text.count(chr(10), 0, place.start()) + 1}"
    if place[0] == LINE_END:
        raise FlairNasError(f"{where}: a NUL byte, so this is no plain text; give text in UTF-8, one sentence a line")
    with path.open("rb") as file:
        raise FlairNasError(explain_not_utf8(str(path) if path.suffix == ".gz" else path, _unpacked(path, file)))


def _check_unchanged(label: str, unchanged: bool) -> None:
    if not unchanged:
        raise FlairNasError(f"{label}: the text changed while it was read; try again when it stays as it is")


def _flair_text(corpus: Any) -> Text:
    datasets = {"train": corpus.train, "valid": corpus.dev, "test": corpus.test}
    parts = {part: _flair_part(part, data) for part, data in datasets.items() if data is not None}
    if "train" not in parts:
        raise FlairNasError("the Flair corpus has no train part, so there is no text to train on")
    name = getattr(corpus, "name", None)
    name = Path(name).name if isinstance(name, str) else ""  # Flair's own corpora are named by their folders
    return Text(name or "corpus", parts)


def _flair_part(part: str, dataset: Any) -> TextPart:
    label = f"the Flair corpus' {'dev' if part == 'valid' else part} part"

    def sentences(advance: Advance, sha256: hashlib._Hash) -> Iterator[list[str]]:
        for number in range(len(dataset)):  # by number, because a dataset of PyTorch need not be iterable
            words = [token.text for token in dataset[number]]
            if any(LINE_END in word for word in words):
                raise FlairNasError(f"{label}: a NUL character in the sentence {' '.join(words)[:80]!r}; take it out")
            # the number of words comes first, so that no two texts give the same bytes
            data = LINE_END.join([str(len(words)), *words, ""]).encode("utf-8", "surrogatepass")
            sha256.update(data)
            advance(len(data))
            yield words

    def read(settings: TextSettings, advance: Advance) -> Iterator[list[str]]:
        sha256 = hashlib.sha256(b"words\0")
        for words in sentences(advance, sha256):
            if settings.unit == "char":
                words = split_tokens(" ".join(words), settings)
            elif settings.lowercase:
                words = [word.lower() for word in words]
            yield [*words, LINE_END]
        _check_unchanged(label, sha256.hexdigest() == digest)

    sizes = list[int]()
    whole = hashlib.sha256(b"words\0")
    for _ in sentences(sizes.append, whole):
        pass
    digest = whole.hexdigest()
    return TextPart(label, sum(sizes), digest, read)
