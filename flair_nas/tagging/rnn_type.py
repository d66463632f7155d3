"""Recurrent layers as text, for Flair's `rnn_type`."""

from __future__ import annotations

import json
import warnings
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.genotype import Genotype
from flair_nas.library.layer_spec import LAYER_OPTIONS, carries_gated_by_default, parse_layer_spec
from flair_nas.nn.searched_rnn import SearchedRNN
from flair_nas.tagging.config import FLAIR_TYPES

_CONFIG_FORMAT = "flair-nas/rnn"


def build_rnn(
    rnn_type: str | Genotype,
    *,
    input_size: int,
    hidden_size: int,
    num_layers: int = 1,
    bidirectional: bool = False,
    dropout: float = 0.0,
) -> SearchedRNN:
    """Build the layer of an `rnn_type`, batch first as Flair needs it.

    Args:
        rnn_type: a layer spec such as ``i-darts-ptb,recurrent_dropout=0.25,combine=mean`` (a genotype's name, file or
            one line, then options), a result of `describe_rnn`, or a `Genotype`.
        input_size: D.
        hidden_size: H.
        num_layers: layers on top of one another.
        bidirectional: run in both directions.
        dropout: between layers, unless an option sets it.

    Raises:
        FlairNasError: the name is unknown (the message lists the known ones and close matches), or the genotype or an
            option is faulty.
    """
    options: dict[str, Any] = {"dropout": dropout}
    if isinstance(rnn_type, Genotype):
        genotype = rnn_type
    elif _is_described(rnn_type):
        config = json.loads(rnn_type)
        genotype = Genotype.from_dict(config["genotype"])
        options |= {name: config[name] for name in LAYER_OPTIONS}
    else:
        genotype, numbers = parse_layer_spec(rnn_type, FLAIR_TYPES)
        options |= numbers
        if carries_gated_by_default(genotype, rnn_type):
            warnings.warn(
                "carry=gated, which is what genotype files of version 1 mean: what the layer keeps of its past can "
                f"grow without bound; with rnn_type={rnn_type + ',carry=ungated'!r} it cannot",
                stacklevel=2,
            )
    try:
        return SearchedRNN(
            input_size, hidden_size, genotype, num_layers, bidirectional=bidirectional, batch_first=True, **options
        )
    except ValueError as error:
        raise FlairNasError(f"cannot build rnn_type {rnn_type!r}: {error}") from None


def describe_rnn(rnn: SearchedRNN) -> str:
    """Return an `rnn_type` that holds the genotype and dropouts of a layer, so that it needs no library."""
    config = {name: getattr(rnn, name) for name in LAYER_OPTIONS}
    return json.dumps({"format": _CONFIG_FORMAT, **config, "genotype": rnn.genotype.to_dict()})


def is_self_contained(rnn_type: str) -> bool:
    """Return True if an `rnn_type` is one of Flair's own or a result of `describe_rnn`, so that it opens no file."""
    return rnn_type in FLAIR_TYPES or _is_described(rnn_type)


def _is_described(rnn_type: str) -> bool:
    return rnn_type.lstrip().startswith("{") and _CONFIG_FORMAT in rnn_type
