"""What an earlier version has saved loads, computes the same, and goes on as it would have; see `saved/make.py`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flair_nas.search.config import SearchConfig
from flair_nas.settings.resolve import read_run_settings
from tests.saved import make

EXPECTED = json.loads((make.HERE / "expected.json").read_text(encoding="utf-8"))
RANDOM = EXPECTED.pop("random")


@pytest.fixture(autouse=True)
def where_it_was_made(monkeypatch: pytest.MonkeyPatch, kernels: str) -> Iterator[None]:
    monkeypatch.chdir(make.HERE)  # the settings have relative paths
    yield
    assert not (make.HERE / "work").exists()


@pytest.mark.parametrize("name", [name for name in EXPECTED if "scores" in EXPECTED[name]])
def test_a_model_computes_what_it_did(name: str) -> None:
    model = make.HERE / name / ("seed-1/model.pt" if name == "tagger" else "model.pt")
    for found, expected in zip(make.scores_of(name, model), EXPECTED[name]["scores"], strict=True):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(make.draw() != pytest.approx(RANDOM), reason="this PyTorch draws other random numbers")
@pytest.mark.parametrize("name", EXPECTED)
def test_a_run_goes_on_as_it_would_have(name: str, tmp_path: Path) -> None:
    train, config = make.RUNS[name]
    out = tmp_path / "run"
    shutil.copytree(make.HERE / name, out)
    train(replace(config, epochs=2), out, progress=False)
    for key, expected in EXPECTED[name]["figures"].items():
        found = make.figures_of(name, out)[key]
        assert found == (expected if isinstance(expected, str | None) else pytest.approx(expected, rel=1e-3)), key


def test_the_settings_are_those_of_the_runs() -> None:
    """But for those that are no matter to a run that goes on, and had other defaults."""
    for name, (_, config) in make.RUNS.items():
        found = read_run_settings(make.HERE / name / "config.yaml", type(config))
        if isinstance(found, SearchConfig):
            found = replace(found, init_range=None, frequency_bias=config.frequency_bias)
            found = replace(found, carry=found.carry if found.history else config.carry)
        assert found == config
