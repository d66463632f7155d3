"""Where text comes from: finding train, valid and test, and reading each as words, in pieces of bounded size."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import itertools
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from flair_nas.errors import FlairNasError, brief, shown
from flair_nas.storage.paths import how_to_convert, siblings, user_path
from flair_nas.storage.resources import resource_path

PARTS = ("train", "valid", "test")
DEMO = "demo"  # the bundled text
# No word can be this, because text with NUL bytes is refused.
LINE_END = "\0"

_NAMES = {
    "train": ("train", "training"),
    "valid": ("valid", "validation", "val", "dev"),
    "test": ("test", "testing"),
}
_PIECE = 1 << 18  # bytes; pieces whose words fit the processor's cache are split fastest
_GZIP_MAGIC = b"\x1f\x8b"
_FILES_ARGUMENT = re.compile(r"(train|valid|test)=")

Advance = Callable[[int], Any]


class Piece(NamedTuple):
    """Some words of a part in a row, with `LINE_END` after the last word of each line.

    Args:
        words: words and line ends.
        lines: how many lines end in this piece.
    """

    words: list[str]
    lines: int


class TextPart(NamedTuple):
    """One part of a text.

    Args:
        label: what messages call it: a path, or a part of a Flair corpus.
        name: its short name, without folders.
        size: bytes.
        digest: of its bytes (SHA-256), or of its words where there is no file.
        read: reads it anew; calls its argument with a number of bytes whenever it has read so many more.
    """

    label: str
    name: str
    size: int
    digest: str
    read: Callable[[Advance], Iterator[Piece]]


class Text(NamedTuple):
    """A text: its name, and its parts; those that are missing are None."""

    name: str
    train: TextPart
    valid: TextPart | None
    test: TextPart | None

    @property
    def parts(self) -> dict[str, TextPart]:
        """The parts that there are, by name, in the order train, valid, test."""
        found = zip(PARTS, (self.train, self.valid, self.test))
        return {name: part for name, part in found if part is not None}


def find_text(source: Any, lowercase: bool) -> Text:
    """Finds the parts of a text.

    Args:
        source: as for `flair_nas.language_model.text.corpus.load_text`.
        lowercase: words are read in lower case.

    Raises:
        FlairNasError: there is no such text, it has no training part, or files cannot be told apart or read.
    """
    if isinstance(source, str) and source == DEMO:  # also where there is a folder ./demo, which is given as ./demo
        return _folder(resource_path("demo_text"), lowercase)._replace(name=DEMO)
    if isinstance(source, str) and _FILES_ARGUMENT.match(source) and not os.path.lexists(source):
        source = _parse_files(source)
    if isinstance(source, Mapping):
        return _mapped_files(source, lowercase)
    if isinstance(source, (str, os.PathLike)):
        path = user_path(source)
        if source == "" or not path.exists():
            raise FlairNasError(
                f"text {brief(str(source))}: there is no such folder or file; {DEMO} is the bundled text"
            )
        if path.is_dir():
            return _folder(path, lowercase)
        return Text(_name_of(path), _file(path, lowercase), None, None)
    if hasattr(source, "train") and hasattr(source, "dev") and hasattr(source, "test"):
        return _flair_corpus(source, lowercase)
    raise FlairNasError(
        f"text must be a folder, a file, files by part or a Flair corpus, got {type(source).__name__}; "
        "files by part are written train=FILE,valid=FILE,test=FILE"
    )


# --- files ---


def _parse_files(text: str) -> dict[str, str]:
    """Reads the written form of files by part, such as ``train=a.txt,valid=b.txt``."""
    files: dict[str, str] = {}
    for entry in text.split(","):
        part, _, file = entry.strip().partition("=")
        if part not in PARTS or not file or part in files:
            raise FlairNasError(
                f"text {brief(text)}: {brief(entry)} is not understood; write train=FILE,valid=FILE,test=FILE, each "
                "at most once"
            )
        files[part] = file
    return files


def _mapped_files(files: Mapping[Any, Any], lowercase: bool) -> Text:
    unknown = [str(part) for part in files if part not in PARTS]
    if unknown or files.get("train") is None:
        problem = f"there is no part {', '.join(unknown)}" if unknown else "the train part is missing"
        raise FlairNasError(f"text given as files by part: {problem}; the parts are {', '.join(PARTS)}")
    paths = {part: user_path(file) for part, file in files.items() if file is not None}
    for path in paths.values():
        if not path.exists():
            raise FlairNasError(f"text {brief(str(path))}: there is no such file")
    found = {part: _file(path, lowercase) for part, path in paths.items()}
    return Text(_name_of(paths["train"]), found["train"], found.get("valid"), found.get("test"))


def _folder(folder: Path, lowercase: bool) -> Text:
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise FlairNasError(f"{folder}: this folder cannot be read ({error.strerror or error})") from None
    files: dict[str, list[Path]] = {part: [] for part in PARTS}
    for entry in entries:
        if not entry.is_dir():
            parts = _parts_named(entry.name)
            if len(parts) > 1:
                raise FlairNasError(
                    f"{entry}: the name could mean {' or '.join(parts)}; rename the file, or name the files by part: "
                    "train=FILE,valid=FILE,test=FILE"
                )
            for part in parts:
                files[part].append(entry)
    for part, candidates in files.items():
        if len(candidates) > 1:
            names = ", ".join(path.name for path in candidates)
            raise FlairNasError(
                f"{folder}: several files could be the {part} part ({names}); keep one there, or name the files by "
                "part: train=FILE,valid=FILE,test=FILE"
            )
    if not files["train"]:
        names = ", ".join(entry.name + "/" * entry.is_dir() for entry in entries[:20])
        more = f" and {len(entries) - 20} more" if len(entries) > 20 else ""
        raise FlairNasError(
            f"{folder}: no text to train on: no file has 'train' in its name, as train.txt or wiki.train.tokens.gz "
            f"would; the folder holds {names + more if names else 'nothing'}"
        )
    found = {part: _file(candidates[0], lowercase) for part, candidates in files.items() if candidates}
    return Text(folder.resolve().name or "text", found["train"], found.get("valid"), found.get("test"))


def _name_of(file: Path) -> str:
    """A text's name: what its file's name says besides the part, or else its folder's name."""
    words = [word for word in file.name.split(".")[:-1] or [file.name] if word and not _parts_named(word)]
    return words[0] if words else file.resolve().parent.name or "text"


