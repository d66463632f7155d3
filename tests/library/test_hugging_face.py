"""Genotypes on the Hub: the real client, in a process of its own, against an endpoint of ours."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from https_server import Server, content, put_repository, serve

from flair_nas import random_genotype

pytestmark = pytest.mark.slow

GENOTYPE = random_genotype(5)
JSON = GENOTYPE.to_json()
SUM = hashlib.sha256(JSON.encode()).hexdigest()
COMMIT = "a" * 40
FETCH = """
import sys, time
time.sleep = lambda seconds: None  # between the tries of the client
from flair_nas import load_genotype
try:
    if sys.argv[1].startswith("files "):
        from flair_nas.library.downloads import fetch_folder
        folder = fetch_folder(sys.argv[1].removeprefix("files "), ("model.safetensors", "config.json"))
        print(folder and sorted((path.name, path.read_text()) for path in folder.iterdir()))
    else:
        print(load_genotype(sys.argv[1]).one_line())
except ValueError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("server"), tls=False) as server:
        yield server


def put(server: Server, repository: str, body: str, revision: str = "main") -> str:
    etag = f'"{hashlib.sha1(body.encode()).hexdigest()}"'
    return server.put(place(repository, revision), content(body, ETag=etag, X_Repo_Commit=COMMIT))


def place(repository: str, revision: str = "main") -> str:
    return f"/{repository}/resolve/{revision}/genotype.json"


def refuse(server: Server, repository: str, status: int, code: str, revision: str = "main") -> None:
    server.put(place(repository, revision), content("{}", status, X_Error_Code=code))


def fetch(server: Server, tmp_path: Path, source: str, **environment: str) -> str:
    """Return the output of a process that loads a genotype: its line, or the error."""
    server.asked.clear()
    own = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hf"), "FLAIR_NAS_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", FETCH, source]
    done = subprocess.run(command, env=os.environ | own | environment, capture_output=True, text=True, timeout=120)
    tries = ("thrown while requesting", "Retrying in ")  # what the client says of each try that fails
    assert [line for line in done.stderr.splitlines() if not any(text in line for text in tries)] == []
    return done.stdout.strip()


def test_a_genotype_of_a_repository(server: Server, tmp_path: Path) -> None:
    put(server, "owner/cell", JSON)
    put(server, "owner/cell", random_genotype(6).to_json(), revision="v2")
    assert fetch(server, tmp_path, "hf://owner/cell") == GENOTYPE.one_line()
    assert fetch(server, tmp_path, "hf://owner/cell@v2") == random_genotype(6).one_line()
    assert fetch(server, tmp_path, f"hf://owner/cell#sha256={SUM}", HF_HUB_OFFLINE="1") == GENOTYPE.one_line()
    assert server.asked == []
    assert "not 000" in fetch(server, tmp_path, f"hf://owner/cell#sha256={'0' * 64}")


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "FLAIR_NAS_OFFLINE"])
def test_offline_without_a_copy(server: Server, tmp_path: Path, variable: str) -> None:
    put(server, "owner/cell", JSON)
    said = fetch(server, tmp_path, "hf://owner/cell", **{variable: "1"})
    assert f"hf://owner/cell: is not in the cache, and {variable} keeps flair-nas off the network" in said
    assert server.asked == []


def test_what_is_not_there(server: Server, tmp_path: Path) -> None:
    refuse(server, "owner/none", 404, "RepoNotFound")
    assert "there is no such repository, or it is private" in fetch(server, tmp_path, "hf://owner/none")
    refuse(server, "owner/cell", 404, "RevisionNotFound", revision="v9")
    assert "no revision v9" in fetch(server, tmp_path, "hf://owner/cell@v9")
    refuse(server, "owner/empty", 404, "EntryNotFound")
    assert "hf://owner/empty: this repository has no genotype.json" in fetch(server, tmp_path, "hf://owner/empty")
    refuse(server, "owner/gated", 403, "GatedRepo")
    assert "its owner must let you in first" in fetch(server, tmp_path, "hf://owner/gated")
    assert "expected hf://owner/name" in fetch(server, tmp_path, "hf://name")
    assert not list((tmp_path / "cache").glob("**/genotype.json"))


def test_what_is_no_genotype(server: Server, tmp_path: Path) -> None:
    put(server, "owner/large", "x" * 2_000_000)
    assert "hf://owner/large: has more than 1,000,000 bytes" in fetch(server, tmp_path, "hf://owner/large")
    put(server, "owner/other", '{"model_type": "bert"}')
    assert "hf://owner/other" in (said := fetch(server, tmp_path, "hf://owner/other")) and "format" in said
    assert not list((tmp_path / "cache").glob("**/genotype.json"))


def test_files_of_a_repository_are_in_the_cache_of_the_hub(server: Server, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("config.json", "model.safetensors", "pytorch_model.bin"):
        (tmp_path / "folder" / name).write_text(name)
    put_repository(server, "team/ner", tmp_path / "folder")
    whole = str([(name, name) for name in ("config.json", "model.safetensors")])
    assert fetch(server, tmp_path, "files hf://team/ner") == whole
    assert not any("pytorch_model" in asked for asked in server.asked)
    assert fetch(server, tmp_path, "files hf://team/ner", HF_HUB_OFFLINE="1") == whole and server.asked == []
    assert fetch(server, tmp_path, "files hf://team/ner", HF_ENDPOINT="http://localhost:1") == whole
    server.put("/team/ner/resolve/main/model.safetensors", content("", 500))
    assert fetch(server, tmp_path, "files hf://team/ner") == whole
    said = fetch(server, tmp_path / "new", "files hf://team/ner")
    assert "hf://team/ner: cannot be fetched" in said and "500" in said and "check the network and HF_ENDPOINT" in said
    assert "is not in the cache, and HF_HUB_OFFLINE" in fetch(
        server, tmp_path / "new", "files hf://team/ner", HF_HUB_OFFLINE="1"
    )
    refuse(server, "team/none", 404, "EntryNotFound")
    assert fetch(server, tmp_path, "files hf://team/none") == "None"
