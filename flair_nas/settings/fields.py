"""Settings of a command: fields that carry their help and range, presets, YAML files, and problems named all at once.

A command's settings are a dataclass whose fields are made by `setting`:

    @dataclass
    class MyConfig:
        epochs: int = setting(10, "epochs at most", low=1)

        def __post_init__(self) -> None:
            raise_problems(problems_of(self))
"""

from __future__ import annotations

import dataclasses
import functools
import shlex
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

Config = TypeVar("Config")


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


# --- files and presets ---
