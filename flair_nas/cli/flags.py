"""Flags that verbs share: settings, run folder, volume of messages."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from flair_nas.cli.log import print_table
from flair_nas.errors import FlairNasError, brief
from flair_nas.runs.folder import check_folder
from flair_nas.settings.fields import COUNT, Config, Kind, check_device, get_all_kinds, get_classes, get_kinds
from flair_nas.settings.resolve import find_command, preset_names, read_mapping, resolve
from flair_nas.storage.paths import typed, user_path
from flair_nas.storage.resources import resource_path

Actions: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_action(
    actions: Actions, name: str, run: Callable[[argparse.Namespace], int], epilog: str = ""
) -> argparse.ArgumentParser:
    """Add an action with ``--quiet``, ``--verbose`` and the docstring of `run` as help. Return its parser."""
    parser = actions.add_parser(
        name,
        help=run.__doc__,
        description=run.__doc__,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run, action=parser)
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-q", "--quiet", action="store_true", help="show results and errors only")
    volume.add_argument("-v", "--verbose", action="store_true", help="also show the logs of libraries such as Flair")
    return parser


def add_run_flags(
    parser: argparse.ArgumentParser,
    config_type: type,
    kinds: str,
    out: str,
    *,
    estimate: str = "",
    variants: Mapping[str, type] | None = None,
    prefix: str = "",
) -> None:
    """Add ``--out``, ``--resume``, ``--preset``, ``--config``, perhaps ``--estimate``, and a flag for each setting.

    `kinds` of presets are separated by blanks. An empty text means that there are none. `out` and `estimate` are help
    texts. `add_setting_flags` explains the other arguments.
    """
    order = f"the defaults, then {'--preset, then ' if kinds else ''}--config, then flags"
    parser.epilog = f"{parser.epilog or ''}\n\nSettings come from {order}; the later wins.".lstrip()
    # argparse would list all flags, which take a page
    preset = "[--preset PRESET] " if kinds else ""
    parser.usage = f"%(prog)s --out DIR {preset}[--config FILE] [settings]\n       %(prog)s --resume DIR [settings]"
    parser.add_argument("--out", metavar="DIR", help=out)
    parser.add_argument("--resume", metavar="DIR", help="resume the run in this folder; the result stays exact")
    parser.set_defaults(preset=None)
    if folders := tuple(f"presets/{kind}" for kind in kinds.split()):
        help = "list the presets and exit"
        parser.add_argument("--preset", help="bundled settings, such as those of a paper; see --list-presets")
        parser.add_argument("--list-presets", action=_ListPresets, const=folders, nargs=0, help=help)
    parser.add_argument("--config", metavar="FILE", help="YAML file of settings, such as OUT/config.yaml")
    if estimate:
        parser.add_argument("--estimate", action="store_true", help=estimate)
    add_setting_flags(parser, config_type, variants, prefix)


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` and ``--device``."""
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--device", type=device, help="cpu, cuda or cuda:N (default: a GPU if there is one)")


def add_hub_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--repository`` and ``--license``, for a folder to publish on the Hugging Face Hub."""
    name = "its name on the Hub"
    parser.add_argument("--repository", type=_repository, metavar="OWNER/NAME", required=True, help=name)
    parser.add_argument("--license", metavar="ID", help="the license as the Hub spells it: mit, cc-by-4.0, ...")


class _ListPresets(argparse.Action):
    """A flag that prints a table of presets: name, size, time and description."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        folders: tuple[str, ...] = self.const
        paths = [path for folder in folders for path in sorted(resource_path(folder).glob("*.yaml"))]
        print_table([("name", "size", "time", "what it is"), *map(describe_preset, paths)])
        parser.exit()


def describe_preset(path: Path) -> tuple[str, str, str, str]:
    """Return the row of one preset."""
    data = read_mapping(path)
    sizes = {"hidden_size": "H {}", "nodes": "{} nodes", "samples": "{} candidates", "epochs": "{} epochs"}
    size = [text.format(f"{data[name]:,}") for name, text in sizes.items() if name in data]
    size = [re.sub(r"^1 (.+)s$", r"1 \1", text) for text in size]
    return path.stem, ", ".join(size), data["about"]["time"], data["about"]["what"]


