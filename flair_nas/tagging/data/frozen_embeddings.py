"""Vectors of frozen embeddings, computed once for a corpus. Each embedding has one array in memory or one file.

Flair itself keeps a word's vector as a view on the hidden states of all characters of its batch, which takes ten times
the memory. The file ``CACHE/embeddings/FINGERPRINT/vectors.bin`` is mapped, so that processes share its memory.
Stacks that have an embedding in common share its file.
"""

from __future__ import annotations

import hashlib
import logging
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import flair
import psutil
import torch
from flair.data import Sentence
from flair.embeddings import PooledFlairEmbeddings, StackedEmbeddings, TokenEmbeddings
from torch import Tensor, nn
from tqdm import tqdm

from flair_nas.runs.random_state import random_state, restore_random_state
from flair_nas.runtime.words import LONG
from flair_nas.storage.cache import Kind, cached_folder
from flair_nas.storage.paths import cache_root
from flair_nas.tagging.data.corpora import TaggingCorpus, sentences_of

log = logging.getLogger("flair_nas")

VECTORS = Kind("embeddings", "vectors of embeddings")
_FORMAT = 2  # of the file; another number discards all files
_CHUNK, _BATCH = 2048, 32  # sentences that are sorted by length together, and that are embedded at a time


def members_of(embeddings: TokenEmbeddings) -> list[TokenEmbeddings]:
    """Return the embeddings of a stack, or the embeddings alone."""
    return list(embeddings.embeddings) if isinstance(embeddings, StackedEmbeddings) else [embeddings]


def frozen_members(embeddings: TokenEmbeddings) -> list[TokenEmbeddings]:
    """Return the frozen embeddings of a stack, with those under pooled ones.

    They always give a word in its sentence the same vector.
    """
    pooled = [m.context_embeddings if isinstance(m, PooledFlairEmbeddings) else m for m in members_of(embeddings)]
    return [member for member in pooled if member.static_embeddings]


def changing_names(embeddings: TokenEmbeddings) -> list[str]:
    """Return the names of a stack's vectors that may differ from one call to the next."""
    frozen = {member.name for member in frozen_members(embeddings)}
    return [name for name in embeddings.get_names() if name not in frozen]


def keep_frozen(
    embeddings: TokenEmbeddings, corpus: TaggingCorpus, *, on_disk: bool | None = None, progress: bool = False
) -> None:
    """Store the vectors of a stack's frozen embeddings in all words of a corpus, so that Flair does not compute them.

    Words that have vectors of these names already are left alone. The random state stays as it is.

    Args:
        embeddings: a tagger's embeddings.
        corpus: the corpus, all parts of which are embedded.
        on_disk: keep the vectors in a file of the cache, which processes share, or in memory. Default: in memory if a
            quarter of the free memory is enough.
        progress: draw a progress bar.
    """
    randomness = random_state()  # listing sentences draws, too
    sentences = all_sentences(corpus)
    lacking = [
        member
        for member in frozen_members(embeddings)
        if not all(member.name in token._embeddings for sentence in sentences for token in sentence)
    ]
    if lacking and (others := changing_names(embeddings)):
        log.info("%s: embedded anew for each batch, as vectors change: %s", corpus.name, ", ".join(others))
    if on_disk is None:
        size = 4 * sum(map(len, sentences)) * sum(member.embedding_length for member in lacking)  # bytes
        on_disk = size > psutil.virtual_memory().available / 4
    for member in lacking:
        _keep(member, sentences, corpus.name, on_disk, progress)
    restore_random_state(randomness)


def is_kept(embeddings: TokenEmbeddings, corpus: TaggingCorpus) -> bool:
    """Return True if the cache has the vectors that `keep_frozen` would compute."""
    sentences = all_sentences(corpus)
    folders = (cache_root() / VECTORS.folder / _fingerprint(m, sentences) for m in frozen_members(embeddings))
    return all(folder.exists() for folder in folders)


def all_sentences(corpus: TaggingCorpus) -> list[Sentence]:
    """Return the sentences of all parts of a corpus, and those that teachers have labelled."""
    sentences = [s for part in ("train", "dev", "test") for s in sentences_of(getattr(corpus.corpus, part))]
    return sentences if corpus.taught is None else [*sentences, *(s for s, _ in corpus.taught.sentences)]


