"""Flags that verbs share: of their settings, of the run folder, and how much is said."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from flair_nas.errors import FlairNasError, brief
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.search.config import SearchConfig
from flair_nas.search.flair_config import TaggingSearchConfig
from flair_nas.select.config import SelectConfig, TextSelectConfig
from flair_nas.settings.fields import COUNT, Kind, kinds_of
from flair_nas.settings.resolve import peek, resolve
from flair_nas.settings.yaml_files import UnknownSettings, read_mapping, read_settings
from flair_nas.storage.paths import meant, typed, user_path
from flair_nas.storage.resources import resource_path
from flair_nas.tables.config import TableConfig
from flair_nas.tagging.config import TaggerConfig

Config = TypeVar("Config")

_COMMANDS = {
    TaggerConfig: "tag train",
    LanguageModelConfig: "lm train",
    SearchConfig: "search",
    TaggingSearchConfig: "search",
    SelectConfig: "select",
    TextSelectConfig: "select",
    TableConfig: "tables run",
}


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
    parser.set_defaults(action=parser)  # for the error that an unknown flag leads to
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-q", "--quiet", action="store_true", help="no progress bars, results and errors only")
    volume.add_argument("-v", "--verbose", action="store_true", help="also what libraries such as Flair log")
    return parser


def add_run_flags(parser: argparse.ArgumentParser, kinds: str, out: str) -> None:
    """Adds ``--out``, ``--resume``, ``--preset`` and ``--config``.

    Args:
        parser: of an action that fills a run folder.
        kinds: of its presets, parted by blanks.
        out: what the folder is for.
    """
    # all flags would be a page of their own before the help begins
    parser.usage = (
        "%(prog)s --out DIR [--preset PRESET] [--config FILE] [settings]\n       %(prog)s --resume DIR [settings]"
    )
    parser.add_argument("--out", metavar="DIR", help=out)
    parser.add_argument("--resume", metavar="DIR", help="go on with the run in this folder, exactly")
    parser.add_argument("--preset", help="settings by name, those of a paper among them: --list-presets shows them")
    add_list_flag(parser, *(f"presets/{kind}" for kind in kinds.split()))
    parser.add_argument("--config", metavar="FILE", help="YAML file of settings, as OUT/config.yaml is")


def add_list_flag(parser: argparse.ArgumentParser, *folders: str) -> None:
    """Add ``--list-presets``, which shows the YAML files in these folders of the resources."""
    parser.add_argument(
        "--list-presets", action=_ListPresets, const=folders, nargs=0, help="show what presets there are, and stop"
    )


class _ListPresets(argparse.Action):
    """A flag that prints a table of name, size, time and subject."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        paths = [path for folder in self.const for path in sorted(resource_path(folder).glob("*.yaml"))]
        rows = [("name", "size", "time", "what it is"), *map(_listed, paths)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        for row in rows:
            print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())
        parser.exit()


def _listed(path: Path) -> tuple[str, str, str, str]:
    """Describe one preset, or one table of layers."""
    data = read_mapping(path)
    sizes = {"hidden_size": "H {}", "nodes": "{} nodes", "samples": "{} candidates", "epochs": "{} epochs"}
    size = [text.format(f"{data[name]:,}") for name, text in sizes.items() if name in data]
    counts = {"rows": "{} layers", "columns": "{} columns", "seeds": "{} seeds"}
    if "rows" in data:
        size = [text.format(len(data[name])) for name, text in counts.items()]
    size = [re.sub(r"^1 (.+)s$", r"1 \1", text) for text in size]
    return path.stem, ", ".join(size), data["about"]["time"], data["about"].get("what", data.get("title"))


def add_setting_flags(parser: argparse.ArgumentParser, config_type: type, **variants: type) -> None:
    """Adds a flag for each setting: ``--hidden-size`` for `hidden_size`; one that is not given is None.

    Args:
        parser: what they are added to.
        config_type: the dataclass of the settings; it may have ``SECTIONS`` of the help, by the first setting of each.
        variants: dataclasses that inherit from it, one of which is used, by the words that say when; each has a group
            for its own settings in the help.
    """
    shared = {field.name for field in dataclasses.fields(config_type)}
    section: Any = parser
    sections: Mapping[str, str] = getattr(config_type, "SECTIONS", {})
    for name in kinds_of(config_type):
        if name in sections:
            section = parser.add_argument_group(sections[name])
        _add_flag(section, name, variants or {"": config_type}, config_type)
    for when, variant in variants.items():
        group = parser.add_argument_group(when)
        for name in kinds_of(variant):
            if name not in shared and f"--{name.replace('_', '-')}" not in parser._option_string_actions:
                of_it = {when: other for when, other in variants.items() if name in kinds_of(other)}
                _add_flag(group, name, of_it)


