"""The text that stands for a searched layer, wherever one is asked for: a genotype, then options after commas."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from flair_nas.errors import FlairNasError, brief
from flair_nas.genotype import OPTION_NAMES, Genotype
from flair_nas.library.named import UnknownGenotype, bundled_names, instead_of, load_genotype

log = logging.getLogger("flair_nas")

LAYER_NUMBERS = ("dropout", "input_dropout", "recurrent_dropout", "init_range")
"""The arguments of `SearchedRNN` that are no sizes."""


def parse_rnn(text: str, others: Sequence[str] = (), name: str = "rnn_type") -> tuple[Genotype, dict[str, float]]:
    """Splits such a text into its genotype, options of the genotype applied, and the arguments of `SearchedRNN`.

    Args:
        text: what `load_genotype` takes, then options after commas:
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
        hint = instead_of(source, names)
        raise FlairNasError(
            f"unknown {name} {brief(source)}. {hint[:1].upper()}{hint[1:]}Known: {', '.join(names)}; "
            "or a genotype file, its https:// or hf:// address, or a one-line genotype."
        ) from None


def text_of(genotype: Genotype, numbers: Mapping[str, float] | None = None) -> str:
    """The text that `parse_rnn` reads as this genotype (but for its origin) and these arguments of `SearchedRNN`."""
    usual = Genotype(genotype.nodes).options
    options = {name: value for name, value in genotype.options.items() if value != usual[name]} | dict(numbers or {})
    return ",".join([genotype.one_line(), *(f"{name}={value}" for name, value in options.items())])


def comparable(architecture: str) -> str:
    """A layer's description as it is compared with that of another version of flair-nas.

    Genotypes are in the newest format, without their origin; the range that weights started in is left out, as it is no
    matter to a run that goes on.

    Args:
        architecture: JSON with a genotype, which what printing a module shows may follow; or the latter alone.

    Raises:
        GenotypeError: it holds a genotype that cannot be used.
    """
    try:
        data, end = json.JSONDecoder().raw_decode(architecture)
    except ValueError:
        data, end = None, 0
    if isinstance(data, dict):
        nested = "genotype" in data
        genotype = Genotype.from_dict(data["genotype"] if nested else {"origin": {}, **data})
        known = dataclasses.replace(genotype, origin={}).to_dict()
        architecture = json.dumps({**data, "genotype": known} if nested else known) + architecture[end:]
    return re.sub(r', "?init_range"?(: |=)[^,}\s]+', "", architecture)


def say_risks(text: str, others: Sequence[str] = ()) -> None:
    """Says so where a layer that is about to be trained learns nothing, or carries the gated state unasked.

    Args:
        text: what stands for it, as `parse_rnn` takes it.
        others: layers of which nothing is said.
    """
    if text.upper() in [other.upper() for other in others]:
        return
    (genotype, _), (source, _) = parse_rnn(text), _split_options(text)
    if genotype.silent:
        log.warning(
            "%s has gate=product and no sigmoid in cell and input gate: a state of zeros stays zero, and nothing is "
            "learned; use %s",
            brief(source),
            shlex.quote(f"{text},gate=residual"),
        )
    if carries_gated_unasked(genotype, text):
        log.warning(
            "%s has carry=gated, which is what files of version 1 mean: what it keeps of its past can grow without "
            "bound until the loss is not finite; with %s it cannot",
            brief(source),
            shlex.quote(f"{text},carry=ungated"),
        )


def carries_gated_unasked(genotype: Genotype, text: str) -> bool:
    """Whether a layer carries the gated state, as files of version 1 do, and the text for it does not say so.

    Args:
        genotype: what `parse_rnn` has read of the text.
        text: that text.
    """
    return genotype.carries_gated and "carry" not in dict(_split_options(text)[1])


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
