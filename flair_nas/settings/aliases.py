"""Flair's names of settings, which are accepted beside ours."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from flair_nas.errors import did_you_mean
from flair_nas.settings.fields import Config, get_kinds
from flair_nas.settings.validation import raise_problems


def flair_names(config_type: type) -> dict[str, str]:
    """Return the names of settings by Flair's names for them, where these differ."""
    fields = dataclasses.fields(config_type)
    return {field.metadata["flair"]: field.name for field in fields if field.metadata["flair"]}


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


def replace_flair_names(config_type: type, named: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return settings with Flair's names replaced by ours; no setting may have both."""
    own = flair_names(config_type)
    raise_problems(
        [f"{own[name]} is also {name}, give one of them" for name in named if name in own and own[name] in named]
    )
    return {own.get(name, name): value for name, value in named.items()}
