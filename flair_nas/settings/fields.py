"""Fields of settings, which carry their help and range.

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
import shlex
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")

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
    """Make a field of settings.

    Its annotation is int, float, bool, str, a list of one of these, or one of these with ``| None``. ``bool | int``
    is a switch that is on, off, or on with a number.

    Args:
        default: the default. A list is copied for each instance. An empty list allows empty lists.
        help: one line for ``--help``.
        low: the smallest number, or entry of a list.
        high: the largest number, or entry of a list.
        choices: the allowed values, or entries of a list.
        check: a function that returns the problem of a value of the right type and range, as "must be even", or "".
        before: the value in runs that began before this setting existed, if it is not the default.
        flair: Flair's name of the setting, if it differs.
    """
    metadata = {"help": help, "low": low, "high": high, "choices": choices, "check": check}
    metadata |= {"before": before, "flair": flair}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Kind(NamedTuple):
    """The type of a setting, its default, and the arguments of `setting`."""

    type: type  # int, float, bool or str
    many: bool  # a list of these
    optional: bool  # None is allowed
    switch: bool  # an int that can also be true or false
    default: Any
    help: str
    low: float | None
    high: float | None
    choices: Sequence[str] | None
    check: Callable[[Any], str] | None
    before: Any
    flair: str | None


@functools.cache
def get_kinds(config_type: type) -> Mapping[str, Kind]:
    """Return the kind of each setting by name, in order."""
    hints = typing.get_type_hints(config_type)
    fields = dataclasses.fields(config_type)
    return types.MappingProxyType({field.name: _make_kind(field, hints[field.name]) for field in fields})


def _make_kind(field: dataclasses.Field[Any], hint: Any) -> Kind:
    parts = set(typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,))
    optional = type(None) in parts
    parts -= {type(None)}
    switch = parts == {bool, int}
    if switch or len(parts) == 1:
        hint = int if switch else parts.pop()
    many = typing.get_origin(hint) is list
    if many:
        (hint,) = typing.get_args(hint)
    if hint not in (int, float, bool, str):
        raise TypeError(f"setting {field.name}: {hint} is none of int, float, bool, str")
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return Kind(hint, many, optional, switch, default, **field.metadata)


def changed(config: DataclassInstance, *names: str) -> dict[str, Any]:
    """Return the settings that differ from their defaults, by name: those of these names in this order, or all."""
    kinds = get_kinds(type(config))
    values = {name: getattr(config, name) for name in names or kinds}
    return {name: value for name, value in values.items() if value != kinds[name].default}


def as_flags(config: DataclassInstance, config_type: type) -> str:
    """Return the command-line flags of the settings of a class or base class that differ from their defaults."""
    flags, kinds = [], get_kinds(config_type)
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
