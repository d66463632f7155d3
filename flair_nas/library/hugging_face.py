"""Genotypes on the Hugging Face Hub: ``hf://owner/name`` or ``hf://owner/name@revision``."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flair_nas.errors import FlairNasError, shown
from flair_nas.library.https import Explain, fetch, why_unreachable
from flair_nas.library.offline import kept_offline_by, refuse_offline

if TYPE_CHECKING:
    from requests import Response

PREFIX = "hf://"
FILE = "genotype.json"
_FORM = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_LIBRARY = "flair-nas"


def fetch_from_hub(source: str) -> bytes:
    """The genotype file of a repository; endpoint and token are as huggingface_hub takes them from the environment.

    Args:
        source: ``hf://owner/name``, and ``@revision``: a branch, tag or commit.

    Raises:
        FlairNasError: the network is not to be used, there is no such repository, revision or file, it is too large, or
            the Hub cannot be reached.
    """
    repository, revision = _parts(source)
    url, headers = _request(repository, FILE, revision)
    what = {**_meanings(revision), "EntryNotFound": f"this repository has no {FILE}"}
    return fetch(url, headers, name=source, plain=url.startswith("http://"), explain=_explain(what))


def _meanings(revision: str | None) -> dict[str, str]:
    """What the Hub's codes for a repository that cannot be read mean."""
    return {
        "GatedRepo": "its owner must let you in first; then log in with: hf auth login",
        "RepoNotFound": "there is no such repository, or it is private; log in with: hf auth login",
        "RevisionNotFound": f"the repository has no revision {revision}",
    }


def _explain(meanings: Mapping[str, str]) -> Explain:
    def explain(answer: Response) -> str:
        code = answer.headers.get("X-Error-Code", "RepoNotFound" if answer.status_code == 401 else "")
        return meanings.get(code, "")

    return explain


def _request(repository: str, name: str, revision: str | None) -> tuple[str, dict[str, str]]:
    """Address of a file, and headers with the token, if there is one."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    return hf_hub_url(repository, name, revision=revision), build_hf_headers(library_name=_LIBRARY)


def fetch_folder(source: str, files: Sequence[str]) -> Path | None:
    """Some files of a repository, in the Hub's own cache; offline, what is there is taken as it is.

    Args:
        source: as for `fetch_from_hub`.
        files: their names.

    Returns:
        The folder that holds those of them that there are, all of one commit; None where there is none of them.

    Raises:
        FlairNasError: there is no such repository or revision, the Hub cannot be reached and its cache has none of
            them, or it leads on to what is not https.
    """
    repository, revision = _parts(source)
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    offline, reason = bool(kept_offline_by(source)), ""
    folder: Path | None = None
    with _explained(source):
        for name in files:
            commit = revision if folder is None else folder.name
            try:
                if not offline:
                    url, headers = _request(repository, name, commit)
                    plain, explain = url.startswith("http://"), _explain(_meanings(revision))
                    reason = why_unreachable(url, headers, name=source, plain=plain, explain=explain)
                path = hf_hub_download(
                    repository, name, revision=commit, local_files_only=offline or bool(reason), library_name=_LIBRARY
                )
            except LocalEntryNotFoundError as error:
                if not offline:
                    raise _unreachable(source, reason or shown(error)) from None
            except EntryNotFoundError:
                continue
            else:
                folder = Path(path).parent
    if folder is None:
        refuse_offline(source)
    return folder


def _parts(source: str) -> tuple[str, str | None]:
    """Repository and revision."""
    match = _FORM.fullmatch(source)
    if match is None:
        raise FlairNasError(f"{source}: expected hf://owner/name or hf://owner/name@revision")
    return match[1], match[2]


@contextlib.contextmanager
def _explained(source: str) -> Iterator[None]:
    """Turns the errors of the Hub's client into ones that a user can act on."""
    from huggingface_hub.errors import HFValidationError

    try:
        yield
    except HFValidationError as error:
        raise FlairNasError(f"{source}: {error}") from None
    except FlairNasError:
        raise
    except Exception as error:  # of whichever library asks
        raise _unreachable(source, shown(error)) from None


def _unreachable(source: str, reason: str) -> FlairNasError:
    return FlairNasError(
        f"{source}: cannot be fetched ({reason}); check the network and HF_ENDPOINT, or try again later"
    )
