"""Settings of a command from presets, YAML files and flags, and those of a run folder."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from flair_nas.errors import FlairNasError, brief, did_you_mean, listed
from flair_nas.settings.fields import (
    Config,
    flair_names,
    flatten,
    get_all_kinds,
    get_kinds,
    make_settings,
    problems_in,
    raise_problems,
    replace_flair_names,
)
from flair_nas.storage.paths import read_file, user_path
from flair_nas.storage.resources import resource_path

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_COMMANDS = {
    "character_epochs": "embed train",
    "teacher": "distil",
    "vary": "tune",
    "strategy": "search",
    "corpus": "tag train",
    "random_case": "charlm train",
    "text": "lm train",
}
"""Commands by a setting that none of the later ones has."""

_MAX_BYTES = 100_000  # a file of settings has some thousand; larger ones take PyYAML minutes


class UnknownSettingsError(FlairNasError):
    """The error for a file with settings that this command does not have; it may be another command's."""


class _Loader(yaml.SafeLoader):
    """A loader of plain data that refuses repeated names; PyYAML keeps the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names: set[str] = set()
        for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
            if key.value in names:
                raise yaml.MarkedYAMLError(problem=f"{brief(key.value)} comes twice", problem_mark=key.start_mark)
            names.add(key.value)
        return super().construct_mapping(node, deep)


def read_settings(path: str | Path, config_type: type) -> dict[str, Any]:
    """Read settings of a dataclass from a YAML file, which need not have all of them. Refuse a file with other keys."""
    return settings_in(read_mapping(path), config_type, str(path))


def settings_in(data: dict[Any, Any], config_type: type, where: str) -> dict[str, Any]:
    """Return the settings of a dataclass that YAML data have, with our names. Raise UnknownSettingsError for others."""
    kinds = get_all_kinds(config_type)
    data = replace_flair_names(config_type, data, f"{where}: ")
    data.pop("about", None)  # the description of a preset
    if unknown := [key for key in data if key not in kinds]:
        known = [*kinds, *flair_names(config_type)]
        hint = did_you_mean(unknown[0], known) if isinstance(unknown[0], str) else ""
        names = listed([key[:80] if isinstance(key, str) else brief(key) for key in unknown])
        raise UnknownSettingsError(f"{where}: unknown settings {names}; {hint}the settings are {', '.join(kinds)}")
    for name, value in data.items():
        if kinds[name].type is float and isinstance(value, str):  # YAML 1.1 reads 1e-5 as text
            with contextlib.suppress(ValueError, OverflowError):
                data[name] = float(value)
    return data


def read_mapping(path: str | Path) -> dict[Any, Any]:
    """Read a YAML file that is a mapping of plain data."""
    try:
        text = read_file(user_path(path), _MAX_BYTES)
    except OSError as error:
        raise FlairNasError(f"{path}: cannot read this file of settings ({error.strerror})") from None
    return parse_mapping(text, str(path))


def parse_mapping(text: bytes, where: str) -> dict[Any, Any]:
    """Parse YAML that is a mapping of plain data; `where` is its place, for errors."""
    try:
        data = yaml.load(text.decode(), _Loader)
    except RecursionError:
        raise FlairNasError(f"{where}: not settings: lists in lists, too deep to be read") from None
    except (yaml.YAMLError, ValueError, AttributeError, LookupError) as error:  # the last two for !!bool x
        raise FlairNasError(f"{where}: not a YAML file of settings: {' '.join(str(error).split())[:500]}") from None
    if not isinstance(data, dict):
        raise FlairNasError(f"{where}: expected settings as `name: value` lines")
    return data


def to_yaml(config: DataclassInstance) -> str:
    """Return settings as YAML that `read_settings` reads."""
    return yaml.safe_dump(flatten(config), sort_keys=False, allow_unicode=True)


def preset_names(kind: str) -> tuple[str, ...]:
    """Return the names of the bundled presets of a kind: the files in ``resources/presets/KIND/``."""
    return tuple(sorted(path.stem for path in resource_path("presets").joinpath(kind).glob("*.yaml")))


def load_preset(kind: str, name: str, config_type: type) -> dict[str, Any]:
    """Read the settings of a bundled preset of a kind: tagging, search or language_model."""
    names = preset_names(kind)
    if name not in names:
        known = f"there are {', '.join(names) or 'none'}"
        raise FlairNasError(f"unknown preset {brief(name)}; {did_you_mean(str(name), names)}{known}")
    return read_settings(resource_path("presets", kind, f"{name}.yaml"), config_type)


def resolve(
    config_type: type[Config],
    *,
    kind: str = "",
    preset: str | None = None,
    file: str | Path | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Config:
    """Combine defaults, a preset of a kind, a YAML file and flags; the later wins.

    Args:
        config_type: the class of the settings.
        kind: the kind of presets.
        preset: the name of a preset.
        file: a YAML file.
        flags: further settings by name.
    """
    settings: dict[str, Any] = {}
    if preset is not None:
        settings |= load_preset(kind, preset, config_type)
    if file is not None:
        from_file = read_settings(file, config_type)
        raise_problems(problems_in(config_type, from_file), f"{file}: ")
        settings |= from_file
    return make_settings(config_type, {**settings, **(flags or {})})


def read_run_settings(path: str | Path, config_type: type[Config]) -> Config:
    """Read the settings that a run wrote. Raise UnknownSettingsError for those of another command."""
    if (command := _command_of(read_mapping(path))) not in ("", _command_of(get_kinds(config_type))):
        raise UnknownSettingsError(f"{path}: these are the settings of flair-nas {command}")
    return resolve(config_type, file=path)


def _command_of(settings: Container[Any]) -> str:
    """Return the command that has these settings, such as ``lm train``; empty if none."""
    return next((command for name, command in _COMMANDS.items() if name in settings), "")


def find_command(folder: Path) -> str:
    """Return the command of the run in a folder, or in the one above it, such as ``lm train``; empty if none."""
    for place in (folder, folder.parent):
        if (place / "config.yaml").exists():
            with contextlib.suppress(FlairNasError):
                return _command_of(read_mapping(place / "config.yaml"))
    return ""


def explain_other_run(folder: Path, command: str) -> str:
    """Name the command of the run in a folder, or in the one above it, unless it is this command; empty if none."""
    other = find_command(folder)
    return f"its folder is a run of flair-nas {other}" if other not in ("", command) else ""
