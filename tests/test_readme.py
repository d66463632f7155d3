"""Runs the README's code blocks in order and in one folder, as a reader does, but for fewer epochs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flair_nas.storage.resources import resource_path

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
RUNNABLE = [block for block in BLOCKS if "make demo" not in block[1]]


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {target for _, code in BLOCKS for target in re.findall(r"^make (\w+)", code, re.M)}
    assert named == {"demo", "test"}
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in named)


def test_extras_are_added_to_the_installation_that_is_there() -> None:
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "flair_nas").rglob("*.py")]
    lines = [line for text in texts for line in text.read_text(encoding="utf-8").splitlines()]
    commands = [line for line in lines if "pip install" in line]
    assert len(commands) > 8
    # `pip install '.[onnx]'` would replace the editable installation of `make demo`
    assert not [line for line in commands if re.search(r"pip install ['\"]?\.\[", line)]


def test_it_fits_on_a_few_screens() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    assert not [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader with a corpus of column files stands."""
    corpus = tmp_path_factory.mktemp("reader") / "my_corpus"
    corpus.mkdir()
    for part in ("train", "dev", "test"):
        shutil.copy(resource_path("demo", f"{part}.txt"), corpus)
    return corpus.parent


@pytest.mark.parametrize("language, code", RUNNABLE, ids=[f"{k}-{c.split()[1]}" for k, c in RUNNABLE])
def test_the_block_runs(language: str, code: str, folder: Path) -> None:
    # the command is the one of this Python, wherever that lies
    code = re.sub(r'((?:--|"|max_)epochs(?: |=|": ))2[04]', r"\g<1>3", code)
    code = code.replace("--preset few-sentences", "--preset few-sentences --epochs 3")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-c", code] if language == "python" else ["sh", "-euc", code]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr[-3000:]
