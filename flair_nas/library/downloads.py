"""Genotypes from the network, kept in the cache: ``https://...`` and ``hf://owner/name``, ``#sha256=...`` after them.

What has been fetched once is not fetched again, so that a source means the same tomorrow, and offline.
"""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path
from typing import Any, NamedTuple

from flair_nas.errors import FlairNasError, brief
from flair_nas.genotype import Genotype, GenotypeError
from flair_nas.library.https import fetch
from flair_nas.library.hugging_face import FILE, PREFIX, fetch_from_hub
from flair_nas.storage.cache import Kind, cached_folder

log = logging.getLogger("flair_nas")

_KIND = Kind("genotypes", "genotypes")


class Download(NamedTuple):
    """A genotype file that is in the cache.

    Args:
        path: the file.
        address: where it is from, without a checksum.
        sha256: its checksum.
    """

    path: Path
    address: str
    sha256: str


def download(source: str, refresh: bool = False) -> Download:
    """Fetches a genotype, if it has not been fetched before; checks it before it is kept.

    Args:
        source: ``https://...``, or ``hf://owner/name[@revision]``, whose ``genotype.json`` is meant; ``#sha256=`` and
            64 hexadecimal digits after it say which file it must be.
        refresh: fetch it anew; what was kept before stays if that fails.

    Raises:
        FlairNasError: it is not in the cache and cannot be fetched, is another file than wanted or no genotype, or the
            cache cannot be written. Nothing is kept then.
    """
    address, wanted = _split(source)

    def build(folder: Path) -> dict[str, Any]:
        content = fetch_from_hub(address) if address.startswith(PREFIX) else fetch(address)
        digest = hashlib.sha256(content).hexdigest()
        if wanted and digest != wanted:
            raise FlairNasError(
                f"{address}: its SHA-256 is {digest}, not {wanted}: the file has changed, or is not what was meant"
            )
        _check(address, content)
        (folder / FILE).write_bytes(content)
        log.info("fetched %s (sha256 %s)", address, digest)
        return {"address": address, "sha256": digest}

    key = hashlib.sha256(address.encode()).hexdigest()[:16]
    folder, kept = cached_folder(_KIND, key, build, None, refresh=refresh)
    if wanted and kept["sha256"] != wanted:  # it has been fetched before as another file
        folder, kept = cached_folder(_KIND, key, build, None, refresh=True)
    return Download(folder / FILE, address, kept["sha256"])


def _split(source: str) -> tuple[str, str]:
    """The address of a source, and the checksum that it names, or nothing."""
    address, _, fragment = source.partition("#")
    if not address.startswith(("https://", PREFIX)):
        raise FlairNasError(f"{brief(source)}: genotypes are fetched from https:// and hf:// only")
    name, _, digest = fragment.partition("=")
    if name != "sha256":  # any other is for readers of web pages
        return address, ""
    if not re.fullmatch(r"[0-9A-Fa-f]{64}", digest):
        raise FlairNasError(f"{brief(source, 300)}: after #sha256= come the 64 hexadecimal digits of a SHA-256")
    return address, digest.lower()


def _check(address: str, content: bytes) -> None:
    """Refuses what is no genotype."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise GenotypeError("a genotype in UTF-8 text; this is a binary file", source=address) from None
    if text.lstrip().startswith("<"):
        raise GenotypeError("a genotype; this is a web page, so give the address of the file itself", source=address)
    try:
        Genotype.parse(text)
    except GenotypeError as error:
        raise error.located(address) from None
