"""Index files: names that a team gives to genotypes that it hosts.

    {"format": "flair-nas/index", "version": 1,
     "genotypes": {"our-ner-cell": {"url": "our-ner-cell.json", "sha256": "..."}}}

A URL may be relative to that of the index, or ``hf://owner/name``; ``sha256`` may be left out.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from flair_nas.cached_folder import Kind, cached_folder, kept_folders
from flair_nas.errors import FlairNasError, brief, did_you_mean
from flair_nas.paths import typed

log = logging.getLogger("flair_nas")

FORMAT, VERSION = "flair-nas/index", 1
_KIND = Kind("indexes", "indexes of genotypes")
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_SUM = re.compile(r"[0-9a-f]{64}")


def add_index(url: str) -> dict[str, str]:
    """Fetches an index and keeps it; one that is kept already is replaced by what it is now.

    Args:
        url: where it is, ``https://...``.

    Returns:
        The sources by name, as `flair_nas.sharing.downloads.download` takes them.

    Raises:
        FlairNasError: it cannot be fetched, or is no index; what was kept before stays.
    """
    if not url.startswith("https://"):
        raise FlairNasError(f"{url}: an index is fetched from an https:// address")

    from flair_nas.sharing.https import fetch  # loads requests, which looking a name up need not

    def build(_: Path) -> dict[str, Any]:
        return {"url": url, "genotypes": read_index(url, fetch(url))}

    _, content = cached_folder(_KIND, _key(url), build, None, refresh=True)
    found: dict[str, str] = content["genotypes"]
    return found


def remove_index(url: str) -> None:
    """Forgets an index; genotypes that were fetched by it stay in the cache.

    Raises:
        FlairNasError: it is not known.
        OSError: it cannot be removed.
    """
    kept = {content["url"]: folder for folder, content in kept_folders(_KIND, None).items()}
    if url not in kept:
        hint = did_you_mean(url, list(kept))
        raise FlairNasError(f"{url}: no such index has been added; {hint}known: {', '.join(kept) or 'none'}")
    shutil.rmtree(kept[url])


def indexes() -> dict[str, dict[str, str]]:
    """The sources by name, for each index that has been added, by its URL."""
    return {content["url"]: content["genotypes"] for content in kept_folders(_KIND, None).values()}


def look_up(name: str) -> str | None:
    """The source that an index has under a name; None if none has it.

    Raises:
        FlairNasError: two indexes have different ones.
    """
    if not _NAME.fullmatch(name):
        return None
    found = {url: names[name] for url, names in indexes().items() if name in names}
    if len(set(found.values())) > 1:
        either = " or ".join(typed(source) for source in found.values())
        raise FlairNasError(f"{name}: the indexes {', '.join(found)} mean different genotypes; write {either}")
    return next(iter(found.values()), None)


def _key(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def read_index(url: str, content: bytes) -> dict[str, str]:
    """The sources by name that an index file has.

    Raises:
        FlairNasError: it is no index, or an entry is faulty.
    """
    try:
        data = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise FlairNasError(f"{url}: this is no index of genotypes: it is not JSON") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise FlairNasError(f"{url}: this is no index of genotypes: expected a format {FORMAT}")
    if data.get("version") != VERSION:
        raise FlairNasError(
            f"{url}: version {brief(data.get('version'))} of this index is not known, {VERSION} is; a newer flair-nas "
            "may read it"
        )
    entries = data.get("genotypes")
    if not isinstance(entries, dict):
        raise FlairNasError(f"{url}: the index has no mapping of genotypes")
    return {name: _source(url, name, entry) for name, entry in entries.items()}


def _source(index: str, name: str, entry: Any) -> str:
    """The source of an entry: its absolute address, and the checksum that it must have."""
    where = f"{index}: genotypes: {brief(name)}"
    if not _NAME.fullmatch(name):
        raise FlairNasError(f"{where}: a name begins with a letter, and has letters, digits, `.`, `_` and `-` only")
    if not isinstance(entry, dict) or not isinstance(entry.get("url"), str):
        raise FlairNasError(f"{where}: expected a url, and if you like a sha256")
    address: str = urljoin(index, entry["url"])
    if not address.startswith(("https://", "hf://")):
        raise FlairNasError(f"{where}: {brief(address)} is neither https:// nor hf://")
    digest = entry.get("sha256")
    if digest is None:
        return address
    if not isinstance(digest, str) or not _SUM.fullmatch(digest.lower()):
        raise FlairNasError(f"{where}: sha256 is no SHA-256, which has 64 hexadecimal digits")
    return f"{address}#sha256={digest.lower()}"
