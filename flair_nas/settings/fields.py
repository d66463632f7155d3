"""Settings of a command: fields that carry their help and range, presets, YAML files, and problems named all at once.

A command's settings are a dataclass whose fields are made by `setting`:

    @dataclass
    class MyConfig:
        epochs: int = setting(10, "epochs at most", low=1)

        def __post_init__(self) -> None:
            raise_problems(problems_of(self))
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shlex
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml

from flair_nas.errors import FlairNasError, brief, did_you_mean, listed
from flair_nas.storage.paths import read_file, user_path
from flair_nas.storage.resources import resource_path

Config = TypeVar("Config")

_MOST_BYTES = 100_000  # of a file of settings, which has some thousand; more take YAML's reader minutes

COUNT: dict[str, Any] = {"low": 1, "high": 1_000_000}
"""The range of a setting that counts something: sizes, steps, epochs."""

PROBABILITY: dict[str, Any] = {"low": 0, "high": 0.99}
"""The range of a dropout."""


def setting(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[str] | None = None,
    check: Callable[[Any], str] | None = None,
    before: Any = None,
    flair: str | None = None,
) -> Any:
    """A field of a dataclass of settings, annotated as int, float, bool, str or a list of one of these, or ``| None``;
    or as ``bool | int``, which is on, off, or on with a number.

    Args:
        default: the value when none is given. A list is copied; an empty one says that the list may be empty.
        help: one line for ``--help``.
        low: the smallest number that can be used (of a list, the smallest entry).
        high: the largest one.
        choices: the only values (of a list: entries) that can be used.
        check: is given a value of the right type and range, and gives what is wrong with it, as "must be even", or "".
        before: what runs did that began before there was this setting, if that is not the default.
        flair: what Flair calls it, if that is another name; both can be written.
    """
    limits = {"low": low, "high": high, "choices": choices, "check": check}
    metadata = {"help": help, **limits, "before": before, "flair": flair}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Kind(NamedTuple):
    """What a setting's annotation says.

    Args:
        type: int, float, bool or str.
        many: a list of these.
        optional: None is a value, too.
        switch: it is an int, and true and false are values, too.
    """

    type: type
    many: bool
    optional: bool
    switch: bool = False


@functools.cache
def kinds_of(config_type: type) -> Mapping[str, Kind]:
    """The kind of each setting, in order.

    Raises:
        TypeError: an annotation that settings cannot have; a mistake in the program.
    """
    hints = typing.get_type_hints(config_type)
    return types.MappingProxyType(
        {field.name: _kind(field.name, hints[field.name]) for field in dataclasses.fields(config_type)}
    )


def _kind(name: str, hint: Any) -> Kind:
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    optional = type(None) in parts
    parts = tuple(part for part in parts if part is not type(None))
    if set(parts) == {bool, int}:
        return Kind(int, many=False, optional=optional, switch=True)
    if len(parts) == 1:
        (hint,) = parts
    many = typing.get_origin(hint) is list
    if many:
        (hint,) = typing.get_args(hint)
    if hint not in (int, float, bool, str):
        raise TypeError(f"setting {name}: {hint} is none of int, float, bool, str")
    return Kind(hint, many, optional)


def flair_names(config_type: type) -> dict[str, str]:
    """The names of settings by Flair's names of them, where those are others."""
    fields = dataclasses.fields(config_type)
    return {field.metadata["flair"]: field.name for field in fields if field.metadata["flair"]}


def takes_flair_names(config_type: type[Config]) -> type[Config]:
    """Lets a dataclass of settings be made with Flair's names, too: ``TaggerConfig(max_epochs=10)``."""
    make = config_type.__init__

    @functools.wraps(make)
    def __init__(self: Any, *values: Any, **named: Any) -> None:
        kind: Any = type(self)
        known = [*kinds_of(kind), *flair_names(kind)]
        for name in named:
            if name not in known:
                hint = did_you_mean(name, known)
                raise TypeError(f"{kind.__name__} has no setting {name!r}; {hint}it has {', '.join(kinds_of(kind))}")
        make(self, *values, **_own_names(kind, named))

    config_type.__init__ = __init__  # type: ignore[method-assign]
    return config_type


def _own_names(config_type: type, named: Mapping[Any, Any]) -> dict[Any, Any]:
    """The same settings with Flair's names replaced by ours.

    Raises:
        FlairNasError: one is given by both names.
    """
    own = flair_names(config_type)
    both = [f"{own[name]} is also {name}, give one of them" for name in named if name in own and own[name] in named]
    raise_problems(both)
    return {own.get(name, name): value for name, value in named.items()}


def changed(config: Any, *names: str) -> dict[str, Any]:
    """The settings that are not the defaults, by name.

    Args:
        config: the settings.
        names: which ones to look at, in this order; all, if there are none.
    """
    defaults = {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(config)
    }
    values = {name: getattr(config, name) for name in names or defaults}
    return {name: value for name, value in values.items() if value != defaults[name]}


