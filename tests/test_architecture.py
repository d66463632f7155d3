"""The recipes of docs/architecture.md are enough to add something: applied to a copy of the package, they work."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flair_nas.nn.kernels.native import build

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
RECIPES = re.findall(
    r"^```diff\n(.*?)^```$", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.M | re.S
)
FILES = {"operation": 2, "form": 2, "layer": 2, "preset": 1, "strategy": 2}
"""The number of files that each recipe touches, in the order of the page."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Apply all recipes and check what they add in one process; see `tests/helpers/additions.py`."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "flair_nas", copy / "flair_nas", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "resources", copy / "resources")
    for recipe in RECIPES:
        subprocess.run(["git", "apply", "-"], cwd=copy, input=recipe, text=True, check=True)
    engines = ["columns"] + (["native"] if build.built().library else [])
    environment = {**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "500"}
    environment["FLAIR_NAS_KERNELS_CACHE"] = str(copy / "kernels")
    command = [sys.executable, str(ROOT / "tests" / "helpers" / "additions.py"), *engines]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", FILES)
def test_an_addition_is_run_exported_drawn_counted_mutated_and_used_in_a_tagger(
    name: str, outcomes: dict[str, str]
) -> None:
    assert outcomes[name] == ""


def test_a_recipe_touches_few_files() -> None:
    assert [len(re.findall(r"^diff --git", recipe, re.M)) for recipe in RECIPES] == [*FILES.values()]
