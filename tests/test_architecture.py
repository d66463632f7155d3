"""What docs/architecture.md says is to be touched to add something is enough: its recipes, on a copy of the package."""

from __future__ import annotations

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

# Prints the engines on which a layer and a supernet, with gates, equal the equations, in value and gradient.
CHECK = """
import dataclasses, os, sys
import torch
from flair_nas import SearchedRNN, __file__, load_genotype
from flair_nas.genotype import OPERATIONS
from flair_nas.supernet import CellSupernet
assert os.getcwd() in __file__
line, form, *engines = sys.argv[1:]
genotype = dataclasses.replace(load_genotype(line), gate=form)

def results(engine):
    os.environ["FLAIR_NAS_KERNELS"] = engine
    found = []
    options = {"history": 2, "gate": form, "init_range": 0.5}
    for make in (lambda: SearchedRNN(3, 4, genotype), lambda: CellSupernet(3, 4, 2, **options)):
        torch.manual_seed(1)
        layer = make().double()
        assert not hasattr(layer, "arch") or layer.arch.shape[1] == len(OPERATIONS)
        output = layer(torch.randn(5, 2, 3).double())[0]
        found += [output, *torch.autograd.grad(output.square().sum(), list(layer.parameters()))]
    return found

expected = results("plain")
for engine in engines:
    for value, wanted in zip(results(engine), expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-10, atol=1e-12)
    print(engine)
"""
CASES = {
    "silu": (0, 3, "silu0-silu1/state=silu-silu+silu1/input=silu-silu+silu1", "residual"),
    "bounded": (1, 3, "tanh0-relu1/state=tanh-tanh+relu1/input=sigmoid-tanh+relu1", "bounded"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_recipe_is_enough(name: str, tmp_path: Path) -> None:
    number, files, line, form = CASES[name]
    recipe = RECIPES[number]
    assert len(re.findall(r"^diff --git", recipe, re.M)) == files
    shutil.copytree(ROOT / "flair_nas", tmp_path / "flair_nas", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "resources", tmp_path / "resources")
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=recipe, text=True, check=True)
    engines = ["columns"] + (["native"] if build.built().library else [])
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment["FLAIR_NAS_KERNELS_CACHE"] = str(tmp_path / "kernels")
    command = [sys.executable, "-c", CHECK, line, form, *engines]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == engines