def as_flags(config: Any, config_type: type) -> str:
    """The flags that give settings as they are, without those that are the defaults.

    Args:
        config: the settings.
        config_type: their dataclass, or one that they inherit from, whose settings are wanted alone.
    """
    flags, names = [], kinds_of(config_type)
    for setting, value in changed(config).items():
        if setting not in names:
            continue
        name = setting.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{name}" if value else f"--no-{name}")
        elif isinstance(value, list) and names[setting].type is str:
            flags.append(f"--{name} {shlex.join(value)}")
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            between = "=" if text.startswith("-") else " "  # else it would be taken for a flag
            flags.append(f"--{name}{between}{shlex.quote(text)}")
    return " ".join(flags)


# --- problems ---


def problems_of(config: Any) -> list[str]:
    """Every setting of the wrong type or out of its range, in words. What contradicts what, the caller knows."""
    return _problems(type(config), {field.name: getattr(config, field.name) for field in dataclasses.fields(config)})


class SettingsProblems(FlairNasError):
    """Settings that cannot be used."""


def raise_problems(problems: Sequence[str]) -> None:
    """Raises one error that names all problems.

    Raises:
        SettingsProblems: if there are any.
    """
    if problems:
        raise SettingsProblems("settings that cannot be used: " + "; ".join(problems))


def _problems(config_type: type, values: Mapping[str, Any]) -> list[str]:
    kinds, found = kinds_of(config_type), []
    for field in dataclasses.fields(config_type):
        if field.name in values:
            value = values[field.name]
            if problem := _problem(field, kinds[field.name], value):
                found.append(f"{field.name} {problem}, got {brief(value)}")
    return found


def _problem(field: dataclasses.Field[Any], kind: Kind, value: Any) -> str:
    if value is None and kind.optional:
        return ""
    low, high, choices = (field.metadata.get(name) for name in ("low", "high", "choices"))
    fits = functools.partial(_fits, kind=kind, low=low, high=high, choices=choices)
    if kind.many:
        may_be_empty = field.default_factory is not dataclasses.MISSING and not field.default_factory()
        if not (isinstance(value, list) and all(map(fits, value)) and (value or may_be_empty)):
            return f"must be {_list_in_words(kind, low, high, choices, may_be_empty)}"
    elif not fits(value):
        return f"must be {_one_in_words(kind, low, high, choices)}"
    check = field.metadata.get("check")
    return check(value) if check else ""


def _fits(value: Any, kind: Kind, low: float | None, high: float | None, choices: Sequence[str] | None) -> bool:
    if choices is not None and value not in choices:
        return False
    if kind.switch and isinstance(value, bool):
        return True
    if kind.type in (bool, str):
        # an optional text may be empty, which says as much as none
        return isinstance(value, kind.type) and bool(value or kind.type is bool or kind.optional)
    if isinstance(value, bool) or not isinstance(value, int if kind.type is int else (int, float)):
        return False
    finite = float("-inf") < value < float("inf")  # false for NaN, and no overflow for a long int
    return finite and (low is None or low <= value) and (high is None or value <= high)


def _one_in_words(kind: Kind, low: float | None, high: float | None, choices: Sequence[str] | None) -> str:
    if choices is not None:
        return f"one of {', '.join(map(str, choices))}"
    word = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[kind.type]
    return "true, false or " * kind.switch + word + _range_in_words(low, high)


def _list_in_words(
    kind: Kind, low: float | None, high: float | None, choices: Sequence[str] | None, may_be_empty: bool
) -> str:
    if choices is not None:
        return f"a list of {', '.join(map(str, choices))}"
    word, example = {
        int: ("whole numbers", ", as [1, 2]"),
        float: ("numbers", ", as [0.1, 0.2]"),
        bool: ("true or false", ""),
        str: ("texts", ""),
    }[kind.type]
    return f"a list of {word}{_range_in_words(low, high)}{'' if may_be_empty else ' with at least one entry'}{example}"


def _range_in_words(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    if high is None:
        return f" of at least {_short(low)}"
    return f" of at most {_short(high)}" if low is None else f" from {_short(low)} to {_short(high)}"


def _short(number: float | None) -> str:
    short = f"{number:g}"
    return short if float(short) == number else str(number)


# --- files and presets ---


class UnknownSettings(FlairNasError):
    """A file of settings has some that this command has not; it may be another command's."""


def _fault(words: str, mark: Any) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(None, None, words, mark)


class _Loader(yaml.SafeLoader):
    """Reads plain data. Refused are repeated names, of which YAML would keep the last, references, and tags."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):  # a few lines of them can stand for more than memory holds
            raise _fault("write the value out instead of referring to it", event.start_mark)
        if getattr(event, "tag", None) is not None:
            raise _fault(f"leave the tag {brief(event.tag)} out", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _fault(f"{brief(key.value)} comes twice", key.start_mark)
                seen.add(key.value)
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
        data = _own_names(config_type, read_mapping(path))
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
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or a date such as 2024-13-01
        raise FlairNasError(f"{path}: not a YAML file of settings: {' '.join(str(error).split())[:500]}") from None
    if not isinstance(data, dict):
        raise FlairNasError(f"{path}: expected settings as `name: value` lines")
    return data


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
            raise_problems(_problems(config_type, given))
        except FlairNasError as error:
            raise FlairNasError(f"{file}: {error}") from None
        settings |= given
    return config_type(**{**settings, **(flags or {})})


def to_yaml(config: Any) -> str:
    """The settings as a file that `read_settings` reads."""
    return yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, allow_unicode=True)