def _add_flag(parser: Any, name: str, config_types: Mapping[str, type], explained: type | None = None) -> None:
    """A flag of a setting that all of these dataclasses have, with the default of each; one says what it is for."""
    kind = kinds_of(next(iter(config_types.values())))[name]
    fields = {
        when: next(field for field in dataclasses.fields(config_type) if field.name == name)
        for when, config_type in config_types.items()
    }
    defaults = {when: _default(field) for when, field in fields.items()}
    first = next(iter(defaults.values()))
    said = f" (default: {first})" if first else ""
    if len(set(defaults.values())) > 1:
        said = f" (default: {'; '.join(f'{when}: {default}' for when, default in defaults.items() if default)})"
    explained = explained or next(iter(config_types.values()))
    help = next(field for field in dataclasses.fields(explained) if field.name == name).metadata["help"] + said
    options: dict[str, Any] = {"default": None, **_form(name, kind), "help": help.replace("%", "%%")}
    flair = next(iter(fields.values())).metadata["flair"]
    flags = ["--" + written.replace("_", "-") for written in (name, flair) if written]
    parser.add_argument(*flags, **options)
    if kind.switch:
        off = [flag.replace("--", "--no-", 1) for flag in flags]
        parser.add_argument(*off, dest=name, action="store_false", default=None, help="without it")


def add_hub_flags(parser: argparse.ArgumentParser) -> None:
    """Adds ``--repository`` and ``--license``, for a folder that goes to the Hugging Face Hub."""
    parser.add_argument("--repository", metavar="OWNER/NAME", required=True, help="what it will be called there")
    parser.add_argument("--license", metavar="ID", help="as the Hub spells it: mit, cc-by-4.0, ... (left out without)")


def repository_of(arguments: argparse.Namespace) -> str:
    """The name that ``--repository`` gives.

    Raises:
        FlairNasError: it is not of the form owner/name.
    """
    name: str = arguments.repository
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise FlairNasError(f"--repository must be owner/name, got {brief(name)}")
    return name


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
        return {"nargs": "+", "metavar": "SEARCH" if name == "searches" else name.upper().removesuffix("S")}
    if kind.many:
        return {"type": _numbers(kind.type), "metavar": "1,2,3" if kind.type is int else "X,X"}
    if kind.switch:
        return {"nargs": "?", "const": True, "type": int, "metavar": "N"}
    if kind.type is bool:
        return {"action": argparse.BooleanOptionalAction}
    if kind.type is str:
        return {"metavar": name.upper()}
    return {"type": kind.type, "metavar": "N" if kind.type is int else "X"}


def _default(field: dataclasses.Field[Any]) -> str:
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if default is None or default == [] or field.name == "objective":  # which says what the other defaults are
        return ""
    if isinstance(default, list):
        default = (" " if isinstance(default[0], str) else ",").join(map(str, default))
    return str(default)


def _numbers(number: type) -> Any:
    def read(text: str) -> list[Any]:
        try:
            return [number(part) for part in text.split(",")]
        except ValueError:
            what = "whole numbers" if number is int else "numbers"
            example = "1,2,3" if number is int else "0.1,0.2"
            raise argparse.ArgumentTypeError(f"{what} joined by commas, such as {example}; got {text!r}") from None

    return read


def said_of(name: str, kind: str, arguments: argparse.Namespace) -> Any:
    """What a setting is by the file and the preset that a command line names, as `peek` gives it.

    Args:
        name: of the setting.
        kind: of the presets.
        arguments: of an action with the flags of `add_run_flags`.
    """
    file = user_path(arguments.resume) / "config.yaml" if arguments.resume else arguments.config
    file = None if arguments.resume and not file.exists() else file  # which is said where the run is opened
    return peek(name, kind=kind, preset=arguments.preset, file=file)


def given_flags(arguments: argparse.Namespace, config_type: type) -> dict[str, Any]:
    """The settings that were given as flags."""
    given = {name: getattr(arguments, name, None) for name in kinds_of(config_type)}
    return {name: value for name, value in given.items() if value is not None}


def refuse_flags_of(arguments: argparse.Namespace, variant: type, chosen: type, when: str) -> None:
    """Refuses flags of a variant of the settings which is not the one that is used.

    Args:
        arguments: of an action with flags of both.
        variant: that they may be of.
        chosen: the one that is used.
        when: the words that say when the first one is used.

    Raises:
        FlairNasError: it names the flags.
    """
    own = kinds_of(chosen)
    foreign = [f"--{name.replace('_', '-')}" for name in given_flags(arguments, variant) if name not in own]
    if foreign:
        raise FlairNasError(f"{', '.join(foreign)}: only with {when}")


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
            there = file.parent.is_dir()
            why = "no config.yaml in it" if there else f"there is no such folder; {meant(file.parent)}".strip(" ;")
            raise FlairNasError(f"{arguments.resume} holds no run to go on with ({why})")
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