def _parts_named(name: str) -> list[str]:
    """The parts whose names are in a file's name, as whole words."""
    words = re.split(r"[^a-z]+", name.lower())
    return [part for part, names in _NAMES.items() if any(word in names for word in words)]


def files_beside(file: TextPart, part: str) -> list[str]:
    """Return the files in the folder of a file whose names are those of a part.

    Args:
        file: what may be no file, but a part of a Flair corpus.
        part: train, valid or test.
    """
    path = Path(file.label)
    return [there for name, there in siblings(path).items() if path.is_file() and _parts_named(name) == [part]]


def _file(path: Path, lowercase: bool) -> TextPart:
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise FlairNasError(f"{path}: this is {kind}; give a file of text")
    digest = hashlib.sha256()
    size = 0
    for block in _blocks(path):
        digest.update(block)
        size += len(block)
    if size == 0:
        raise FlairNasError(f"{path}: the file is empty (0 bytes); give text, one sentence a line")

    def read(advance: Advance) -> Iterator[Piece]:
        return _read_file(path, digest.hexdigest(), lowercase, advance)

    return TextPart(str(path), path.name, size, digest.hexdigest(), read)


class _Watched:
    """A file whose reads are counted and digested."""

    def __init__(self, stream: Any, advance: Advance) -> None:
        self.stream, self.advance, self.digest = stream, advance, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block: bytes = self.stream.read(size)
        self.digest.update(block)
        self.advance(len(block))
        return block


