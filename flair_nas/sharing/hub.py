"""Genotypes on the Hugging Face Hub: ``hf://owner/name`` or ``hf://owner/name@revision``."""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError, shown
from flair_nas.paths import read_file
from flair_nas.sharing import MOST_BYTES
from flair_nas.sharing.offline import kept_offline_by, refuse_offline

PREFIX = "hf://"
FILE = "genotype.json"
_FORM = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_WAITS = (0.5, 1.0, 2.0)


def fetch_from_hub(source: str) -> bytes:
    """The genotype file of a repository; endpoint and token are as huggingface_hub takes them from the environment.

    Args:
        source: ``hf://owner/name``, and ``@revision``: a branch, tag or commit.

    Raises:
        FlairNasError: the network is not to be used, there is no such repository, revision or file, it is too large, or
            the Hub cannot be reached.
    """
    refuse_offline(source)
    repository, revision = _parts(source)
    from huggingface_hub import HfApi

    api = HfApi(library_name="flair-nas")
    with _explained(source, revision):
        found = _patiently(lambda: api.get_paths_info(repository, [FILE], revision=revision))
        if not found:
            raise FlairNasError(f"{source}: this repository has no {FILE}")
        if getattr(found[0], "size", 0) > MOST_BYTES:
            raise FlairNasError(f"{source}: {FILE} has more than {MOST_BYTES:,} bytes, so it is no genotype")
        with tempfile.TemporaryDirectory() as folder, _no_bars():
            path = _patiently(lambda: api.hf_hub_download(repository, FILE, revision=revision, cache_dir=folder))
            return read_file(Path(path).resolve(), MOST_BYTES)


def fetch_folder(source: str, files: Sequence[str]) -> Path:
    """Some files of a repository, in the Hub's own cache; offline, what is there is taken as it is.

    Args:
        source: as for `fetch_from_hub`.
        files: their names.

    Returns:
        The folder that holds those of them that there are.

    Raises:
        FlairNasError: there is no such repository or revision, or the Hub cannot be reached.
    """
    repository, revision = _parts(source)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    offline = bool(kept_offline_by(source))
    with _explained(source, revision):
        try:
            folder = snapshot_download(
                repository, revision=revision, allow_patterns=list(files), local_files_only=offline
            )
            return Path(folder)
        except LocalEntryNotFoundError:
            refuse_offline(source)
            raise


def _parts(source: str) -> tuple[str, str | None]:
    """Repository and revision."""
    match = _FORM.fullmatch(source)
    if match is None:
        raise FlairNasError(f"{source}: expected hf://owner/name or hf://owner/name@revision")
    return match[1], match[2]


@contextlib.contextmanager
def _explained(source: str, revision: str | None) -> Iterator[None]:
    """Turns the errors of the Hub's client into ones that a user can act on."""
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        yield
    except GatedRepoError:
        raise FlairNasError(f"{source}: its owner must let you in first; then log in with: hf auth login") from None
    except RepositoryNotFoundError:
        what = "there is no such repository, or it is private; log in with: hf auth login"
        raise FlairNasError(f"{source}: {what}") from None
    except RevisionNotFoundError:
        raise FlairNasError(f"{source}: the repository has no revision {revision}") from None
    except HFValidationError as error:
        raise FlairNasError(f"{source}: {error}") from None
    except EntryNotFoundError as error:
        if isinstance(error, LocalEntryNotFoundError):  # it could not look for it
            raise _unreachable(source, error) from None
        raise FlairNasError(f"{source}: this repository has no {FILE}") from None
    except FlairNasError:
        raise
    except Exception as error:  # of whichever library asks
        raise _unreachable(source, error) from None


def _unreachable(source: str, error: Exception) -> FlairNasError:
    return FlairNasError(
        f"{source}: cannot be fetched ({shown(error)}); check the network and HF_ENDPOINT, or try again later"
    )


def _patiently(ask: Callable[[], Any]) -> Any:
    """What a call gives, tried again where the network or the server fails."""
    for wait in _WAITS:
        try:
            return ask()
        except Exception as error:  # requests' before version 1.0 of huggingface_hub, httpx's since
            status = getattr(getattr(error, "response", None), "status_code", None)
            if isinstance(error, ValueError) or (status is not None and status < 500 and status != 429):
                raise
        time.sleep(wait)
    return ask()


@contextlib.contextmanager
def _no_bars() -> Iterator[None]:
    """Within the block, huggingface_hub draws no bar; one of 1 kB is over before it can be seen."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
