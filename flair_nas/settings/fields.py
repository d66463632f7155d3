"""Fields of settings, with their help and range; their checks, and Flair's names for them.

The settings of a command are a dataclass whose fields are made by `setting`:

    @dataclass
    class MyConfig:
        epochs: int = setting(10, "epochs at most", low=1)

        def __post_init__(self) -> None:
            raise_problems(find_problems(self))
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shlex
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from flair_nas.errors import FlairNasError, brief, did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")

COUNT: dict[str, Any] = {"low": 1, "high": 1_000_000}
"""The range of a setting that counts something: sizes, steps, epochs."""

PROBABILITY: dict[str, Any] = {"low": 0, "high": 0.99}
"""The range of a dropout."""


class Kind(NamedTuple):
    """Kind of a setting: its default, help, range and type. A range or choice is that of the entries of a list."""

    default: Any  # an empty list allows empty lists
    help: str  # one line for ``--help``
    low: float | None = None  # the smallest number
    high: float | None = None  # the largest number
    choices: Sequence[str] | None = None  # the allowed values
    check: Callable[[Any], str] | None = None  # the problem of a value that is in range, as "must be even", or ""
    flair: str | None = None  # Flair's name of the setting, if it differs
    section: str = ""  # the title of a section of ``--help`` that begins with this setting
    type: type = str  # int, float, bool or str
    many: bool = False  # a list of these
    optional: bool = False  # None is allowed
    switch: bool = False  # an int that can also be true or false


def setting(default: Any, help: str, **options: Any) -> Any:
    """Make a field of settings; the options are those of `Kind` from `low` to `section`.

    Its annotation is int, float, bool, str, a list of one of these, or one of these with ``| None``. ``bool | int``
    is a switch that is on, off, or on with a number.
    """
    metadata = {"kind": Kind(default, help, **options)}
    if isinstance(default, list):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def part(config_type: type, section: str) -> Any:
    """Make a field of settings of their own, which a section of ``--help`` shows. Their dataclass checks nothing.

    Files and flags have them flat, among the others.
    """
    return dataclasses.field(default_factory=config_type, metadata={"part": config_type, "section": section})


def choice(default: str, classes: Callable[[], Mapping[str, type]], help: str) -> Any:
    """Make a field of settings of one of several dataclasses. Its value may be a name, for the defaults of that class.

    Files and flags have the name, and the settings of the chosen class flat among the others. The dataclasses by name
    check nothing themselves.
    """
    return dataclasses.field(default=default, metadata={"classes": classes, "help": help})


@functools.cache
def get_kinds(config_type: type) -> Mapping[str, Kind]:
    """Return the kind of each setting by name, in order. A choice is the name; see `get_classes` for its settings."""
    hints, kinds = typing.get_type_hints(config_type), dict[str, Kind]()
    for field in dataclasses.fields(config_type):
        if own := field.metadata.get("part"):
            (first, kind), *others = get_kinds(own).items()
            kinds |= {first: kind._replace(section=field.metadata["section"]), **dict(others)}
        elif classes := field.metadata.get("classes"):
            help = f"{field.metadata['help']}: {', '.join(classes())}"
            kinds[field.name] = Kind(field.default, help, choices=tuple(classes()), section=field.name)
        else:
            kinds[field.name] = _add_type(field.metadata["kind"], field.name, hints[field.name])
    return types.MappingProxyType(kinds)


def get_classes(config_type: type) -> dict[str, Mapping[str, type]]:
    """Return the classes of each choice by name, by the name of its field."""
    fields = dataclasses.fields(config_type)
    return {field.name: field.metadata["classes"]() for field in fields if "classes" in field.metadata}


def get_all_kinds(config_type: type) -> dict[str, Kind]:
    """Return the kind of each setting that a file or flag can have, with those of all classes of a choice."""
    kinds = dict(get_kinds(config_type))
    for classes in get_classes(config_type).values():
        for own in classes.values():
            kinds = {**kinds, **get_kinds(own), **kinds}  # the first owner of a setting gives its kind
    return kinds


def _get_chosen_kinds(config_type: type, settings: Mapping[str, Any]) -> dict[str, Kind]:
    """Return the kind of each setting, with those of the classes that some settings choose."""
    kinds = dict(get_kinds(config_type))
    for name, classes in get_classes(config_type).items():
        chosen = settings.get(name, kinds[name].default)
        kinds |= get_kinds(classes[chosen]) if isinstance(chosen, str) and chosen in classes else {}
    return kinds


def _add_type(kind: Kind, name: str, hint: Any) -> Kind:
    parts = {*typing.get_args(hint)} if typing.get_origin(hint) in (typing.Union, types.UnionType) else {hint}
    optional, switch = type(None) in parts, {bool, int} <= parts
    parts -= {type(None), *[bool] * switch}
    hint = parts.pop() if len(parts) == 1 else hint
    many = typing.get_origin(hint) is list
    if many:
        (hint,) = typing.get_args(hint)
    if hint not in (int, float, bool, str):
        raise TypeError(f"setting {name}: {hint} is none of int, float, bool, str")
    return kind._replace(type=hint, many=many, optional=optional, switch=switch)


def flatten(config: DataclassInstance) -> dict[str, Any]:
    """Return all settings by name, as a file has them; those of a choice stand after its name."""
    settings: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if classes := field.metadata.get("classes"):
            settings[field.name] = next(name for name, own in classes().items() if type(value) is own)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            settings |= flatten(value)
        else:
            settings[field.name] = value
    return settings


def make_settings(config_type: type[Config], settings: Mapping[str, Any]) -> Config:
    """Make settings of a class from values by name, as a file has them. Refuse those of a class that is not chosen."""
    values = dict(settings)
    problems = list[str]()
    known = _get_chosen_kinds(config_type, settings)
    for field in dataclasses.fields(config_type):
        chosen, classes = field.metadata.get("part"), field.metadata.get("classes", dict)()
        if classes:
            name = values.get(field.name, field.default)
            chosen = classes.get(name) if isinstance(name, str) else None
            for other in [other for other in values if other not in known]:
                if owners := [owner for owner, own in classes.items() if other in get_kinds(own)]:
                    del values[other]
                    problems.append(f"{other} belongs to {field.name} {' or '.join(owners)}, not {name}")
        if chosen is not None:  # else the class tells what is wrong with the name
            values[field.name] = chosen(**{name: values.pop(name) for name in get_kinds(chosen) if name in values})
    try:
        config = config_type(**values)
    except SettingsError as error:
        problems = [*error.problems, *problems]
    raise_problems(problems)
    return config


def changed(config: DataclassInstance, *names: str) -> dict[str, Any]:
    """Return the settings that differ from their defaults, by name: those of these names in this order, or all."""
    values = flatten(config)
    kinds = _get_chosen_kinds(type(config), values)
    return {name: values[name] for name in names or values if values[name] != kinds[name].default}


def as_flags(config: DataclassInstance, config_type: type) -> str:
    """Return the command-line flags of the settings of a class or base class that differ from their defaults."""
    flags = []
    kinds = get_all_kinds(config_type)
    for setting, value in changed(config).items():
        if setting not in kinds:
            continue
        name = setting.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{name}" if value else f"--no-{name}")
        elif isinstance(value, list) and kinds[setting].type is str:
            flags.append(f"--{name} {shlex.join(value)}")
        else:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            between = "=" if text.startswith("-") else " "  # a leading minus would look like a flag
            flags.append(f"--{name}{between}{shlex.quote(text)}")
    return " ".join(flags)


def check_device(name: str) -> str:
    """Return the problem of the name of a device, or an empty text. PyTorch is asked later if the device is there."""
    return "" if re.fullmatch(r"cpu(:0)?|cuda(:\d{1,3})?", name) else "must be cpu, cuda or cuda:N"


def device_setting() -> Any:
    """Make the field of a device."""
    return setting(None, "cpu, cuda or cuda:N (a GPU when there is one)", check=check_device)


# --- checks, where one error names all problems ---


class SettingsError(FlairNasError):
    """The error for settings that cannot be used, with a sentence for each of its `problems`."""

    def __init__(self, problems: Sequence[str], where: str = "") -> None:
        super().__init__(f"{where}settings that cannot be used: {'; '.join(problems)}")
        self.problems = problems


def raise_problems(problems: Sequence[str], where: str = "") -> None:
    """Raise one error that names all problems, if there are any, after the place where they are."""
    if problems:
        raise SettingsError(problems, where)


def find_problems(config: DataclassInstance) -> list[str]:
    """Return the problems of all settings: wrong types and values out of range.

    Paths, tuples, ranges and numbers of NumPy become values that a file of settings can hold. The name of a choice
    becomes its settings.
    """
    kinds, problems = get_kinds(type(config)), list[str]()
    for field in dataclasses.fields(config):
        value = _to_plain(getattr(config, field.name))
        part, classes = field.metadata.get("part"), field.metadata.get("classes", dict)()
        if isinstance(value, str) and value in classes:
            value = classes[value]()
        setattr(config, field.name, [_to_plain(entry) for entry in value] if isinstance(value, list) else value)
        known = [part] if part else [*classes.values()]
        if type(value) in known:
            problems += find_problems(value)
        elif part or known and not isinstance(value, str):
            names = " or ".join(own.__name__ for own in known)
            problems.append(f"{field.name} must be of {names}, got {_describe_value(value)}")
        else:
            problems += _name_problems({field.name: kinds[field.name]}, vars(config))
    return problems


def _to_plain(value: Any) -> Any:
    """Return a path as text, a tuple or range as a list, an array or number of NumPy as those of Python."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    numpy = sys.modules.get("numpy")  # without it, there are no values of its types
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return value.tolist()
    return list(value) if type(value) in (tuple, range) else value


