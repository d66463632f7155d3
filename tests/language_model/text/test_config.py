"""Settings of a text: one definition for searches, language models and `load_text`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from flair_nas.errors import FlairNasError
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.language_model.text.config import TextSettings
from flair_nas.language_model.text.corpus import load_text
from flair_nas.search.config import SearchConfig
from flair_nas.settings.fields import as_flags
from flair_nas.settings.resolve import read_settings, resolve, to_yaml

CONFIGS = (TextSettings, LanguageModelConfig, SearchConfig)


@pytest.mark.parametrize("config_type", CONFIGS[1:])
def test_a_configuration_has_them_first_and_as_they_are(config_type: type) -> None:
    shared = dataclasses.fields(TextSettings)
    for field, expected in zip(dataclasses.fields(config_type), shared):
        assert (field.name, field.default, field.metadata) == (expected.name, expected.default, expected.metadata)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"valid_share": 0.995}, "valid_share must be a number from 1e-06 to 0.99, got 0.995"),
        ({"vocabulary_size": 3, "min_count": 0}, "vocabulary_size must be .* from 4 .*; min_count must be .* from 1 "),
        ({"lowercase": 1}, "lowercase must be true or false, got 1"),
    ],
)
def test_the_limits_are_the_same_everywhere(changes: dict[str, Any], message: str) -> None:
    for make in (*CONFIGS, lambda **changes: load_text("demo", **changes)):
        with pytest.raises(FlairNasError, match=message):
            make(**changes)


def test_settings_of_an_earlier_version_are_read_in_whatever_order(tmp_path: Path) -> None:
    config = LanguageModelConfig(text="x", valid_share=0.7, min_count=2)
    values = yaml.safe_load(to_yaml(config))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=True))
    assert LanguageModelConfig(**read_settings(tmp_path / "config.yaml", LanguageModelConfig)) == config
    values = yaml.safe_load(to_yaml(SearchConfig(text="x")))
    del values["objective"]  # which is newer
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    assert resolve(SearchConfig, file=tmp_path / "config.yaml") == SearchConfig(text="x")


def test_a_search_and_a_language_model_read_the_same_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAIR_NAS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("The cat sat\nthe dog sat\na cat and a dog\n" * 9)
    given: dict[str, Any] = {
        "text": str(tmp_path / "text.txt"), "valid_share": 0.3, "vocabulary_size": 6, "min_count": 2, "lowercase": True
    }  # fmt: skip
    found = {load_text(given["text"], config_type(**given)).fingerprint for config_type in CONFIGS}
    assert found == {load_text(given.pop("text"), **given).fingerprint}
    other = load_text({"train": tmp_path / "text.txt"}, TextSettings(**given))
    assert {other.fingerprint} == found
    given["lowercase"] = False
    both = load_text({"train": tmp_path / "text.txt"}, TextSettings(**given), lowercase=True)
    assert {both.fingerprint} == found
    for text in (None, ""):
        with pytest.raises(FlairNasError, match="no text: give a folder with train and valid text with --text DIR"):
            load_text(text)


def test_flags_that_give_them() -> None:
    assert as_flags(SearchConfig(nodes=2), TextSettings) == ""
    config = SearchConfig(text="my text", lowercase=True, valid_share=0.25, vocabulary_size=9, nodes=2)
    assert as_flags(config, TextSettings) == "--text 'my text' --valid-share 0.25 --vocabulary-size 9 --lowercase"
