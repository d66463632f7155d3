"""Settings of a command from preset, file and flags, and those of a run folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError, brief, did_you_mean
from flair_nas.settings.fields import Config
from flair_nas.settings.validation import problems_in, raise_problems
from flair_nas.settings.yaml_files import UnknownSettings, read_mapping, read_settings
from flair_nas.storage.resources import resource_path


def peek(name: str, *, kind: str, preset: str | None, file: str | Path | None) -> Any:
    """What a setting is by a preset and a file, whatever their others are; None where neither has it.

    Args:
        name: of the setting.
        kind: where the preset is looked for.
        preset: the name of one.
        file: a YAML file of settings, which wins.

    Raises:
        FlairNasError: the file cannot be read.
    """
    found = None
    if preset in preset_names(kind):  # another one is refused when it is used
        found = read_mapping(resource_path("presets", kind, f"{preset}.yaml")).get(name)
    return found if file is None else read_mapping(file).get(name, found)


def read_run_settings(path: str | Path, config_type: type[Config]) -> Config:
    """The settings of a run, from what it wrote; those that it did not know are as they were at its time.

    Raises:
        FlairNasError: as `read_settings`, or settings that cannot be used.
    """
    return resolve(config_type, file=path, of_run=True)


def is_of_another_command(folder: Path, config_type: type[Config]) -> bool:
    """Whether a folder is the run of another command than that of these settings."""
    try:
        read_run_settings(folder / "config.yaml", config_type)
    except UnknownSettings:
        return True
    except FlairNasError:  # those of none that is known
        pass
    return False


def _before(config_type: type) -> dict[str, Any]:
    """What settings stood for before there were any by their names, where that is not the default."""
    found = {field.name: field.metadata["before"] for field in dataclasses.fields(config_type)}
    return {name: value for name, value in found.items() if value is not None}


def preset_names(kind: str) -> tuple[str, ...]:
    """The names of the bundled presets of a kind: the files in ``resources/presets/KIND/``."""
    return tuple(sorted(path.stem for path in resource_path("presets").joinpath(kind).glob("*.yaml")))


def load_preset(kind: str, name: str, config_type: type) -> dict[str, Any]:
    """The settings of a bundled preset.

    Args:
        kind: what it is for: tagging, search or language_model.
        name: its name.
        config_type: the dataclass whose fields its settings are.

    Raises:
        FlairNasError: there is none by that name.
    """
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
    of_run: bool = False,
) -> Config:
    """Puts settings together: defaults, then the preset, then the file, then flags; the later wins.

    Args:
        config_type: the dataclass to make.
        kind: where the preset is looked for: tagging, search or language_model.
        preset: the name of one.
        file: a YAML file of settings.
        flags: settings by name.
        of_run: the file is what a run wrote; settings that it did not know are as they were at its time.

    Raises:
        FlairNasError: an unknown preset, a bad file, settings that cannot be used.
    """
    settings: dict[str, Any] = _before(config_type) if of_run else {}
    if preset is not None:
        settings |= load_preset(kind, preset, config_type)
    if file is not None:
        given = read_settings(file, config_type)
        own = getattr(config_type, "told_by", "")
        if of_run and own and own not in given:  # all that is in it is known, and yet it is another command's
            raise UnknownSettings(f"{file}: there is no {own} among these settings")
        try:
            raise_problems(problems_in(config_type, given))
        except FlairNasError as error:
            raise FlairNasError(f"{file}: {error}") from None
        settings |= given
    return config_type(**{**settings, **(flags or {})})
