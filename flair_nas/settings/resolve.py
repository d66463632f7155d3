"""Settings of a command from preset, file and flags, and those of a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flair_nas.errors import FlairNasError, brief, did_you_mean
from flair_nas.settings.fields import Config, get_kinds
from flair_nas.settings.validation import problems_in, raise_problems
from flair_nas.settings.yaml_files import UnknownSettingsError, read_settings
from flair_nas.storage.resources import resource_path


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
    from_run: bool = False,
) -> Config:
    """Combine defaults, a preset of a kind, a YAML file and flags; the later wins.

    If the file is `from_run`, settings that did not exist when the run wrote it get their value of that time.

    Raises:
        FlairNasError: the preset is unknown, the file cannot be read, or settings cannot be used.
        UnknownSettingsError: the file has other settings.
    """
    settings: dict[str, Any] = {}
    if from_run:
        settings = {name: kind.before for name, kind in get_kinds(config_type).items() if kind.before is not None}
    if preset is not None:
        settings |= load_preset(kind, preset, config_type)
    if file is not None:
        of_file = read_settings(file, config_type)
        own = getattr(config_type, "own_setting", "")
        if from_run and own and own not in of_file:  # another command, whose settings this one has, too
            raise UnknownSettingsError(f"{file}: there is no {own} among these settings")
        raise_problems(problems_in(config_type, of_file), f"{file}: ")
        settings |= of_file
    return config_type(**{**settings, **(flags or {})})


def read_run_settings(path: str | Path, config_type: type[Config]) -> Config:
    """Read the settings that a run wrote; those that did not exist then get their value of that time."""
    return resolve(config_type, file=path, from_run=True)


def is_of_another_command(folder: Path, config_type: type[Config]) -> bool:
    """Return True if a folder is a run of another command than that of these settings."""
    try:
        read_run_settings(folder / "config.yaml", config_type)
    except UnknownSettingsError:
        return True
    except FlairNasError:  # not a run, or one that cannot be read
        pass
    return False
