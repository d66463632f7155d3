"""The examples that need no download run as they stand, from search to tags."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flair_nas.genotype import Genotype
from flair_nas.storage.resources import resource_path

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parent.parent / "examples"


def run_example(name: str, *arguments: str, cwd: Path) -> str:
    """Runs an example without a network; gives what it prints."""
    nowhere = "http://127.0.0.1:9"
    environment = {**os.environ, "http_proxy": nowhere, "https_proxy": nowhere, "FLAIR_NAS_CACHE": str(cwd / "cache")}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def first_lines(source: Path, target: Path, lines: int) -> None:
    target.parent.mkdir(exist_ok=True)
    text = source.read_text(encoding="utf-8").splitlines(keepends=True)
    target.write_text("".join(text[:lines]), encoding="utf-8")


def test_the_demo_searches_trains_reloads_and_tags(tmp_path: Path) -> None:
    short = ("--search-epochs", "3", "--epochs", "1", "--seeds", "1", "2")
    out = run_example("demo.py", *short, "--out", "runs", cwd=tmp_path)
    found = Genotype.load(tmp_path / "runs" / "search" / "genotype.json")
    assert f"found: {found.one_line()}" in out and "learned nothing" not in out
    assert found.origin["corpus"].startswith("demo, ")
    rows = [line.split() for line in out.splitlines() if line.startswith(("lstm ", "found "))]
    assert [(row[0], row.count("±")) for row in rows] == [("lstm", 2), ("found", 2)]
    assert (tmp_path / "runs" / "found" / "model.pt").exists()
    assert re.search(r"^Dr .*Leeds", re.sub(r"\[[A-Z]+ |\]", "", out), re.M)  # the sentence, without its tags
    assert "flair-nas tune --corpus" in out


def test_search_then_tag_on_own_text_and_corpus(tmp_path: Path) -> None:
    for part, lines in (("train", 100), ("valid", 30)):
        first_lines(resource_path("demo_text", f"{part}.txt"), tmp_path / "text" / f"{part}.txt", lines)
    for part in ("train", "dev", "test"):
        first_lines(resource_path("demo", f"{part}.txt"), tmp_path / "corpus" / f"{part}.txt", 200)
    arguments = ["--text", "text", "--corpus", "corpus", "--search-epochs", "30", "--epochs", "1", "--out", "runs"]
    out = run_example("search_then_tag.py", *arguments, cwd=tmp_path)
    found = Genotype.load(tmp_path / "runs" / "search" / "genotype.json")
    assert f"found after 30 epochs: {found.one_line()}" in out and "Harvest Festival" in out
    assert (tmp_path / "runs" / "tagger" / "final-model.pt").exists()


def test_texts_are_classified_by_a_searched_cell_after_saving_and_loading(tmp_path: Path) -> None:
    out = run_example("classify_texts.py", "--out", "runs", cwd=tmp_path)
    assert "layer: SearchedRNN" in out and '"Wind and rain on the hills before noon" → weather' in out
    assert (tmp_path / "runs" / "best-model.pt").exists()
