"""Layer specs: a genotype, then options after commas, such as ``i-darts-ptb,recurrent_dropout=0.25``."""

from __future__ import annotations

import dataclasses
import logging
import re
import shlex
from collections.abc import Sequence
from typing import Any

from flair_nas.errors import FlairNasError, brief
from flair_nas.genotype import OPTION_NAMES, Genotype
from flair_nas.genotype.order import is_order, parse_order
from flair_nas.library.named import UnknownGenotypeError, bundled_names, load_genotype, suggest_source
from flair_nas.nn.layers import LAYER_NAMES, is_named

log = logging.getLogger("flair_nas")

LAYER_OPTIONS = ("dropout", "input_dropout", "recurrent_dropout", "init_range")
"""Arguments of `SearchedRNN` that a layer spec can set."""

LEARNING_RATE = 0.2
"""Learning rate of SGD for taggers whose layer is stored without one (docs/layers.md)."""


def parse_layer_spec(
    text: str, others: Sequence[str] = LAYER_NAMES, name: str = "rnn_type"
) -> tuple[Genotype, dict[str, float]]:
    """Return the genotype of a layer spec, with options applied, and arguments of `SearchedRNN`.

    Args:
        text: a source as for `load_genotype`, then options: ``i-darts-ptb,recurrent_dropout=0.25,combine=mean``.
        others: layers without a genotype that the caller accepts, without options; errors list them.
        name: the setting of the text, for errors.

    Raises:
        FlairNasError: the source is unknown (the error lists names and close matches), its genotype is faulty, or an
            option is unknown, repeated or no number.
    """
    place = f"{name} {brief(text)}"
    source, options = _split_options(text)
    known = (*OPTION_NAMES, *LAYER_OPTIONS)
    if options and source.upper() in [other.upper() for other in others]:
        raise FlairNasError(f"{place}: the options are for searched cells; {source} takes none")
    changes: dict[str, Any] = {}
    numbers: dict[str, float] = {}
    for option, value in options:
        if option not in known or not value:
            fault = f"unknown option {brief(f'{option}={value}' if value else option)}"
            raise FlairNasError(f"{place}: {fault}; the options are {', '.join(known)}, as name=value")
        if option in changes or option in numbers:
            raise FlairNasError(f"{place}: the option {brief(option)} comes twice")
        if option in LAYER_OPTIONS:
            try:
                numbers[option] = float(value)
            except ValueError:
                raise FlairNasError(f"{place}: {option} must be a number, got {brief(value)}") from None
        else:
            changes[option] = {"true": True, "false": False}.get(value.lower(), value) if option == "highway" else value
    try:
        return dataclasses.replace(load_genotype(source), **changes), numbers
    except UnknownGenotypeError:
        names = (*others, *bundled_names())
        hint = suggest_source(source, names)
        raise FlairNasError(
            f"unknown {name} {brief(source)}. {hint[:1].upper()}{hint[1:]}Known: {', '.join(names)}; "
            "or a genotype file, its https:// or hf:// address, or a one-line genotype."
        ) from None


def check_layer_spec(text: str, others: Sequence[str] = LAYER_NAMES, name: str = "rnn_type") -> None:
    """Raise a FlairNasError if a text is neither one of these names, nor a layer spec."""
    if is_order(text):
        parse_order(text, name)
    elif text.upper() not in others:
        parse_layer_spec(text, others, name)


def identity(text: str) -> str:
    """Return a text that is equal for equal layers, however their specs are written. A file counts by its content.

    Raises:
        FlairNasError: the name is unknown.
    """
    if is_named(text):
        return parse_order(text).spec() if is_order(text) else text.lower()
    genotype, numbers = parse_layer_spec(text)
    return f"{genotype.one_line()} {genotype.options} {sorted(numbers.items())}"


def advised_learning_rate(text: str) -> float:
    """Return the recommended learning rate of SGD for taggers with a layer.

    It is the `learning_rate` in the provenance of the layer's genotype, or else `LEARNING_RATE`.

    Args:
        text: a layer spec, or a name of `LAYER_NAMES`.
    """
    if is_named(text):
        return LEARNING_RATE
    rate = parse_layer_spec(text)[0].origin.get("learning_rate", LEARNING_RATE)
    if not isinstance(rate, (int, float)) or not 1e-12 <= rate <= 1e6:
        raise FlairNasError(f"{brief(text)}: learning_rate in its origin must be a number above 0, got {brief(rate)}")
    return float(rate)


def warn_of_risks(text: str, optimizer: str = "") -> None:
    """Log a warning if a layer learns nothing, or badly with its optimizer, or carries the gated state by default."""
    if is_order(text):
        if optimizer == "sgd":
            log.warning("transformers learn badly with SGD; use --optimizer adamw, and --warmup-steps")
        if "s" not in parse_order(text).letters:
            log.warning("%s has no s, so words do not see one another", brief(text))
    if is_named(text):
        return
    (genotype, _), (source, _) = parse_layer_spec(text), _split_options(text)
    if genotype.silent:
        log.warning(
            "%s has gate=product and no sigmoid in cell and input gate: a state of zeros stays zero, and nothing is "
            "learned; use %s",
            brief(source),
            shlex.quote(f"{text},gate=residual"),
        )
    if carries_gated_by_default(genotype, text):
        log.warning(
            "%s has carry=gated, which is what files of version 1 mean: what it keeps of its past can grow without "
            "bound until the loss is not finite; with %s it cannot",
            brief(source),
            shlex.quote(f"{text},carry=ungated"),
        )


def carries_gated_by_default(genotype: Genotype, text: str) -> bool:
    """Return True if a layer carries the gated state, as files of version 1 do, and its layer spec sets no carry."""
    carries_gated = genotype.highway and genotype.state_gate is not None and genotype.carry == "gated"
    return carries_gated and "carry" not in dict(_split_options(text)[1])


def _split_options(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Return source and options of ``source,name=value,...``; keep commas of the source, as of a path."""
    options: list[tuple[str, str]] = []
    parts = text.split(",")
    while len(parts) > 1:
        name, _, value = parts[-1].partition("=")
        if not re.fullmatch(r"\w+", name.strip()) or re.search(r"[={}\[\]()'\"]", value):
            break
        options.append((name.strip(), value.strip()))
        parts.pop()
    return ",".join(parts).strip(), options[::-1]
