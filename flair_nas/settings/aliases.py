"""Flair's names of settings, which are accepted beside ours."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from flair_nas.errors import did_you_mean
from flair_nas.settings.fields import Config, kinds_of
from flair_nas.settings.validation import raise_problems


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
        make(self, *values, **own_names(kind, named))

    config_type.__init__ = __init__  # type: ignore[method-assign]
    return config_type


def own_names(config_type: type, named: Mapping[Any, Any]) -> dict[Any, Any]:
    """The same settings with Flair's names replaced by ours.

    Raises:
        FlairNasError: one is given by both names.
    """
    own = flair_names(config_type)
    both = [f"{own[name]} is also {name}, give one of them" for name in named if name in own and own[name] in named]
    raise_problems(both)
    return {own.get(name, name): value for name, value in named.items()}
