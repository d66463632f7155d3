"""docs/reliability.md: each promise names tests that there are, and a run goes on where not all is as it was."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import torch

from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.language_model.training import train_language_model
from flair_nas.nn.kernels.native import build

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent


def test_each_test_that_is_named_is_there() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    named = re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", page)
    assert len(named) > 40
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not name or name in tests, f"{file} has no {name}"


@pytest.mark.parametrize("changed", ["kernels", "threads"])
def test_a_run_goes_on_elsewhere_with_figures_that_differ_by_rounding(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine without a compiler, or with more cores."""
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))
    settings = {"text": "demo", "hidden_size": 16, "device": "cpu", "eval_batch_size": 16}
    config = LanguageModelConfig(**settings, epochs=2)
    train_language_model(config, tmp_path / "here", progress=False)
    train_language_model(LanguageModelConfig(**settings, epochs=1), tmp_path / "there", progress=False)
    threads = torch.get_num_threads()
    if changed == "threads":
        torch.set_num_threads(threads + 1)
    elif build.built().library is None:
        pytest.skip("there are no other kernels here")
    else:
        monkeypatch.setenv("FLAIR_NAS_KERNELS", "columns")
    try:
        train_language_model(config, tmp_path / "there", progress=False)
    finally:
        torch.set_num_threads(threads)
    losses = [
        [json.loads(line)["dev_loss"] for line in (tmp_path / place / "history.jsonl").open()]
        for place in ("here", "there")
    ]
    assert losses[0][0] == losses[1][0]  # the same as long as all is the same
    assert losses[0][1] == pytest.approx(losses[1][1], rel=1e-4)
