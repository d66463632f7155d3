"""Settings in YAML files."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import yaml

from flair_nas.errors import FlairNasError, brief, did_you_mean, listed
from flair_nas.settings.aliases import flair_names, own_names
from flair_nas.settings.fields import kinds_of
from flair_nas.settings.validation import SettingsProblems
from flair_nas.storage.paths import read_file, user_path

_MOST_BYTES = 100_000  # of a file of settings, which has some thousand; more take YAML's reader minutes


class UnknownSettings(FlairNasError):
    """A file of settings has some that this command has not; it may be another command's."""


class _Loader(yaml.SafeLoader):
    """A reader of plain data that refuses repeated names, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names: set[str] = set()
        for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
            if key.value in names:
                raise yaml.MarkedYAMLError(problem=f"{brief(key.value)} comes twice", problem_mark=key.start_mark)
            names.add(key.value)
        return super().construct_mapping(node, deep)


def read_settings(path: str | Path, config_type: type) -> dict[str, Any]:
    """Reads settings from a YAML file; not all need be there.

    Args:
        path: the file.
        config_type: the dataclass whose fields they are.

    Raises:
        FlairNasError: the file cannot be read, is no mapping, or has keys that are no settings, which are all named.
    """
    kinds = kinds_of(config_type)
    try:
        data = own_names(config_type, read_mapping(path))
    except SettingsProblems as error:
        raise FlairNasError(f"{path}: {error}") from None
    data.pop("about", None)  # of presets, for `--list-presets`
    unknown = [key for key in data if key not in kinds]
    if unknown:
        known = [*kinds, *flair_names(config_type)]
        hint = did_you_mean(unknown[0], known) if isinstance(unknown[0], str) else ""
        names = listed([key[:80] if isinstance(key, str) else brief(key) for key in unknown])
        raise UnknownSettings(f"{path}: unknown settings {names}; {hint}the settings are {', '.join(kinds)}")
    for name, value in data.items():
        if kinds[name].type is float and isinstance(value, str):  # YAML 1.1 reads 1e-5 as text
            with contextlib.suppress(ValueError, OverflowError):
                data[name] = float(value)
    return data


def read_mapping(path: str | Path) -> dict[Any, Any]:
    """Reads a YAML file of plain data that is a mapping.

    Raises:
        FlairNasError: the file cannot be read, or is none.
    """
    try:
        data = yaml.load(read_file(user_path(path), _MOST_BYTES).decode(), _Loader)
    except OSError as error:
        raise FlairNasError(f"{path}: cannot read this file of settings ({error.strerror})") from None
    except RecursionError:
        raise FlairNasError(f"{path}: not settings: lists in lists, too deep to be read") from None
    except (yaml.YAMLError, ValueError, AttributeError, LookupError) as error:  # as PyYAML fails on !!bool x
        raise FlairNasError(f"{path}: not a YAML file of settings: {' '.join(str(error).split())[:500]}") from None
    if not isinstance(data, dict):
        raise FlairNasError(f"{path}: expected settings as `name: value` lines")
    return data


def to_yaml(config: Any) -> str:
    """The settings as a file that `read_settings` reads."""
    return yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, allow_unicode=True)
