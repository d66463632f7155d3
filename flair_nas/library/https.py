"""Small files over HTTPS: limited in size and time, tried again, and never led on to what is not encrypted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from flair_nas.errors import FlairNasError, shown
from flair_nas.library.address import MOST_BYTES
from flair_nas.library.offline import refuse_offline

_ANSWER_SECONDS = 10.0  # to a connection, and between two parts of an answer
_WHOLE_SECONDS = 60.0
_MOST_REDIRECTS = 5
_RETRIES = Retry(
    total=3,
    backoff_factor=0.5,
    status_forcelist=(429, 500, 502, 503, 504),
    allowed_methods=("GET", "HEAD"),
    respect_retry_after_header=False,  # a server may ask for an hour
    raise_on_status=False,
)


Explain = Callable[[requests.Response], str]
"""Says what an answer that is none means, where the server tells more than a status; nothing where it does not."""


def fetch(
    url: str,
    headers: Mapping[str, str] | None = None,
    *,
    name: str = "",
    plain: bool = False,
    explain: Explain = lambda answer: "",
) -> bytes:
    """The content of a file; netrc, proxies and certificates are as `requests` takes them from the environment.

    Args:
        url: its address, ``https://...``.
        headers: to be sent, too; a login in them is for this server alone.
        name: what errors call it (the address).
        plain: http is followed, too: of a server of one's own that has nothing else.
        explain: says what went wrong.

    Raises:
        FlairNasError: the network is not to be used, there is no such file, the server cannot be reached or fails four
            times, it leads on to something else than https or in a circle, or the file has more than `MOST_BYTES` or
            takes more than a minute.
    """
    name = name or url
    refuse_offline(name)
    # not compressed, so that a file that was cut off has too few bytes
    sent = {**(headers or {}), "Accept-Encoding": "identity"}
    with (
        _explained(name),
        _session(plain) as session,
        session.get(url, stream=True, timeout=_ANSWER_SECONDS, headers=sent) as answer,
    ):
        _check_status(name, answer, explain)
        return _body(name, answer)


def why_unreachable(url: str, headers: Mapping[str, str], *, name: str, plain: bool, explain: Explain) -> str:
    """Why what another library is to fetch cannot be reached now; empty where it can. Arguments as of `fetch`.

    Raises:
        FlairNasError: it leads on to something else than https, or in a circle, or `explain` says what is wrong.
    """
    with _explained(name), _session(plain) as session:
        try:
            answer = session.head(url, timeout=_ANSWER_SECONDS, headers=dict(headers), allow_redirects=True)
        except requests.exceptions.SSLError:
            raise
        except (requests.exceptions.ConnectionError, requests.exceptions.Timeout) as error:
            return _reason(error)
    if told := explain(answer):
        raise FlairNasError(f"{name}: {told}")
    return f"status {answer.status_code}" if answer.status_code >= 500 else ""


@contextlib.contextmanager
def _session(plain: bool) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.max_redirects = _MOST_REDIRECTS
        session.adapters.clear()  # of http, so that no redirect leads there
        for scheme in ("https://", "http://") if plain else ("https://",):
            session.mount(scheme, HTTPAdapter(max_retries=_RETRIES))
        yield session


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turns the errors of requests into ones that a user can act on."""
    try:
        yield
    except requests.exceptions.InvalidSchema as error:
        raise FlairNasError(f"{name}: leads on to what is not https, which is refused ({shown(error)})") from None
    except requests.exceptions.TooManyRedirects:
        raise FlairNasError(f"{name}: leads on more than {_MOST_REDIRECTS} times; give the last address") from None
    except requests.exceptions.SSLError as error:
        raise FlairNasError(
            f"{name}: the certificate of the server cannot be verified ({shown(error)}); name one that you trust in "
            "REQUESTS_CA_BUNDLE"
        ) from None
    except (requests.exceptions.InvalidURL, UnicodeError) as error:
        raise FlairNasError(f"{name}: this is no address ({shown(error)})") from None
    except requests.exceptions.RequestException as error:
        raise FlairNasError(
            f"{name}: cannot be fetched ({_reason(error)}); check the address and the network, or try again later"
        ) from None


def _reason(error: BaseException) -> str:
    """What is at the bottom of an error: the layers above tell of connection pools."""
    while isinstance(inner := getattr(error, "reason", None) or next(iter(error.args), None), BaseException):
        error = inner
    return shown(error)


def _check_status(url: str, answer: requests.Response, explain: Explain) -> None:
    if answer.status_code == 200:
        return
    if told := explain(answer):
        raise FlairNasError(f"{url}: {told}")
    what = {
        401: "the server wants a login, which a netrc file can hold",
        403: "the server refuses to give it",
        404: "there is no such file; check the address",
        410: "there is no such file any more",
    }.get(answer.status_code, "the server fails; try again later")
    raise FlairNasError(f"{url}: {what} (status {answer.status_code})")


def _body(url: str, answer: requests.Response) -> bytes:
    end = time.monotonic() + _WHOLE_SECONDS
    content = bytearray()
    for part in answer.iter_content(1024):
        content += part
        if len(content) > MOST_BYTES:
            raise FlairNasError(f"{url}: has more than {MOST_BYTES:,} bytes, so it is no genotype")
        if time.monotonic() > end:
            raise FlairNasError(f"{url}: took more than {_WHOLE_SECONDS:g} seconds; try again later")
    promised = answer.headers.get("Content-Length", "")
    if promised.isdigit() and len(content) < int(promised):  # older urllib3 does not say so itself
        raise FlairNasError(f"{url}: was cut off after {len(content):,} of {promised} bytes; try again")
    return bytes(content)