def check_config(config: object, *config_types: type) -> None:
    """Raise an error unless settings are of one of these classes."""
    if not isinstance(config, config_types):
        names = " or ".join(config_type.__name__ for config_type in config_types)
        hint = f"; make one of the dictionary: {config_types[0].__name__}(**settings)" * isinstance(config, dict)
        raise FlairNasError(f"config must be a {names}, got {brief(config)}{hint}")


def problems_in(config_type: type, values: Mapping[str, Any]) -> list[str]:
    """Return the problems of some settings of a class, as a file has them, each checked by itself."""
    return _name_problems(get_all_kinds(config_type) | _get_chosen_kinds(config_type, values), values)


def _name_problems(kinds: Mapping[str, Kind], values: Mapping[str, Any]) -> list[str]:
    problems = {name: _find_problem(kind, values[name]) for name, kind in kinds.items() if name in values}
    return [f"{name} {problem}, got {_describe_value(values[name])}" for name, problem in problems.items() if problem]


def _describe_value(value: Any) -> str:
    """Return a value, with its type if no file of settings could hold it."""
    is_plain = value is None or isinstance(value, (bool, int, float, str, list, dict))
    return brief(value) if is_plain else f"{type(value).__name__} {brief(value)}"


def _find_problem(kind: Kind, value: Any) -> str:
    if value is None and kind.optional:
        return ""
    if kind.many:
        is_filled = bool(value) or kind.default == []
        fits = isinstance(value, list) and is_filled and all(_fits(entry, kind) for entry in value)
    else:
        fits = _fits(value, kind)
    if not fits:
        return f"must be {describe(kind)}"
    return kind.check(value) if kind.check else ""


