"""Index files of names, on a real server."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from https_server import Server, be_impatient, content, serve

from flair_nas import FlairNasError, load_genotype, random_genotype
from flair_nas.cli import main
from flair_nas.rnn_text import parse_rnn
from flair_nas.sharing.index import add_index, indexes, remove_index

GENOTYPE = random_genotype(5)
JSON = GENOTYPE.to_json()
SUM = hashlib.sha256(JSON.encode()).hexdigest()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("server")
    with serve(folder) as server:
        yield server, folder / "ca.pem"


@pytest.fixture
def server(running: tuple[Server, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    server, authority = running
    be_impatient(server, authority, tmp_path / "cache", monkeypatch)
    server.put("/team/cells/ours.json", JSON)
    return server


def index(server: Server, path: str = "/team/index.json", /, **entries: Any) -> str:
    written = {"format": "flair-nas/index", "version": 1, "genotypes": entries}
    return server.put(path, json.dumps(written))


def test_names_of_an_index(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = index(server, **{"ours": {"url": "cells/ours.json", "sha256": SUM}, "hub": {"url": "hf://owner/name@v1"}})
    address = f"{server.url}/team/cells/ours.json"
    assert add_index(url) == {"ours": f"{address}#sha256={SUM}", "hub": "hf://owner/name@v1"}
    assert load_genotype("ours") == GENOTYPE
    assert parse_rnn("ours,combine=mean")[0].combine == "mean"
    monkeypatch.setenv("FLAIR_NAS_OFFLINE", "1")
    assert load_genotype("ours") == load_genotype(address) == GENOTYPE
    with pytest.raises(FlairNasError, match="did you mean ours"):
        load_genotype("ourz")
    with pytest.raises(FlairNasError, match="FLAIR_NAS_OFFLINE"):
        add_index(url)
    assert list(indexes()) == [url]


def test_a_file_that_is_not_what_the_index_says(server: Server) -> None:
    add_index(index(server, ours={"url": "cells/ours.json", "sha256": "0" * 64}))
    with pytest.raises(FlairNasError, match=f"its SHA-256 is {SUM}, not 0000"):
        load_genotype("ours")


def test_bundled_names_and_files_go_first(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = index(server, **{"darts-v2": {"url": "cells/ours.json"}, "mine": {"url": "cells/ours.json"}})
    assert main(["genotypes", "add-index", url]) == 0
    assert "darts-v2 is bundled, too" in caplog.text
    assert load_genotype("darts-v2") != GENOTYPE
    monkeypatch.chdir(tmp_path)
    random_genotype(6).save("mine")
    assert load_genotype("mine") == random_genotype(6)


def test_adding_again_brings_up_to_date_or_changes_nothing(server: Server) -> None:
    url = index(server, old={"url": "cells/ours.json"})
    add_index(url)
    server.put("/team/index.json", "{}")
    with pytest.raises(FlairNasError, match="no index"):
        add_index(url)
    assert load_genotype("old") == GENOTYPE
    index(server, new={"url": "cells/ours.json"})
    add_index(url)
    assert indexes()[url].keys() == {"new"}
    with pytest.raises(FlairNasError, match="old"):
        load_genotype("old")


def test_two_indexes(server: Server) -> None:
    first = index(server, "/first.json", same={"url": "/team/cells/ours.json"}, twice={"url": "/team/cells/ours.json"})
    second = index(server, "/second.json", same={"url": "/team/cells/ours.json"}, twice={"url": "/other.json"})
    add_index(first)
    add_index(second)
    assert load_genotype("same") == GENOTYPE
    with pytest.raises(FlairNasError, match=r"mean different genotypes; write https\S+json or https\S+json"):
        load_genotype("twice")
    remove_index(second)
    assert load_genotype("twice") == GENOTYPE
    with pytest.raises(FlairNasError, match=f"no such index has been added; did you mean {first}"):
        remove_index(second)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("<html>", "it is not JSON"),
        (JSON, "expected a format flair-nas/index"),
        ("[]", "expected a format"),
        ({"version": 2}, "version 2 of this index is not known"),
        ({"genotypes": []}, "no mapping"),
        ({"genotypes": {"a b": {"url": "x"}}}, "'a b': a name begins with a letter"),
        ({"genotypes": {"../x": {"url": "x"}}}, "a name begins with a letter"),
        ({"genotypes": {"a": {"sha256": SUM}}}, "'a': expected a url"),
        ({"genotypes": {"a": "cell.json"}}, "expected a url"),
        ({"genotypes": {"a": {"url": "http://localhost/x"}}}, "neither https:// nor hf://"),
        ({"genotypes": {"a": {"url": "file:///etc/passwd"}}}, "neither https:// nor hf://"),
        ({"genotypes": {"a": {"url": "x", "sha256": "12"}}}, "sha256 is no SHA-256"),
    ],
)
def test_a_faulty_index_is_refused(server: Server, written: Any, message: str) -> None:
    if isinstance(written, dict):
        written = json.dumps({"format": "flair-nas/index", "version": 1, "genotypes": {}} | written)
    url = server.put("/index.json", written)
    with pytest.raises(FlairNasError, match=message) as caught:
        add_index(url)
    assert url in str(caught.value) and indexes() == {}


def test_an_index_that_cannot_be_fetched(server: Server) -> None:
    with pytest.raises(FlairNasError, match="there is no such file"):
        add_index(f"{server.url}/missing.json")
    with pytest.raises(FlairNasError, match="from an https:// address"):
        add_index("index.json")
    with pytest.raises(FlairNasError, match="the server fails"):
        add_index(server.put("/broken.json", content("", 500)))


def test_the_commands(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    url = index(server, ours={"url": "cells/ours.json"})
    assert main(["genotypes", "add-index", url]) == 0
    assert capsys.readouterr().out.startswith(f"ours: {server.url}/team/cells/ours.json\n1 name")
    assert main(["genotypes", "list"]) == 0
    assert capsys.readouterr().out.endswith(f"from {url}: ours\n")
    assert main(["genotypes", "get", "ours"]) == 0
    assert capsys.readouterr().out.startswith(GENOTYPE.one_line())
    assert main(["genotypes", "get", "our"]) == 2
    assert "did you mean ours?" in capsys.readouterr().err
    assert main(["genotypes", "remove-index", url]) == 0
    assert main(["genotypes", "list"]) == 0
    assert url not in capsys.readouterr().out