def add_setting_flags(
    parser: argparse.ArgumentParser, config_type: type, variants: Mapping[str, type] | None = None, prefix: str = ""
) -> None:
    """Add a flag for each setting, as ``--hidden-size`` for `hidden_size`. Without the flag, its value is None.

    The settings of a class of a choice, or of a variant, have a section of the help. Its title names these classes.

    Args:
        parser: the parser.
        config_type: the dataclass of the settings.
        variants: subclasses of `config_type`, by their words in titles. A command uses one of them.
        prefix: beginning of the titles of variants.
    """
    section: argparse._ActionsContainer = parser
    variant_kinds = {words: get_kinds(variant) for words, variant in (variants or {}).items()}
    for name, kind in get_kinds(config_type).items():
        if kind.section:
            section = parser.add_argument_group(kind.section)
        owners = {words: kinds[name] for words, kinds in variant_kinds.items() if name in kinds}
        _add_flag(section, name, kind, owners or {"": kind})
    for choice, classes in get_classes(config_type).items():
        _add_sections(parser, f"{choice} ", {words: get_kinds(own) for words, own in classes.items()})
    _add_sections(parser, prefix, variant_kinds, get_all_kinds(config_type))


def _add_sections(
    parser: argparse.ArgumentParser,
    prefix: str,
    kinds: Mapping[str, Mapping[str, Kind]],
    known: Collection[str] = (),
) -> None:
    """Add the flags of classes except known ones, with a section for each set of classes that share settings."""
    sections: dict[str, argparse._ActionsContainer] = {}
    for name in dict.fromkeys(name for own in kinds.values() for name in own if name not in known):
        owners = {words: own[name] for words, own in kinds.items() if name in own}
        *others, last = owners
        title = prefix + (f"{', '.join(others)} or {last}" if others else last)
        if title not in sections:
            sections[title] = parser.add_argument_group(title)
        _add_flag(sections[title], name, next(iter(owners.values())), owners)


def _add_flag(parser: argparse._ActionsContainer, name: str, explained: Kind, kinds: Mapping[str, Kind]) -> None:
    """Add the flag of a setting. Its help is that of `explained`, with the defaults of all kinds by title."""
    defaults = {title: _format_default(name, kind.default) for title, kind in kinds.items()}
    first, *others = defaults.values()
    note = f" (default: {first})" if first else ""
    if any(other != first for other in others):
        note = f" (default: {'; '.join(f'{title}: {default}' for title, default in defaults.items() if default)})"
    kind = next(iter(kinds.values()))
    flags = ["--" + spelling.replace("_", "-") for spelling in (name, kind.flair) if spelling]
    help = (explained.help + note).replace("%", "%%")
    parser.add_argument(*flags, default=None, help=help, **_argument_form(name, kind))
    if kind.switch:
        off = [flag.replace("--", "--no-", 1) for flag in flags]
        parser.add_argument(*off, dest=name, action="store_false", default=None, help="turn it off")


def _format_default(name: str, default: Any) -> str:
    if default is None or default == [] or name == "objective":  # its help explains the default
        return ""
    if isinstance(default, list):
        default = (" " if isinstance(default[0], str) else ",").join(map(str, default))
    return str(default)


def _argument_form(name: str, kind: Kind) -> dict[str, Any]:
    """Return the keywords of `add_argument` that read a setting of this type."""
    if kind.many and kind.type is str:
        return {"nargs": "+", "metavar": "SEARCH" if name == "searches" else name.upper().removesuffix("S")}
    if kind.many:
        return {"type": _number_reader(kind.type), "metavar": "1,2,3" if kind.type is int else "X,X"}
    if kind.switch:
        return {"nargs": "?", "const": True, "type": int, "metavar": "N"}
    if kind.type is bool:
        return {"action": argparse.BooleanOptionalAction}
    if kind.type is str:
        return {"metavar": name.upper()}
    return {"type": kind.type, "metavar": "N" if kind.type is int else "X"}