def _fits(value: Any, kind: Kind) -> bool:
    """Return True if a value, or an entry of a list, has the right type and is in range."""
    if kind.choices is not None and value not in kind.choices:
        return False
    if kind.switch and isinstance(value, bool):
        return True
    if kind.type in (bool, str):
        # an optional text can be empty, which means the same as None
        return isinstance(value, kind.type) and bool(value or kind.type is bool or kind.optional)
    if isinstance(value, bool) or not isinstance(value, int if kind.type is int else (int, float)):
        return False
    is_finite = float("-inf") < value < float("inf")  # False for NaN; math.isfinite overflows for a long int
    return is_finite and (kind.low is None or kind.low <= value) and (kind.high is None or value <= kind.high)


def describe(kind: Kind) -> str:
    """Return the values that a setting can have."""
    if kind.choices is not None:
        return f"{'a list' if kind.many else 'one'} of {', '.join(map(str, kind.choices))}"
    word, words, example = {
        int: ("a whole number", "whole numbers", ", as [1, 2]"),
        float: ("a number", "numbers", ", as [0.1, 0.2]"),
        bool: ("true or false", "true or false", ""),
        str: ("text", "texts", ""),
    }[kind.type]
    low, high = ("" if number is None else f"{number:,.10g}" for number in (kind.low, kind.high))
    limits = f" of at least {low}" if low else f" of at most {high}" if high else ""
    limits = f" from {low} to {high}" if low and high else limits
    if kind.many:
        return f"a list of {words}{limits}{'' if kind.default == [] else ' with at least one entry'}{example}"
    return f"{'true, false or ' * kind.switch}{word}{limits}"


def flair_names(config_type: type) -> dict[str, str]:
    """Return the names of settings by Flair's names for them, where these differ."""
    return {kind.flair: name for name, kind in get_kinds(config_type).items() if kind.flair}


def takes_flair_names(config_type: type[Config]) -> type[Config]:
    """Let the constructor of a dataclass of settings accept Flair's names: ``TaggerConfig(max_epochs=10)``."""
    make = config_type.__init__

    @functools.wraps(make)
    def initialise(self: Config, *values: Any, **named: Any) -> None:
        names = [field.name for field in dataclasses.fields(self)]
        known = [*names, *flair_names(type(self))]
        for name in named:
            if name not in known:
                hint = did_you_mean(name, known)
                raise TypeError(f"{type(self).__name__} has no setting {name!r}; {hint}it has {', '.join(names)}")
        make(self, *values, **replace_flair_names(type(self), named))

    config_type.__init__ = initialise  # type: ignore[method-assign,assignment]
    return config_type


def replace_flair_names(config_type: type, named: Mapping[Any, Any], where: str = "") -> dict[Any, Any]:
    """Return settings with Flair's names replaced by ours; no setting may have both."""
    own = flair_names(config_type)
    twice = [name for name in named if name in own and own[name] in named]
    raise_problems([f"{own[name]} is also {name}, give one of them" for name in twice], where)
    return {own.get(name, name): value for name, value in named.items()}
