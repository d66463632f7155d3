"""Genotypes on the Hub: the real client, in a process of its own, against an endpoint of ours."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from https_server import Server, content, serve

from flair_nas import random_genotype

GENOTYPE = random_genotype(5)
JSON = GENOTYPE.to_json()
SUM = hashlib.sha256(JSON.encode()).hexdigest()
COMMIT = "a" * 40
FETCH = """
import sys
from flair_nas import load_genotype
from flair_nas.sharing import hub
hub._WAITS = (0.01, 0.01, 0.01)
try:
    print(load_genotype(sys.argv[1]).one_line())
except ValueError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("server"), tls=False) as server:
        yield server


def put(server: Server, repository: str, body: str, revision: str = "main", size: int | None = None) -> None:
    listed = [{"type": "file", "path": "genotype.json", "size": size or len(body), "oid": "b" * 40}]
    server.put(f"/api/models/{repository}/paths-info/{revision}", json.dumps(listed))
    whole = content(body, ETag=f'"{hashlib.sha1(body.encode()).hexdigest()}"', X_Repo_Commit=COMMIT)
    server.put(f"/{repository}/resolve/{revision}/genotype.json", whole)


def fetch(server: Server, tmp_path: Path, source: str, **environment: str) -> str:
    """What a process prints that asks for a genotype: its line, or the error."""
    server.asked.clear()
    own = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hf"), "FLAIR_NAS_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", FETCH, source]
    done = subprocess.run(command, env=os.environ | own | environment, capture_output=True, text=True, timeout=120)
    assert done.stderr == "", done.stderr
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
    server.put("/api/models/owner/none/paths-info/main", content("{}", 404, X_Error_Code="RepoNotFound"))
    assert "there is no such repository, or it is private" in fetch(server, tmp_path, "hf://owner/none")
    server.put("/api/models/owner/cell/paths-info/v9", content("{}", 404, X_Error_Code="RevisionNotFound"))
    assert "no revision v9" in fetch(server, tmp_path, "hf://owner/cell@v9")
    server.put("/api/models/owner/empty/paths-info/main", "[]")
    assert "hf://owner/empty: this repository has no genotype.json" in fetch(server, tmp_path, "hf://owner/empty")
    server.put("/api/models/owner/gated/paths-info/main", content("{}", 403, X_Error_Code="GatedRepo"))
    assert "its owner must let you in first" in fetch(server, tmp_path, "hf://owner/gated")
    assert "expected hf://owner/name" in fetch(server, tmp_path, "hf://name")
    assert not list((tmp_path / "cache").glob("**/genotype.json"))


def test_what_is_no_genotype(server: Server, tmp_path: Path) -> None:
    put(server, "owner/large", JSON, size=100_000_000)
    assert "has more than 1,000,000 bytes" in fetch(server, tmp_path, "hf://owner/large")
    assert not any("resolve" in asked for asked in server.asked)
    put(server, "owner/other", '{"model_type": "bert"}')
    assert "hf://owner/other" in (said := fetch(server, tmp_path, "hf://owner/other")) and "format" in said
    assert not list((tmp_path / "cache").glob("**/genotype.json"))


def test_a_hub_that_fails(server: Server, tmp_path: Path) -> None:
    put(server, "owner/cell", JSON)
    path = "/api/models/owner/cell/paths-info/main"
    server.answers[path].insert(0, content("{}", 500))
    assert fetch(server, tmp_path, "hf://owner/cell") == GENOTYPE.one_line()
    server.put(path, content("{}", 500))
    said = fetch(server, tmp_path / "new", "hf://owner/cell")
    assert "cannot be fetched" in said and "check the network and HF_ENDPOINT" in said
    said = fetch(server, tmp_path / "new", "hf://owner/cell", HF_ENDPOINT="http://localhost:1")
    assert "cannot be fetched" in said