def _blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file as they are."""
    try:
        with open(path, "rb", buffering=0) as stream:
            while block := stream.read(1 << 20):
                yield block
    except OSError as error:
        raise FlairNasError(f"{path}: this file cannot be read ({error.strerror or error})") from None


def _text_blocks(path: Path, digest: str, advance: Advance) -> Iterator[bytes]:
    """The bytes of a file, unpacked if it is packed; they are those of the digest, or it is an error."""
    try:
        with open(path, "rb") as stream:
            packed = path.suffix == ".gz" or stream.peek(2)[:2] == _GZIP_MAGIC
            watched = _Watched(stream, advance)
            unpacked = gzip.GzipFile(fileobj=watched) if packed else watched  # type: ignore[call-overload]  # reads only
            while block := unpacked.read(_PIECE):
                yield block
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FlairNasError(
            f"{path}: this .gz file is damaged or cut short ({shown(error)}); get it again, and test it with gzip -t"
        ) from None
    except OSError as error:
        raise FlairNasError(f"{path}: this file cannot be read ({error.strerror or error})") from None
    if watched.digest.hexdigest() != digest:
        raise FlairNasError(f"{path}: the file changed while it was read; try again when it stays as it is")


def _read_file(path: Path, digest: str, lowercase: bool, advance: Advance) -> Iterator[Piece]:
    """The words of a file, in pieces that end between words."""
    held: list[str] = []  # a word that goes on in the next text
    lines = 0
    for text in _decoded(path, digest, advance):
        lines += text.count("\n")
        cut = max(text.rfind("\n"), text.rfind(" "), text.rfind("\t")) + 1
        if cut == 0:
            held.append(text)
            continue
        whole = "".join([*held, text[:cut]])
        held = [text[cut:]]
        if lowercase:
            whole = whole.lower()
        yield Piece(whole.replace("\n", f" {LINE_END} ").split(), lines)
        lines = 0


def _decoded(path: Path, digest: str, advance: Advance) -> Iterator[str]:
    """The characters of a file; lines end as in Python's text files, at any of ``\\n``, ``\\r\\n`` and ``\\r``.

    All come out as ``\\n``, and the last line has one too.
    """
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")(), translate=True)
    lines = 0
    last = ""
    try:
        for block in itertools.chain(_text_blocks(path, digest, advance), [b""]):
            text = decoder.decode(block, final=not block)
            if LINE_END in text:
                line = lines + text.count("\n", 0, text.index(LINE_END)) + 1
                raise FlairNasError(
                    f"{path}:{line}: a NUL byte, so this is no plain text; give text in UTF-8, one sentence a line"
                )
            if text:
                yield text
                lines += text.count("\n")
                last = text[-1]
    except UnicodeDecodeError as error:
        before = error.object[: error.start].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        raise FlairNasError(
            f"{path}:{lines + before.count(10) + 1}: not UTF-8 (byte 0x{error.object[error.start]:02x}: "
            f"{error.reason}); {how_to_convert(error.object)}"
        ) from None
    if last not in ("", "\n"):
        yield "\n"


# --- Flair ---


def _flair_corpus(corpus: Any, lowercase: bool) -> Text:
    """The text of a Flair corpus, known by its shape, so that Flair need not be imported."""
    found = {}
    for part, dataset in (("train", corpus.train), ("valid", corpus.dev), ("test", corpus.test)):
        if dataset is not None:
            found[part] = _flair_part(
                f"the Flair corpus' {'dev' if part == 'valid' else part} part", dataset, lowercase
            )
    if "train" not in found:
        raise FlairNasError("the Flair corpus has no train part, so there is no text to train on")
    name = getattr(corpus, "name", None)
    name = Path(name).name if isinstance(name, str) else ""  # Flair's own corpora are named by their folders
    return Text(name or "corpus", found["train"], found.get("valid"), found.get("test"))


def _flair_part(label: str, dataset: Any, lowercase: bool) -> TextPart:
    digest = hashlib.sha256(b"words\0")
    size = 0
    for words in _sentences(dataset):
        if any(LINE_END in word for word in words):
            raise FlairNasError(f"{label}: a NUL character in the sentence {' '.join(words)[:80]!r}; take it out")
        data = _encoded(words)
        digest.update(data)
        size += len(data)

    def read(advance: Advance) -> Iterator[Piece]:
        held: list[str] = []
        lines = 0
        for words in _sentences(dataset):
            advance(len(_encoded(words)))
            held += [word.lower() for word in words] if lowercase else words
            held.append(LINE_END)
            lines += 1
            if len(held) > 10_000:
                yield Piece(held, lines)
                held, lines = [], 0
        if lines:
            yield Piece(held, lines)

    return TextPart(label, label, size, digest.hexdigest(), read)


def _encoded(words: list[str]) -> bytes:
    """A sentence as bytes, with the number of words first, so that no two texts give the same bytes."""
    return LINE_END.join([str(len(words)), *words, ""]).encode("utf-8", "surrogatepass")


def _sentences(dataset: Any) -> Iterator[list[str]]:
    for number in range(len(dataset)):  # by number, because a dataset of PyTorch need not be iterable
        yield [token.text for token in dataset[number]]
