"""Files from the network: genotypes, kept in the cache, and folders of the Hugging Face Hub.

A source is ``https://...``, or ``hf://owner/name[@revision]``. A genotype in the cache is not fetched again, so it
stays the same, also offline.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from flair_nas.errors import FlairNasError, brief, shown
from flair_nas.genotype import Genotype, GenotypeError
from flair_nas.storage.cache import Kind, cached_folder

PREFIX = "hf://"
FILE = "genotype.json"

_KIND = Kind("genotypes", "genotypes")
_MAX_BYTES = 1_000_000
_SOURCE = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_TIMEOUT = 10.0  # seconds, for a connection and between two parts of an answer


def download(source: str, refresh: bool = False) -> tuple[Path, str]:
    """Return a genotype file from the cache; fetch and check it first if it is missing.

    Args:
        source: ``https://...``, or ``hf://owner/name[@revision]`` for its ``genotype.json``; a checksum may follow as
            ``#sha256=`` with 64 hexadecimal digits.
        refresh: fetch it again; if this fails, the old file stays.

    Returns:
        The file, and the source with its checksum.

    Raises:
        FlairNasError: it cannot be fetched, has another checksum or is no genotype; or the cache cannot be written.
    """
    address, expected = _split_checksum(source)

    def build(folder: Path) -> dict[str, object]:
        refuse_offline(address)
        content = _fetch_from_hub(address) if address.startswith(PREFIX) else _fetch(address)
        if len(content) > _MAX_BYTES:
            raise FlairNasError(f"{address}: has more than {_MAX_BYTES:,} bytes, so it is no genotype")
        digest = hashlib.sha256(content).hexdigest()
        if expected and digest != expected:
            raise FlairNasError(f"{address}: its SHA-256 is {digest}, not {expected}; the file has changed")
        (folder / FILE).write_bytes(content)
        try:
            if content.lstrip().startswith(b"<"):
                raise GenotypeError("a genotype; this is a web page, so give the address of the file itself")
            Genotype.load(folder / FILE)
        except GenotypeError as error:
            raise error.located(address) from None
        return {"address": address, "sha256": digest}

    key = hashlib.sha256(address.encode()).hexdigest()[:16]
    folder, entry = cached_folder(_KIND, key, build, None, refresh=refresh)
    if expected and entry["sha256"] != expected:
        folder, entry = cached_folder(_KIND, key, build, None, refresh=True)
    return folder / FILE, f"{address}#sha256={entry['sha256']}"


def _split_checksum(source: str) -> tuple[str, str]:
    """Return the address of a source and its checksum, or an empty string."""
    address, _, fragment = source.partition("#")
    if not address.startswith(("https://", PREFIX)):
        raise FlairNasError(f"{brief(source)}: genotypes are fetched from https:// and hf:// only")
    name, _, digest = fragment.partition("=")
    if name != "sha256":  # a part of a web page
        return address, ""
    if not re.fullmatch(r"[0-9A-Fa-f]{64}", digest):
        raise FlairNasError(f"{brief(source, 300)}: after #sha256= come the 64 hexadecimal digits of a SHA-256")
    return address, digest.lower()


def _fetch_from_hub(source: str) -> bytes:
    """Return the genotype file of a repository."""
    with tempfile.TemporaryDirectory() as cache:  # the Hub's own may hold an old file
        folder = fetch_folder(source, [FILE], Path(cache))
        if folder is None:
            raise FlairNasError(f"{source}: this repository has no {FILE}")
        return (folder / FILE).read_bytes()


def _fetch(url: str) -> bytes:
    """Return the content of a file; stop reading beyond the limit."""
    import requests  # it takes a tenth of a second

    content = b""
    try:
        with requests.get(url, stream=True, timeout=_TIMEOUT) as answer:
            answer.raise_for_status()
            if not answer.url.startswith("https://"):
                raise FlairNasError(f"{url}: leads to {brief(answer.url)}, and genotypes are fetched over https only")
            for part in answer.iter_content(1 << 14):
                content += part
                if len(content) > _MAX_BYTES:
                    break
    except requests.exceptions.HTTPError as error:
        status = error.response.status_code
        hint = {401: "name your login in a netrc file", 404: "check the address"}.get(status, "try again later")
        raise FlairNasError(f"{url}: the server refuses it with status {status}; {hint}") from None
    except (requests.exceptions.RequestException, UnicodeError) as error:
        hint = "check the address and the network, or try again later"
        if isinstance(error, requests.exceptions.SSLError):
            hint = "if you trust the server, name its certificate in REQUESTS_CA_BUNDLE"
        reason = shown(getattr(next(iter(error.args), None), "reason", error))  # a connection pool wraps it
        raise FlairNasError(f"{url}: cannot be fetched ({reason}); {hint}") from None
    return content


def offline_variable(address: str) -> str:
    """Return the environment variable that forbids fetching an address, or an empty string.

    ``HF_HUB_OFFLINE`` forbids addresses of the Hub only.
    """
    names = ("FLAIR_NAS_OFFLINE", *(("HF_HUB_OFFLINE",) if address.startswith(PREFIX) else ()))
    return next((name for name in names if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")), "")


def refuse_offline(address: str) -> None:
    """Raise FlairNasError if the environment forbids fetching an address."""
    if name := offline_variable(address):
        raise FlairNasError(f"{address}: is not in the cache, and {name} keeps flair-nas off the network")


def fetch_folder(source: str, files: Sequence[str], cache: Path | None = None) -> Path | None:
    """Fetch files of a repository into the Hub's cache; if the Hub is unreachable, use the cache as it is.

    huggingface_hub takes endpoint and token from the environment.

    Args:
        source: ``hf://owner/name``, or ``hf://owner/name@revision`` with a branch, tag or commit.
        files: their names.
        cache: another folder to use as the Hub's cache.

    Returns:
        The folder with those files that exist, all of one commit; None if the repository has none of them.

    Raises:
        FlairNasError: there is no such repository or revision, or the Hub cannot be reached and a file is not in its
            cache.
    """
    match = _SOURCE.fullmatch(source)
    if match is None:
        raise FlairNasError(f"{source}: expected {PREFIX}owner/name or {PREFIX}owner/name@revision")
    repository, revision = match.groups()
    from huggingface_hub import errors, hf_hub_download

    folder, offline = None, bool(offline_variable(source))
    for name in files:
        try:
            commit = revision if folder is None else folder.name
            path = hf_hub_download(repository, name, revision=commit, cache_dir=cache, local_files_only=offline,
                                   library_name="flair-nas")  # fmt: skip
            folder = Path(path).parent
            continue
        except errors.GatedRepoError:
            reason = "its owner must let you in first; then log in with: hf auth login"
        except errors.RepositoryNotFoundError:
            reason = "there is no such repository, or it is private; log in with: hf auth login"
        except errors.RevisionNotFoundError:
            reason = f"the repository has no revision {revision}"
        except errors.HFValidationError as error:
            reason = str(error)
        except Exception as error:  # of requests or httpx, depending on the version
            missing = isinstance(error, errors.EntryNotFoundError)
            unreachable = isinstance(error, errors.LocalEntryNotFoundError)
            if missing and (offline or not unreachable):
                continue
            cause = shown(error.__cause__ or error)
            reason = f"cannot be fetched ({cause}); check the network and HF_ENDPOINT, or try again later"
        raise FlairNasError(f"{source}: {reason}")
    if folder is None:
        refuse_offline(source)
    return folder
