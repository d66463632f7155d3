"""Files on the Hugging Face Hub: ``hf://owner/name`` or ``hf://owner/name@revision``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from flair_nas.errors import FlairNasError, shown

PREFIX = "hf://"
FILE = "genotype.json"
_SOURCE = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")


def offline_variable(address: str) -> str:
    """Return the environment variable that forbids fetching an address, or an empty string."""
    names = ("FLAIR_NAS_OFFLINE", *(("HF_HUB_OFFLINE",) if address.startswith(PREFIX) else ()))
    return next((name for name in names if os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")), "")


def refuse_offline(address: str) -> None:
    """Raise an error if ``FLAIR_NAS_OFFLINE``, or for the Hub ``HF_HUB_OFFLINE``, forbids fetching an address."""
    if name := offline_variable(address):
        raise FlairNasError(f"{address}: is not in the cache, and {name} keeps flair-nas off the network")


def fetch_folder(source: str, files: Sequence[str], cache: Path | None = None) -> Path | None:
    """Fetch files of a repository into the Hub's cache; if the Hub is unreachable, use the cache as it is.

    Endpoint and token are as huggingface_hub takes them from the environment.

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
