"""Genotypes over HTTPS, from a real server that fails in all the ways that servers do."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from https_server import Server, content, redirect, serve

from flair_nas import FlairNasError, Genotype, load_genotype, random_genotype
from flair_nas.cli import main
from flair_nas.library.downloads import download
from flair_nas.library.layer_spec import parse_layer_spec
from flair_nas.storage import cache

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
    """Return a server that flair-nas trusts; set an empty cache and a short timeout."""
    server, authority = running
    server.asked.clear()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FLAIR_NAS_OFFLINE", raising=False)
    monkeypatch.setattr("flair_nas.library.downloads._TIMEOUT", 1.0)
    return server


def kept(tmp_path: Path) -> list[str]:
    return [path.name for path in tmp_path.glob("cache/**/*") if path.is_file()]


def refused(source: str, message: str) -> None:
    with pytest.raises(FlairNasError, match=message) as caught:
        load_genotype(source)
    assert source.partition("#")[0] in str(caught.value)


def test_an_address_is_fetched_once_and_is_there_offline(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = server.put("/cell.json", JSON)
    assert load_genotype(url) == GENOTYPE
    monkeypatch.setenv("FLAIR_NAS_OFFLINE", "1")
    assert load_genotype(url) == load_genotype(f"{url}#sha256={SUM}") == load_genotype(f"{url}#readme") == GENOTYPE
    assert server.asked == ["GET /cell.json"]


def test_an_address_takes_options_as_every_other_text_of_a_layer_does(server: Server) -> None:
    url = server.put("/cell.json", JSON)
    genotype, numbers = parse_layer_spec(f"{url}#sha256={SUM},recurrent_dropout=0.25,combine=mean", ("LSTM",))
    assert genotype.nodes == GENOTYPE.nodes and genotype.combine == "mean" and numbers == {"recurrent_dropout": 0.25}


def test_without_network_and_copy(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_OFFLINE", "true")
    refused(server.put("/cell.json", JSON), "is not in the cache, and FLAIR_NAS_OFFLINE keeps flair-nas off")
    assert server.asked == [] and kept(tmp_path) == []
    monkeypatch.setenv("FLAIR_NAS_OFFLINE", "0")
    refused("https://localhost:1/cell.json", "Connection refused.*check the address and the network")


def test_a_checksum_that_is_not_the_files(server: Server, tmp_path: Path) -> None:
    url = server.put("/cell.json", JSON)
    refused(f"{url}#sha256={'0' * 64}", f"its SHA-256 is {SUM}, not 0000")
    assert kept(tmp_path) == []
    refused(f"{url}#sha256=abc", "64 hexadecimal digits")


def test_a_copy_that_is_not_the_wanted_file_is_fetched_again(server: Server) -> None:
    other = random_genotype(6).to_json()
    url = server.put("/cell.json", other, JSON)
    assert load_genotype(url) == random_genotype(6)
    assert load_genotype(f"{url}#sha256={SUM.upper()}") == GENOTYPE == load_genotype(url)
    refused(f"{url}#sha256={'1' * 64}", "the file has changed")
    assert load_genotype(url) == GENOTYPE  # what was kept before stays


def test_refresh_brings_what_is_there_now_and_loses_nothing(server: Server) -> None:
    url = server.put("/cell.json", JSON, "no genotype", random_genotype(6).to_json())
    assert load_genotype(url) == GENOTYPE
    with pytest.raises(FlairNasError):
        download(url, refresh=True)
    assert load_genotype(url) == GENOTYPE
    download(url, refresh=True)
    assert load_genotype(url) == random_genotype(6)


def test_a_kill_while_a_newer_one_is_put_in_place_loses_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.put("/cell.json", JSON, random_genotype(6).to_json())
    assert load_genotype(url) == GENOTYPE
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_put_in_place", lambda *_: os._exit(9))
        child = os.fork()
        if not child:
            try:
                download(url, refresh=True)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    monkeypatch.setenv("FLAIR_NAS_OFFLINE", "1")
    assert load_genotype(url) == GENOTYPE


@pytest.mark.parametrize(
    ("status", "message"),
    [(404, "status 404; check the address"), (401, "netrc file"), (500, "status 500; try again later")],
)
def test_a_refusal(server: Server, tmp_path: Path, status: int, message: str) -> None:
    refused(server.put("/cell.json", content("x", status)), message)
    assert kept(tmp_path) == []


@pytest.mark.slow
def test_a_server_that_does_not_answer(server: Server, tmp_path: Path) -> None:
    refused(server.put("/cell.json", lambda _: time.sleep(2.5)), "Read timed out")
    assert kept(tmp_path) == []


def test_an_answer_that_is_cut_off(server: Server, tmp_path: Path) -> None:
    refused(server.put("/cell.json", content(JSON[:200], Content_Length=str(len(JSON)))), "IncompleteRead|cut short")
    assert kept(tmp_path) == []


def test_redirects_within_https_are_followed(server: Server) -> None:
    server.put("/cell.json", JSON)
    assert load_genotype(server.put("/moved.json", redirect("/cell.json"))) == GENOTYPE


def test_redirects_to_anything_else_are_refused(server: Server, tmp_path: Path) -> None:
    with serve(tmp_path, tls=False) as plain:
        url = server.put("/cell.json", redirect(plain.put("/cell.json", JSON)))
        refused(url, "leads to 'http://.*genotypes are fetched over https only")
    refused(server.put("/cell.json", redirect("file:///etc/hostname")), "cannot be fetched")
    assert kept(tmp_path) == []


@pytest.mark.parametrize(
    "address", ["http://localhost/cell.json", "file:///etc/passwd", "ftp://localhost/x", "s3://a/b"]
)
def test_other_addresses_are_refused(server: Server, address: str) -> None:
    refused(address, "from https:// and hf:// only")


def test_a_certificate_of_nobody_we_know(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    refused(server.put("/cell.json", JSON), "certificate.*REQUESTS_CA_BUNDLE")
    assert kept(tmp_path) == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "<!DOCTYPE html><p>Genotype(recurrent=[('tanh', 0)], concat=[1])",
            "a web page, so give the address of the file",
        ),
        ('{"some": "JSON"}', "format"),
        (b"\x80\x04\x95\xff", "binary file"),
    ],
    ids=["html", "other JSON", "pickle"],
)
def test_what_is_no_genotype_is_not_kept(server: Server, tmp_path: Path, body: str | bytes, message: str) -> None:
    refused(server.put("/cell.json", body), message)
    assert kept(tmp_path) == []


def test_a_file_of_100_megabytes_is_left_early(server: Server, tmp_path: Path) -> None:
    sent = []

    def endless(handler: object) -> None:
        handler.send_response(200)  # type: ignore[attr-defined]
        handler.send_header("Connection", "close")  # type: ignore[attr-defined]
        handler.end_headers()  # type: ignore[attr-defined]
        for _ in range(1000):
            handler.wfile.write(b" " * 100_000)  # type: ignore[attr-defined]
            sent.append(100_000)

    refused(server.put("/cell.json", endless), "has more than 1,000,000 bytes")
    assert sum(sent) < 20_000_000 and kept(tmp_path) == []  # what the buffers between the two take, and no more


def test_a_damaged_copy_is_fetched_again(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    url = server.put("/cell.json", JSON)
    path, _ = download(url)
    path.write_text(random_genotype(6).to_json())
    assert load_genotype(url) == GENOTYPE
    assert "this cache of genotypes is damaged" in caplog.text


def test_a_cache_that_cannot_be_written(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "file"))
    with pytest.raises(FlairNasError, match=r"cannot write to this cache of genotypes.*FLAIR_NAS_CACHE"):
        load_genotype(server.put("/cell.json", JSON))
    assert server.asked == []


# --- many processes ---

FETCH = "import sys; from flair_nas import load_genotype; print(load_genotype(sys.argv[1]).one_line())"


@pytest.mark.slow
def test_twenty_processes_fetch_one_file_once(server: Server, tmp_path: Path) -> None:
    def slow(handler: object) -> None:
        time.sleep(0.3)
        content(JSON)(handler)  # type: ignore[arg-type]

    url = server.put("/cell.json", slow)
    processes = [
        subprocess.Popen([sys.executable, "-c", FETCH, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(20)
    ]
    outputs = [process.communicate() for process in processes]
    assert {output for output, _ in outputs} == {f"{GENOTYPE.one_line()}\n"}, outputs
    assert server.asked == ["GET /cell.json"]
    assert sorted(kept(tmp_path)) == ["corpus.json", "genotype.json"]


# --- the command ---


def test_get(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = server.put("/cell.json", JSON, random_genotype(6).to_json())
    assert main(["genotypes", "get", url, "--out", str(tmp_path / "cell.json")]) == 0
    line, cached, pinned, _ = capsys.readouterr().out.splitlines()
    assert line == GENOTYPE.one_line() and pinned.endswith(f"{url}#sha256={SUM}")
    assert Genotype.load(cached.removeprefix("in the cache: ")) == Genotype.load(tmp_path / "cell.json") == GENOTYPE
    assert main(["genotypes", "get", url]) == 0
    assert capsys.readouterr().out.startswith(GENOTYPE.one_line())
    assert main(["genotypes", "get", url, "--refresh"]) == 0
    assert capsys.readouterr().out.startswith(random_genotype(6).one_line())
    assert main(["genotypes", "get", "some-cell"]) == 2
    said = capsys.readouterr().err
    assert "is no https:// or hf:// address" in said
    assert "need no fetching: flair-nas genotypes list" in said
