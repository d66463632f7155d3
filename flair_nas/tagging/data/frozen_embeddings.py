"""Vectors of embeddings that do not learn: computed once for a corpus, kept in one array in memory or in one file.

Flair itself would keep a word's vector as a view on the hidden states of all characters of its batch, which takes ten
times the memory of the vectors. The file, ``CACHE/embeddings/FINGERPRINT/vectors.bin``, is mapped: processes share what
is read of it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import flair
import psutil
import torch
from flair.data import Sentence
from flair.embeddings import PooledFlairEmbeddings, TokenEmbeddings
from torch import Tensor, nn
from tqdm import tqdm

from flair_nas.runs.random_state import random_state, restore_random_state
from flair_nas.storage.cache import Kind, cached_folder
from flair_nas.storage.paths import cache_root
from flair_nas.tagging.data.corpora import TaggingCorpus, sentences_of

log = logging.getLogger("flair_nas")

VECTORS = Kind("embeddings", "vectors of embeddings")
_FORMAT = 1  # of the file; another number makes all files anew
_CHUNK, _BATCH = 2048, 32  # sentences that are sorted by length, and those that are embedded at a time


def frozen_members(embeddings: TokenEmbeddings) -> list[TokenEmbeddings]:
    """The embeddings in a stack that give a word in its sentence the same vector whenever they are asked.

    Pooled ones change, but what they pool does not.
    """
    members = getattr(embeddings, "embeddings", [embeddings])
    pooled = [m.context_embeddings if isinstance(m, PooledFlairEmbeddings) else m for m in members]
    return [member for member in pooled if member.static_embeddings]


def changing_names(embeddings: TokenEmbeddings) -> list[str]:
    """The names under which a stack gives vectors that are not the same whenever they are asked for."""
    members = getattr(embeddings, "embeddings", [embeddings])
    frozen = {name for member in frozen_members(embeddings) for name in member.get_names()}
    return [name for member in members for name in member.get_names() if name not in frozen]


def _said_of_others(embeddings: TokenEmbeddings) -> str:
    """Which embeddings in a stack are not kept, and why, in words; empty if all are."""
    members = getattr(embeddings, "embeddings", [embeddings])
    kept = {id(member) for member in frozen_members(embeddings)}
    pooled, learned = list[str](), list[str]()
    for number, member in enumerate(members):
        if id(member) not in kept:
            found = pooled if isinstance(member, PooledFlairEmbeddings) else learned
            found.append(member.name.removeprefix(f"{number}-"))  # which a stack puts before it
    said = [f"{', '.join(pooled)}, pooled over the words met so far (what is pooled is kept)"] * bool(pooled)
    said += [f"{', '.join(learned)}, which learn"] * bool(learned)
    return "; ".join(said)


def keep_frozen(
    embeddings: TokenEmbeddings, corpus: TaggingCorpus, *, on_disk: bool | None = None, progress: bool = False,
    cache: Path | None = None,
) -> None:  # fmt: skip
    """Gives all words of a corpus the vectors of a stack's frozen embeddings, which Flair then does not compute again.

    Args:
        embeddings: those of a tagger; words that have their vectors already, by name, are left alone.
        corpus: all its parts are embedded.
        on_disk: keep them in a file of the cache, made by the first process that needs it, or in memory. None: in
            memory, if a quarter of what is free is enough.
        progress: draw a progress bar.
        cache: as for `flair_nas.storage.paths.cache_root`.

    Raises:
        FlairNasError: the cache cannot be written.
        OSError: the disk is full; nothing half-written is left.
    """
    randomness = random_state()  # what is trained must not depend on what is computed here; to list sentences draws
    members = frozen_members(embeddings)
    sentences = [s for part in ("train", "dev", "test") for s in sentences_of(getattr(corpus.corpus, part))]
    names = [name for member in members for name in member.get_names()]
    if not all(name in token._embeddings for sentence in sentences for token in sentence for name in names):
        if others := _said_of_others(embeddings):
            log.info("%s: embedded anew for each batch: %s", corpus.name, others)
        _keep(members, names, sentences, corpus.name, on_disk, progress, cache)
    restore_random_state(randomness)


def is_kept(embeddings: TokenEmbeddings, corpus: TaggingCorpus, cache: Path | None = None) -> bool:
    """Return True if the cache has the vectors that `keep_frozen` would compute.

    Args:
        embeddings: those of a tagger.
        corpus: the corpus that is embedded.
        cache: as for `flair_nas.storage.paths.cache_root`.
    """
    sentences = [s for part in ("train", "dev", "test") for s in sentences_of(getattr(corpus.corpus, part))]
    return (cache_root(cache) / VECTORS.folder / _fingerprint(frozen_members(embeddings), sentences)).exists()


def _keep(
    members: Sequence[TokenEmbeddings], names: Sequence[str], sentences: Sequence[Sentence], corpus: str,
    on_disk: bool | None, progress: bool, cache: Path | None,
) -> None:  # fmt: skip
    widths = _widths(members, sentences[0], names)
    words, width = sum(map(len, sentences)), sum(widths)
    size = 4 * words * width  # bytes
    if on_disk is None:
        on_disk = size > psutil.virtual_memory().available / 4

    def blocks() -> Iterator[Tensor]:
        with tqdm(total=words, desc=f"embedding {corpus}", unit="word", disable=not progress, leave=False) as bar:
            for block in _computed(members, sentences, names):
                yield block
                bar.update(len(block))

    def write(folder: Path) -> dict[str, Any]:
        with open(folder / "vectors.bin", "wb") as stream:
            for block in blocks():
                stream.write(block.numpy().data)
        return {"corpus": corpus, "embeddings": list(names)}

    if on_disk:
        folder, _ = cached_folder(VECTORS, _fingerprint(members, sentences), write, cache)
        mapped = torch.from_file(str(folder / "vectors.bin"), size=words * width, dtype=torch.float32)
        matrix = mapped.view(words, width)  # [words, D]
        log.info("vectors of the %d words of %s, %.1f GB: %s", words, corpus, size / 1e9, folder)
    else:
        matrix = torch.empty(words, width)  # [words, D]
        row = 0
        for block in blocks():
            matrix[row : row + len(block)] = block
            row += len(block)
    _hand_out(matrix, sentences, names, widths)


def _widths(members: Sequence[TokenEmbeddings], sentence: Sentence, names: Sequence[str]) -> list[int]:
    """How long the vectors of each name are."""
    _embed(members, [sentence])
    widths = [len(sentence[0].get_embedding([name])) for name in names]
    sentence.clear_embeddings(list(names))
    return widths


def _embed(members: Sequence[TokenEmbeddings], sentences: list[Sentence]) -> None:
    with torch.no_grad():
        for member in members:
            member.embed(sentences)


def _computed(
    members: Sequence[TokenEmbeddings], sentences: Sequence[Sentence], names: Sequence[str]
) -> Iterator[Tensor]:
    """The vectors of all words in order, [words, D] of a chunk of sentences at a time."""
    for start in range(0, len(sentences), _CHUNK):
        chunk = sentences[start : start + _CHUNK]
        of_sentence: dict[int, Tensor] = {}
        by_length = sorted(range(len(chunk)), key=lambda number: sum(len(token.text) for token in chunk[number]))
        for first in range(0, len(chunk), _BATCH):  # sentences of like length, as each is as costly as the longest
            batch = by_length[first : first + _BATCH]
            _embed(members, [chunk[number] for number in batch])
            for number in batch:
                tokens = list(chunk[number])
                vectors = [torch.stack([token.get_embedding([name]) for token in tokens]) for name in names]
                of_sentence[number] = torch.cat(vectors, dim=1).float().cpu()  # [words of the sentence, D]
                chunk[number].clear_embeddings(list(names))
        yield torch.cat([of_sentence[number] for number in range(len(chunk))])


def _hand_out(matrix: Tensor, sentences: Sequence[Sentence], names: Sequence[str], widths: Sequence[int]) -> None:
    """Gives each word its row of [words, D], a view for each name."""
    row = 0
    for sentence in sentences:
        rows = matrix[row : row + len(sentence)]
        row += len(sentence)
        for name, columns in zip(names, rows.split(list(widths), dim=1)):
            for token, vector in zip(sentence, columns.unbind()):
                token.set_embedding(name, vector)


# --- the fingerprint ---


def _fingerprint(members: Sequence[TokenEmbeddings], sentences: Sequence[Sentence]) -> str:
    """Return a digest of all that vectors depend on: words, white space, labels read, weights, options, versions."""
    digest = hashlib.sha256(f"{_FORMAT} flair {flair.__version__} torch {torch.__version__}".encode())
    for sentence in sentences:
        _add(digest, [token.text for token in sentence])
        _add(digest, sentence.to_plain_string())
        _add(digest, [sentence.is_document_boundary, sentence.language_code])
    for member in members:
        if field := getattr(member, "field", None):  # labels are read in place of words
            _add(digest, [token.get_label(field).value for sentence in sentences for token in sentence])
        # Flair's parameters lack some options, as `with_whitespace`
        _add(digest, {name: value for name, value in vars(member).items() if isinstance(value, (bool, int, float))})
        _add(digest, {**member.to_params(), "name": type(member).__name__})  # its own may be a path
        _add(digest, member.state_dict())
    return digest.hexdigest()[:32]


def _add(digest: Any, value: Any) -> None:
    """Adds a value to a digest, so that two that differ give another one."""
    if isinstance(value, Tensor):
        _add(digest, (str(value.dtype), list(value.shape)))
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, bytes):  # of whole files
        _add(digest, len(value))
        digest.update(value)
    elif isinstance(value, Mapping):
        _add(digest, [part for item in value.items() for part in item])
    elif isinstance(value, (list, tuple)):
        digest.update(f"[{len(value)}".encode())
        for part in value:
            _add(digest, part)
    elif hasattr(value, "__dict__") and not isinstance(value, (type, nn.Module)):
        _add(digest, [type(value).__name__, vars(value)])
    else:
        digest.update(f"{type(value).__name__} {value!r}\0".encode(errors="surrogatepass"))