def _keep(
    member: TokenEmbeddings,
    sentences: Sequence[Sentence],
    corpus: str,
    on_disk: bool,
    progress: bool,
) -> None:
    """Compute the vectors of one member, or map those of the cache, and store them in the words."""
    lengths, width = list(map(len, sentences)), member.embedding_length
    words = sum(lengths)

    def blocks() -> Iterator[Tensor]:
        log.info("%s: the vectors of %d words by %s are computed once", corpus, words, member.name)
        with tqdm(total=words, desc=f"embedding {corpus}", unit="word", disable=not progress, leave=False) as bar:
            for block in _computed(member, sentences):
                yield block
                bar.update(len(block))

    def write(folder: Path) -> dict[str, Any]:
        with open(folder / "vectors.bin", "wb") as stream:
            for block in blocks():
                stream.write(block.numpy().data)
        return {"corpus": corpus, "embeddings": member.name}

    if on_disk:
        folder, _ = cached_folder(VECTORS, _fingerprint(member, sentences), write, None)
        mapped = torch.from_file(str(folder / "vectors.bin"), size=words * width, dtype=torch.float32)
        matrix = mapped.view(words, width)  # [words, D]
        log.info("vectors of the %d words of %s, %.1f GB: %s", words, corpus, 4e-9 * words * width, folder)
    else:
        matrix = torch.empty(words, width)  # [words, D]
        row = 0
        for block in blocks():
            matrix[row : row + len(block)] = block
            row += len(block)
    for sentence, rows in zip(sentences, matrix.split(lengths)):
        for token, vector in zip(sentence, rows.unbind()):
            token.set_embedding(member.name, vector)


@torch.no_grad()
def _computed(member: TokenEmbeddings, sentences: Sequence[Sentence]) -> Iterator[Tensor]:
    """Yield the vectors of all words in order, [words, D] of a chunk of sentences at a time."""
    for start in range(0, len(sentences), _CHUNK):
        chunk = sentences[start : start + _CHUNK]
        computed: dict[int, Tensor] = {}
        for batch in _batch(chunk):
            member.embed([chunk[number] for number in batch])
            for number in batch:
                vectors = [token.get_embedding([member.name]) for token in chunk[number]]
                computed[number] = torch.stack(vectors).float().cpu()  # [words of the sentence, D]
                chunk[number].clear_embeddings([member.name])
        yield torch.cat([computed[number] for number in range(len(chunk))])


def _batch(sentences: Sequence[Sentence]) -> list[list[int]]:
    """Return the numbers of sentences by batch: long ones alone, others with those of like length."""
    order = sorted(range(len(sentences)), key=lambda number: sum(len(token.text) for token in sentences[number]))
    rest = [number for number in order if not is_long(sentences[number])]
    alone = [[number] for number in order if is_long(sentences[number])]
    return [*(rest[first : first + _BATCH] for first in range(0, len(rest), _BATCH)), *alone]


def is_long(sentence: Sentence) -> bool:
    """Return True for a sentence that is embedded alone: a batch takes the memory of its longest one for each."""
    return sentence[-1].end_position > LONG


def _fingerprint(member: TokenEmbeddings, sentences: Sequence[Sentence]) -> str:
    """Return a digest of all that vectors depend on: words, white space, labels, weights, options and versions."""
    digest = hashlib.sha256(f"{_FORMAT} flair {flair.__version__} torch {torch.__version__}".encode())
    for s in sentences:
        words = [token.text for token in s]
        digest.update(repr([words, s.to_plain_string(), s.is_document_boundary, s.language_code]).encode())
    if field := getattr(member, "field", None):  # labels are embedded in place of words
        labels = [token.get_label(field).value for sentence in sentences for token in sentence]
        digest.update(repr(labels).encode())
    # Flair's parameters lack some options, such as `with_whitespace`
    options = {name: value for name, value in vars(member).items() if isinstance(value, (bool, int, float))}
    parameters = {**member.to_params(), "name": type(member).__name__}  # the member's own name may be a path
    digest.update(repr(describe_state([options, parameters, member.state_dict()])).encode())
    return digest.hexdigest()[:32]


def describe_state(value: object) -> object:
    """Return plain data whose repr is different for different values."""
    if isinstance(value, Tensor):
        numbers = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
        return [value.dtype, value.shape, hashlib.sha256(numbers).hexdigest()]
    if isinstance(value, BytesIO):  # the tokenizer of a transformer: files, which have the time of now
        return [(file.filename, file.CRC) for file in zipfile.ZipFile(value).infolist()]
    if isinstance(value, Mapping):
        return [describe_state(item) for item in value.items()]
    if isinstance(value, (list, tuple)):
        return [describe_state(part) for part in value]
    if hasattr(value, "__dict__") and not isinstance(value, (type, nn.Module)):
        return [type(value).__name__, describe_state(vars(value))]
    return value
