"""Flags that verbs share: of their settings, of the run folder, and how much is said."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from flair_nas.errors import FlairNasError, brief
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.paths import typed, user_path
from flair_nas.search.config import SearchConfig
from flair_nas.select.config import SelectConfig
from flair_nas.settings import COUNT, Kind, UnknownSettings, kinds_of, preset_names, read_settings, resolve
from flair_nas.tagging.config import TaggerConfig

Config = TypeVar("Config")

_COMMANDS = {TaggerConfig: "tag train", LanguageModelConfig: "lm train", SearchConfig: "search", SelectConfig: "select"}


def add_action(actions: Any, name: str, help: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """Adds an action, or a verb without actions, with ``--quiet`` and ``--verbose``.

    Args:
        actions: what `add_subparsers` gave.
        name: as it is typed.
        help: one line that says what it does.
        epilog: examples, kept line by line.

    Returns:
        Its parser.
    """
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=help,
        description=help,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-q", "--quiet", action="store_true", help="no progress bars, results and errors only")
    volume.add_argument("-v", "--verbose", action="store_true", help="also what libraries such as Flair log")
    return parser


def add_run_flags(parser: argparse.ArgumentParser, kind: str, out: str) -> None:
    """Adds ``--out``, ``--resume``, ``--preset`` and ``--config``.

    Args:
        parser: of an action that fills a run folder.
        kind: of its presets.
        out: what the folder is for.
    """
    parser.add_argument("--out", metavar="DIR", help=out)
    parser.add_argument("--resume", metavar="DIR", help="go on with the run in this folder, exactly")
    parser.add_argument(
        "--preset", help=f"settings by name, those of a paper among them: {', '.join(preset_names(kind))}"
    )
    parser.add_argument("--config", metavar="FILE", help="YAML file of settings, as OUT/config.yaml is")


def add_setting_flags(parser: argparse.ArgumentParser, config_type: type) -> None:
    """Adds a flag for each setting: ``--hidden-size`` for `hidden_size`; one that is not given is None."""
    kinds = kinds_of(config_type)
    for field in dataclasses.fields(config_type):
        options: dict[str, Any] = {"default": None, **_form(field.name, kinds[field.name])}
        options["help"] = (field.metadata["help"] + _default(field, kinds[field.name])).replace("%", "%%")
        parser.add_argument("--" + field.name.replace("_", "-"), **options)


def check_batch_size(number: int) -> None:
    """Refuses a ``--batch-size`` that the setting of that name could not be.

    Raises:
        FlairNasError: it is out of range.
    """
    if not COUNT["low"] <= number <= COUNT["high"]:
        range = f"at least {COUNT['low']} and at most {COUNT['high']:,}"
        raise FlairNasError(f"--batch-size must be {range}, got {brief(number)}")


def _form(name: str, kind: Kind) -> Mapping[str, Any]:
    if kind.many and kind.type is str:
        return {"nargs": "+", "metavar": name.upper().removesuffix("S")}
    if kind.many:
        return {"type": _numbers(kind.type), "metavar": "1,2,3" if kind.type is int else "X,X"}
    if kind.type is bool:
        return {"action": argparse.BooleanOptionalAction}
    if kind.type is str:
        return {"metavar": name.upper()}
    return {"type": kind.type, "metavar": "N" if kind.type is int else "X"}


def _default(field: dataclasses.Field[Any], kind: Kind) -> str:
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if default is None or default == []:
        return ""
    if isinstance(default, list):
        default = (" " if kind.type is str else ",").join(map(str, default))
    return f" (default: {default})"


def _numbers(number: type) -> Any:
    def read(text: str) -> list[Any]:
        try:
            return [number(part) for part in text.split(",")]
        except ValueError:
            what = "whole numbers" if number is int else "numbers"
            example = "1,2,3" if number is int else "0.1,0.2"
            raise argparse.ArgumentTypeError(f"{what} joined by commas, such as {example}; got {text!r}") from None

    return read


def given_flags(arguments: argparse.Namespace, config_type: type) -> dict[str, Any]:
    """The settings that were given as flags."""
    given = {name: getattr(arguments, name, None) for name in kinds_of(config_type)}
    return {name: value for name, value in given.items() if value is not None}


def as_flags(config: Any, config_type: type) -> str:
    """The flags that give settings as they are, without those that are the defaults.

    Args:
        config: the settings.
        config_type: their dataclass, or one that they inherit from, whose settings are wanted alone.
    """
    flags = []
    for field in dataclasses.fields(config_type):
        value, name = getattr(config, field.name), field.name.replace("_", "-")
        if isinstance(value, bool) and value != field.default:
            flags.append(f"--{name}" if value else f"--no-{name}")
        elif value != field.default:
            between = "=" if str(value).startswith("-") else " "  # else it would be taken for a flag
            flags.append(f"--{name}{between}{shlex.quote(str(value))}")
    return " ".join(flags)


def settings_of_run(
    arguments: argparse.Namespace, config_type: type[Config], kind: str, default_out_message: str
) -> tuple[Config, Path]:
    """The settings and the folder that a command line asks for.

    Args:
        arguments: of an action with the flags of `add_run_flags` and `add_setting_flags`.
        config_type: the dataclass of its settings.
        kind: of its presets.
        default_out_message: the error where neither ``--out`` nor ``--resume`` is given.

    Raises:
        FlairNasError: no folder, one to resume that holds no run, ``--resume`` with flags that clash with it, or
            settings that cannot be used.
    """
    file = arguments.config
    if arguments.resume:
        clashing = [f"--{name}" for name in ("out", "preset", "config") if getattr(arguments, name)]
        if clashing:
            raise FlairNasError(f"--resume takes its settings from the run; drop {', '.join(clashing)}")
        file = user_path(arguments.resume) / "config.yaml"
        if not file.exists():
            raise FlairNasError(f"{arguments.resume} holds no run to go on with (no config.yaml in it)")
    elif not arguments.out:
        raise FlairNasError(default_out_message)
    flags = given_flags(arguments, config_type)
    try:
        config = resolve(
            config_type, kind=kind, preset=arguments.preset, file=file, flags=flags, of_run=bool(arguments.resume)
        )
    except UnknownSettings:
        command = _command_of(file) if arguments.resume else ""
        if not command:
            raise
        raise FlairNasError(
            f"{file.parent} holds a run of flair-nas {command}; go on with: flair-nas {command} --resume "
            f"{typed(file.parent)}"
        ) from None
    return config, user_path(arguments.resume or arguments.out)


def _command_of(file: Path) -> str:
    """The command whose settings a file holds; empty if it is none's."""
    for config_type, command in _COMMANDS.items():
        with contextlib.suppress(UnknownSettings):
            read_settings(file, config_type)
            return command
    return ""
