"""Reference of the command, made from its parser: every verb with its flags, their values, defaults and presets."""

from __future__ import annotations

import argparse
import html
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from flair_nas.cli.command import EXIT_CODES, build_parser
from flair_nas.cli.flags import count, describe_preset
from flair_nas.embedding.character_model.config import CharacterModelConfig
from flair_nas.embedding.config import EmbeddingConfig
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.search.several_config import OBJECTIVES, settings_class
from flair_nas.settings.fields import Kind, describe, get_all_kinds
from flair_nas.storage.resources import resource_path
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tune.config import TextTuneConfig, TuneConfig

SETTINGS: Mapping[str, Sequence[type]] = {
    "search": [settings_class(name) for name in OBJECTIVES],
    "tune": [TuneConfig, TextTuneConfig],
    "tag train": [TaggerConfig],
    "lm train": [LanguageModelConfig],
    "charlm train": [CharacterModelConfig],
    "embed train": [EmbeddingConfig],
}
"""The classes of the settings of a command."""

_TITLES = {"options": "Flags", "positional arguments": "Arguments"}
_HEADS = ("meaning", "values", "default")


def command_pages() -> dict[str, str]:
    """Return a page for each verb, by its path."""
    return {f"commands/{name}.md": _page(name, parser) for name, parser in _children(build_parser()).items()}


def verbs_table() -> str:
    """Return the table of all verbs and actions, with links to their pages, and the exit codes."""
    rows = []
    for verb, parser in _children(build_parser()).items():
        for name, action in (_children(parser) or {"": parser}).items():
            command = f"{verb} {name}".strip()
            anchor = f"#{_anchor(command)}" if name else ""
            rows.append(f"| [`flair-nas {command}`]({verb}.md{anchor}) | {_escape(action.description or '')} |")
    codes = re.findall(r"(\d+) (.*?)(?:;\s|$)(?=\d|\Z)", EXIT_CODES, re.S)
    return "\n".join(
        [
            *("| command | what it does |", "| --- | --- |", *rows, ""),
            *(
                "| exit code | meaning |",
                "| --- | --- |",
                *(f"| {code} | {' '.join(text.split())} |" for code, text in codes),
            ),
        ]
    )


def _children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the verbs, or of the actions of a verb, by name."""
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices) if actions else {}


def _page(verb: str, parser: argparse.ArgumentParser) -> str:
    children = _children(parser)
    if not children:
        return "\n\n".join([f"# flair-nas {verb}", *_section(verb, parser, "##", set())])
    parts = [f"# flair-nas {verb}", _escape((parser.description or "").partition(": ")[2].capitalize())]
    seen: set[str] = set()
    for name, child in children.items():
        parts += [f"## flair-nas {verb} {name}", *_section(f"{verb} {name}", child, "###", seen)]
    return "\n\n".join(parts)


def _section(command: str, parser: argparse.ArgumentParser, level: str, seen: set[str]) -> Iterator[str]:
    """Yield the parts of a command: what it does, examples, its flags in tables, its presets.

    Args:
        command: its name, without flair-nas.
        parser: its parser.
        level: beginning of its headings.
        seen: paragraphs of the help that the page has already; those of the command are added.
    """
    yield _escape(parser.description or "")
    usage = re.sub(r"\n\s+", "\n    ", parser.format_usage().removeprefix("usage: "))
    yield _fence(usage.replace("\n    flair-nas", "\nflair-nas"))
    for paragraph in (parser.epilog or "").split("\n\n"):
        heading, _, lines = paragraph.partition(":\n")
        if heading in ("example", "examples"):
            examples = textwrap.dedent(lines).splitlines()
            own = [line for line in examples if f"flair-nas {command} " in f"{line} "]
            yield _fence("\n".join(own if level == "###" and own else examples))
        elif paragraph not in seen:
            seen.add(paragraph)
            yield _escape(paragraph)
    kinds = _kinds(SETTINGS.get(command, ()))
    if command == "search":
        kinds["objective"] = kinds["objective"]._replace(choices=OBJECTIVES)
    for group in parser._action_groups:
        actions = [
            action
            for action in group._group_actions
            if action.help is not argparse.SUPPRESS and not isinstance(action, argparse._HelpAction)
        ]
        if any(action.help for action in actions):  # the usage says the rest
            yield f"{level} {_TITLES.get(title := group.title or '', title[:1].upper() + title[1:])}"
            yield _table(parser, actions, kinds)
    for action in parser._actions:
        if "--list-presets" in action.option_strings:
            yield f"{level} Presets"
            yield _presets(action.const)


def _kinds(config_types: Iterable[type]) -> dict[str, Kind]:
    """Return the kinds of the settings of several classes; choices are those of all of them."""
    kinds: dict[str, Kind] = {}
    for config_type in config_types:
        for name, kind in get_all_kinds(config_type).items():
            if kind.choices and name in kinds:
                kind = kind._replace(choices=[*dict.fromkeys([*(kinds[name].choices or ()), *kind.choices])])
                kinds[name] = kind
            kinds.setdefault(name, kind)
    return kinds


def _table(parser: argparse.ArgumentParser, actions: Iterable[argparse.Action], kinds: Mapping[str, Kind]) -> str:
    rows = []
    for action in actions:
        if action.nargs == 0 and action.dest in kinds and action.help == "turn it off":
            continue  # its row has the other flag
        text = re.sub(r"\s+", " ", parser._get_formatter()._expand_help(action)) if action.help else ""
        default = re.search(r" ?\(?default: (.*?)\)?$", text)
        if default:
            text = text[: default.start()]
        cells = [text, _values(action, kinds.get(action.dest)), default[1] if default else ""]
        rows.append([_flag(action, kinds.get(action.dest)), *map(html.escape, cells)])
    return _html_table(["flag" if rows and rows[0][0].startswith("<code>-") else "argument", *_HEADS], rows)


def _flag(action: argparse.Action, kind: Kind | None) -> str:
    names = [name for name in action.option_strings if not name.startswith("--no-")] or [str(action.metavar)]
    switch = any(name.startswith("--no-") for name in action.option_strings) or (kind is not None and kind.switch)
    codes = ", ".join(f"<code>{html.escape(name)}</code>" for name in names)
    return codes + (f", <code>--no-{names[0][2:]}</code>" if switch else "")


def _values(action: argparse.Action, kind: Kind | None) -> str:
    if isinstance(action, argparse.BooleanOptionalAction) or action.nargs == 0:
        return ""
    if kind is not None:
        return describe(kind)
    if action.choices:
        return "one of " + ", ".join(map(str, action.choices))
    if action.type in (int, count):
        return "a whole number"
    return str(action.metavar or action.dest.upper()) if action.option_strings else ""


def _presets(folders: Sequence[str]) -> str:
    """Return the table of the bundled YAML files in these folders of the resources."""
    paths = [path for folder in folders for path in sorted(resource_path(folder).glob("*.yaml"))]
    rows = [[f"<code>{cells[0]}</code>", *map(html.escape, cells[1:])] for cells in map(describe_preset, paths)]
    return _html_table(["name", "size", "time", "what it is"], rows)


def _html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as HTML, whose cells Markdown leaves alone, without empty columns."""
    rows = list(rows)
    filled = [number for number in range(len(heads)) if any(row[number] for row in rows)]
    heads, rows = [heads[number] for number in filled], [[row[number] for number in filled] for row in rows]
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _fence(text: str) -> str:
    return f"```text\n{text.strip()}\n```"


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


def _anchor(command: str) -> str:
    return f"flair-nas {command}".replace(" ", "-")
