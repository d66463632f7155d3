"""Settings of a search: a strategy owns its own, none need torch, and interfaces stay small."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest

from flair_nas import ContinualSettings, EvolutionSettings, GradientSettings, SearchConfig, TransformerSettings
from flair_nas.errors import FlairNasError
from flair_nas.search.config import SearchSettings
from flair_nas.search.protocols import Objective, Strategy
from flair_nas.search.registry import STRATEGIES, strategy_settings
from flair_nas.search.trainer import search_genotype
from flair_nas.settings.fields import flatten, get_kinds, make_settings
from flair_nas.settings.resolve import to_yaml

MAKE = """
import sys
import flair_nas
flair_nas.SearchConfig()
flair_nas.SearchConfig(strategy=flair_nas.EvolutionSettings(child_steps=[3], candidates=["relu0"]), nodes=1)
flair_nas.TaggingSearchConfig(strategy="enas", continual=flair_nas.ContinualSettings(sparsity=1e-7))
heavy = {"torch", "flair", "accelerate"} & set(sys.modules)
assert not heavy, heavy
"""


def test_a_strategy_owns_its_settings() -> None:
    config = SearchConfig(strategy=EvolutionSettings(population=50, child_steps=[9]), epochs=20)
    assert (config.strategy_name, config.epochs) == ("evolution", 20)
    assert SearchConfig().strategy == SearchConfig(strategy="gradient").strategy == GradientSettings()
    flat = {"strategy": "evolution", "population": 50, "child_steps": [9], "epochs": 20}
    assert make_settings(SearchConfig, flat) == config
    assert make_settings(SearchConfig, flatten(config)) == config
    assert "order:" not in to_yaml(config) and "population: 50" in to_yaml(config)
    with pytest.raises(TypeError, match="population"):
        SearchConfig(population=50)  # type: ignore[call-arg]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_setting_of_another_strategy_is_refused_with_its_owner(strategy: str) -> None:
    own = get_kinds(strategy_settings()[strategy])
    for other, settings in strategy_settings().items():
        for name, kind in get_kinds(settings).items():
            flat: dict[str, Any] = {"strategy": strategy, name: kind.default}
            if name not in own:
                with pytest.raises(FlairNasError, match=rf"{name} belongs to strategy .*\b{other}\b.*, not {strategy}"):
                    make_settings(SearchConfig, flat)


def test_settings_are_checked_again_when_a_search_begins(tmp_path: Any) -> None:
    config = SearchConfig(text="demo")
    config.epochs = 0
    with pytest.raises(FlairNasError, match="epochs must be a whole number from 1"):
        search_genotype(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    for objective, problem in (
        ("tagging", "config must be a TaggingSearchConfig"),
        ("tgas", "objective must be one of"),
    ):
        with pytest.raises(FlairNasError, match=problem):
            search_genotype(SearchConfig(objective=objective), tmp_path / "run")


@pytest.mark.slow
def test_settings_need_no_torch() -> None:
    subprocess.run([sys.executable, "-c", MAKE], check=True)


def test_settings_and_interfaces_stay_small() -> None:
    assert len(dataclasses.fields(SearchSettings)) <= 28
    assert len(dataclasses.fields(ContinualSettings)) == 4 and len(dataclasses.fields(TransformerSettings)) == 3

    def methods(protocol: type) -> set[str]:
        return {name for name, value in vars(protocol).items() if callable(value) and not name.startswith("_")}

    assert methods(Strategy) == {
        *("step", "end_epoch", "genotype", "state_dict", "load_state_dict", "converged", "finish"),
        *("cost", "figures", "verdict", "end_seconds"),
    }
    assert len(methods(Objective)) <= 9


class _Foreign(EvolutionSettings):
    """Settings of a strategy that has no line in the registry."""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": _Foreign(child_steps=[3])}, "strategy must be of GradientSettings or"),
        ({"fixed": "lstm", "learn": "inter", "history": 1}, "unknown genotype 'lstm'"),
    ],
)
def test_settings_of_unknown_classes_are_refused_in_plain_words(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FlairNasError, match=message):
        SearchConfig(text="demo", **settings).fixed_genotype()


def test_a_strategy_that_is_a_list_is_refused() -> None:
    with pytest.raises(FlairNasError, match="strategy must be"):
        make_settings(SearchConfig, {"text": "demo", "strategy": ["evolution"]})
