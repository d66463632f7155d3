"""A web server of our own, with a certificate of our own, that answers as a test tells it to."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import trustme

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


class Server:
    """A server: its requests so far, and its answers.

    Args:
        port: where it listens.
        scheme: https or http.
    """

    def __init__(self, port: int, scheme: str) -> None:
        self.url = f"{scheme}://localhost:{port}"
        self.asked: list[str] = []
        self.answers: dict[str, list[Answer]] = {}

    def put(self, path: str, *answers: Answer | bytes | str) -> str:
        """Set the answers of a path, in turn, the last for all further requests; return its address."""
        self.answers[path] = [answer if callable(answer) else content(answer) for answer in answers]
        return self.url + path


def content(body: bytes | str, status: int = 200, **headers: str) -> Answer:
    """Return an answer with a body."""
    data = body.encode() if isinstance(body, str) else body

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in ({"Content_Length": str(len(data)), "Connection": "close"} | headers).items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data)

    return answer


def redirect(target: str) -> Answer:
    """Return a redirect."""
    return content("", 302, Location=target)


@contextlib.contextmanager
def serve(folder: Path, tls: bool = True) -> Iterator[Server]:
    """Run a server; ``folder/ca.pem`` is the authority of its certificate."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            server.asked.append(f"{self.command} {path}")
            self.close_connection = True
            answers = server.answers.get(path, [content("nothing here", 404, X_Error_Code="EntryNotFound")])
            with contextlib.suppress(OSError):  # the other side may have had enough
                (answers.pop(0) if len(answers) > 1 else answers[0])(self)

        do_HEAD = do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    listening = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
    listening.daemon_threads = True
    if tls:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost").configure_cert(context)
        # the handshake belongs to the thread of a request, else one that never ends holds up all
        listening.socket = context.wrap_socket(listening.socket, server_side=True, do_handshake_on_connect=False)
    server = Server(listening.server_address[1], "https" if tls else "http")
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()


COMMIT = "a" * 40


def put_repository(server: Server, name: str, folder: Path) -> None:
    """Set the answers of a Hub that has a repository with the files of a folder."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    told = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files], "private": False}
    server.put(f"/api/models/{name}/revision/main", json.dumps(told))
    server.put(f"/api/models/{name}", json.dumps(told))
    tree = [{"type": "file", "path": file, "size": len(data), "oid": "b" * 40} for file, data in files.items()]
    server.put(f"/api/models/{name}/tree/{COMMIT}", json.dumps(tree))
    server.put(f"/api/models/{name}/tree/main", json.dumps(tree))
    for file, data in files.items():
        whole = content(data, ETag=f'"{hashlib.sha1(data).hexdigest()}"', X_Repo_Commit=COMMIT)
        for revision in ("main", COMMIT):
            server.put(f"/{name}/resolve/{revision}/{file}", whole)
