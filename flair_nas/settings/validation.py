"""Checks of settings; all problems are named at once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from flair_nas.errors import FlairNasError, brief
from flair_nas.settings.fields import Kind, kinds_of


def problems_of(config: Any) -> list[str]:
    """Return every setting of the wrong type or out of its range, in words."""
    return problems_in(type(config), {field.name: getattr(config, field.name) for field in dataclasses.fields(config)})


class SettingsProblems(FlairNasError):
    """Settings that cannot be used."""


def raise_problems(problems: Sequence[str]) -> None:
    """Raise one error that names all problems.

    Raises:
        SettingsProblems: if there are any.
    """
    if problems:
        raise SettingsProblems("settings that cannot be used: " + "; ".join(problems))


def problems_in(config_type: type, values: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with values of the settings of a class, each by itself, in words."""
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