def _number_reader(number: type) -> Callable[[str], list[float]]:
    """Return a function that reads numbers joined by commas."""

    def read(text: str) -> list[float]:
        try:
            return [number(part) for part in text.split(",")]
        except ValueError:
            numbers, example = ("whole numbers", "1,2,3") if number is int else ("numbers", "0.1,0.2")
            raise argparse.ArgumentTypeError(f"{numbers} joined by commas, such as {example}; got {text!r}") from None

    return read


def count(text: str) -> int:
    """Read a flag that counts something, such as ``--batch-size``."""
    if not COUNT["low"] <= (number := int(text)) <= COUNT["high"]:
        limits = f"at least {COUNT['low']} and at most {COUNT['high']:,}"
        raise argparse.ArgumentTypeError(f"must be {limits}, got {brief(number)}")
    return number


def device(name: str) -> str:
    """Read ``--device``."""
    if problem := check_device(name):
        raise argparse.ArgumentTypeError(f"{problem}, got {brief(name)}")
    return name


def probability(text: str) -> float:
    """Read a flag that is a probability."""
    if not 0 <= (number := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"must be at least 0 and at most 1, got {brief(text)}")
    return number


def _repository(name: str) -> str:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise argparse.ArgumentTypeError(f"must be owner/name, got {brief(name)}")
    return name


def peek_setting(name: str, kind: str, arguments: argparse.Namespace) -> Any:
    """Return one setting of the file or the preset that a command line names. The file wins. Check no others."""
    file = user_path(arguments.resume) / "config.yaml" if arguments.resume else arguments.config
    value = None
    if arguments.preset in preset_names(kind):
        value = read_mapping(resource_path("presets", kind, f"{arguments.preset}.yaml")).get(name)
    if file is None or arguments.resume and not file.exists():  # `settings_of_run` reports it
        return value
    return read_mapping(file).get(name, value)


def given_flags(arguments: argparse.Namespace, config_type: type) -> dict[str, Any]:
    """Return the settings that were given as flags."""
    names = get_all_kinds(config_type)
    return {name: value for name, value in vars(arguments).items() if name in names and value is not None}


def refuse_flags_of(arguments: argparse.Namespace, variants: Mapping[str, type], chosen: type) -> None:
    """Raise an error for flags that the chosen settings do not have.

    It names the variants that have them by the words that choose them, such as ``--objective tagging``.
    """
    own, takers = get_all_kinds(chosen), dict[str, list[str]]()
    for words, variant in variants.items():
        for name in given_flags(arguments, variant):
            if name not in own:
                takers.setdefault("--" + name.replace("_", "-"), []).append(words)
    if takers:
        raise FlairNasError("; ".join(f"{flag}: only with {' or '.join(words)}" for flag, words in takers.items()))


def settings_of_run(
    arguments: argparse.Namespace, config_type: type[Config], kind: str, quantity: str = "run"
) -> tuple[Config, Path]:
    """Return the settings and the run folder of a command line. An estimate needs no folder.

    `kind` is the kind of presets. `open_run` checks later if the settings are those of the run that is there.
    """
    file, is_estimate = arguments.config, vars(arguments).get("estimate", False)
    if arguments.resume:
        if clashing := [f"--{name}" for name in ("out", "preset", "config") if vars(arguments)[name]]:
            raise FlairNasError(f"--resume takes its settings from the run; drop {', '.join(clashing)}")
        file = user_path(arguments.resume) / "config.yaml"
        if not file.exists():
            why = "no config.yaml in it" if file.parent.is_dir() else "there is no such folder"
            raise FlairNasError(f"{arguments.resume} holds no run to go on with ({why})")
        if (command := find_command(file.parent)) and not arguments.action.prog.endswith(f" {command}"):
            remedy = f"go on with: flair-nas {command} --resume {typed(file.parent)}"
            raise FlairNasError(f"{file.parent} holds a run of flair-nas {command}; {remedy}")
    elif not (arguments.out or is_estimate):
        raise FlairNasError(f"--out DIR is needed: the {arguments.action._option_string_actions['--out'].help}")
    flags = given_flags(arguments, config_type)
    config = resolve(config_type, kind=kind, preset=arguments.preset, file=file, flags=flags)
    out = user_path(arguments.resume or arguments.out or ".")
    if (arguments.resume or arguments.out) and not is_estimate:
        check_folder(out, config, get_all_kinds(config_type), quantity)
    return config, out
