"""The text that stands for a searched layer, wherever one is asked for: a genotype, then options after commas."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from flair_nas.errors import FlairNasError, brief, did_you_mean
from flair_nas.genotype import OPTION_NAMES, Genotype
from flair_nas.library import UnknownGenotype, bundled_names, load_genotype
from flair_nas.recurrent import LAYER_NUMBERS


def parse_rnn(text: str, others: Sequence[str] = (), name: str = "rnn_type") -> tuple[Genotype, dict[str, float]]:
    """Splits such a text into its genotype, options of the genotype applied, and the arguments of `SearchedRNN`.

    Args:
        text: a library name, a file or a written genotype, then options after commas:
            ``i-darts-ptb,recurrent_dropout=0.25,combine=mean``.
        others: what the caller also knows, LSTM for one; it takes no options, and errors list it.
        name: what errors call the text.

    Raises:
        FlairNasError: nothing is known by that name (the known ones and close matches are listed), a faulty genotype,
            or an option that does not exist or cannot be read.
    """
    where = f"{name} {brief(text)}"
    source, options = _split_options(text)
    if source.upper() in [other.upper() for other in others] and options:
        raise FlairNasError(f"{where}: the options are for searched cells; {source} takes none")
    changes: dict[str, Any] = {}
    numbers: dict[str, float] = {}
    for option, value in options:
        if option not in (*OPTION_NAMES, *LAYER_NUMBERS) or not value:
            shown = f"{option}={value}" if value else option
            known = ", ".join((*OPTION_NAMES, *LAYER_NUMBERS))
            raise FlairNasError(f"{where}: unknown option {brief(shown)}; the options are {known}, as name=value")
        if option in changes or option in numbers:
            raise FlairNasError(f"{where}: the option {brief(option)} comes twice")
        if option in LAYER_NUMBERS:
            try:
                numbers[option] = float(value)
            except ValueError:
                raise FlairNasError(f"{where}: {option} must be a number, got {brief(value)}") from None
        else:
            changes[option] = {"true": True, "false": False}.get(value.lower(), value) if option == "highway" else value
    try:
        return dataclasses.replace(load_genotype(source), **changes), numbers
    except UnknownGenotype:
        names = (*others, *bundled_names())
        hint = did_you_mean(source, names)
        raise FlairNasError(
            f"unknown {name} {brief(source)}. {hint[:1].upper()}{hint[1:]}Known: {', '.join(names)}; "
            "or a genotype file, or a one-line genotype."
        ) from None


def _split_options(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Splits ``source,name=value,...``; commas before that, as in a path or a written genotype, stay."""
    options: list[tuple[str, str]] = []
    parts = text.split(",")
    while len(parts) > 1:
        name, _, value = parts[-1].partition("=")
        if not re.fullmatch(r"\w+", name.strip()) or re.search(r"[={}\[\]()'\"]", value):
            break
        options.append((name.strip(), value.strip()))
        parts.pop()
    return ",".join(parts).strip(), options[::-1]
