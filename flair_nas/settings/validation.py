"""Checks of settings, where one error names all problems, and Flair's names of settings, accepted beside ours."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flair_nas.errors import FlairNasError, brief, did_you_mean
from flair_nas.settings.fields import Config, Kind, get_kinds

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def raise_problems(problems: Sequence[str], where: str = "") -> None:
    """Raise one error that names all problems, if there are any, after the place where they are."""
    if problems:
        raise FlairNasError(f"{where}settings that cannot be used: {'; '.join(problems)}")


def find_problems(config: DataclassInstance) -> list[str]:
    """Return the problems of all settings: wrong types and values out of range."""
    return problems_in(type(config), {field.name: getattr(config, field.name) for field in dataclasses.fields(config)})


def problems_in(config_type: type, values: Mapping[str, Any]) -> list[str]:
    """Return the problems of some settings of a class, each checked by itself."""
    problems = {
        name: _find_problem(kind, values[name]) for name, kind in get_kinds(config_type).items() if name in values
    }
    return [f"{name} {problem}, got {brief(values[name])}" for name, problem in problems.items() if problem]


def _find_problem(kind: Kind, value: Any) -> str:
    if value is None and kind.optional:
        return ""
    if kind.many:
        fits = isinstance(value, list) and all(_fits(entry, kind) for entry in value)
        fits = fits and (value or kind.default == [])
    else:
        fits = _fits(value, kind)
    if not fits:
        return f"must be {_describe(kind)}"
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


def _describe(kind: Kind) -> str:
    """Return the values that a setting can have."""
    if kind.choices is not None:
        return f"{'a list' if kind.many else 'one'} of {', '.join(map(str, kind.choices))}"
    word, words, example = {
        int: ("a whole number", "whole numbers", ", as [1, 2]"),
        float: ("a number", "numbers", ", as [0.1, 0.2]"),
        bool: ("true or false", "true or false", ""),
        str: ("text", "texts", ""),
    }[kind.type]
    low, high = (_shorten(number) for number in (kind.low, kind.high))
    limits = f" of at least {low}" if low else f" of at most {high}" if high else ""
    limits = f" from {low} to {high}" if low and high else limits
    if kind.many:
        return f"a list of {words}{limits}{'' if kind.default == [] else ' with at least one entry'}{example}"
    return f"{'true, false or ' * kind.switch}{word}{limits}"


def _shorten(number: float | None) -> str:
    short = "" if number is None else f"{number:g}"
    return short if number is None or float(short) == number else str(number)


def flair_names(config_type: type) -> dict[str, str]:
    """Return the names of settings by Flair's names for them, where these differ."""
    return {kind.flair: name for name, kind in get_kinds(config_type).items() if kind.flair}


def takes_flair_names(config_type: type[Config]) -> type[Config]:
    """Let the constructor of a dataclass of settings accept Flair's names: ``TaggerConfig(max_epochs=10)``."""
    make = config_type.__init__

    @functools.wraps(make)
    def initialise(self: Config, *values: Any, **named: Any) -> None:
        names = get_kinds(type(self))
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
