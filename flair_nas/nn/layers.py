"""Table of the recurrent layers that have a name; those of genotypes have none. This module imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flair_nas.genotype.order import is_order


class LayerType(NamedTuple):
    """A recurrent layer that `--rnn` and `rnn_type` take by name."""

    help: str
    cell: str = ""  # module and class of its cell, which `ParallelRNN` runs; empty if PyTorch has the layer
    blocks: tuple[int, ...] = ()  # of PyTorch's layers, the order of their blocks of weights in ONNX's operator
    models_text: bool = True  # language models and character models take it, too


LAYER_TYPES = {
    "LSTM": LayerType("long short-term memory", blocks=(0, 3, 1, 2)),
    "GRU": LayerType("gated recurrent unit", blocks=(1, 0, 2)),
    "RNN": LayerType("tanh of one product", blocks=(0,), models_text=False),
    "SRU": LayerType("Lei et al., 2018", "flair_nas.nn.parallel:SRUCell"),
    "MINGRU": LayerType("Feng et al., 2024", "flair_nas.nn.parallel:MinGRUCell"),
    "MINLSTM": LayerType("Feng et al., 2024", "flair_nas.nn.parallel:MinLSTMCell"),
}
"""Layers by name, in upper case; users may write lower case."""

LAYER_NAMES = tuple(LAYER_TYPES)
"""Names of layers that taggers take."""

FLAIR_LAYERS = tuple(name for name, row in LAYER_TYPES.items() if not row.cell)
"""Names of layers that Flair builds itself."""

TEXT_LAYERS = tuple(name for name, row in LAYER_TYPES.items() if row.models_text)
"""Names of layers that language models and character models take."""


def is_named(text: str, names: Sequence[str] = LAYER_NAMES) -> bool:
    """Return True if a layer spec is one of these names, or a transformer's; the others are genotypes."""
    return text.upper() in names or is_order(text)


def describe_layers(names: tuple[str, ...], transformers: bool = True) -> str:
    """Return the help on a setting that takes these layers, maybe transformers, or a genotype."""
    known = ", ".join(f"{name.lower()} ({LAYER_TYPES[name].help})" for name in names)
    known += ", transformer:ORDER (sublayers s and f, as ssfsff; Press et al., 2020)" * transformers
    return f"{known}, or a genotype: its name, file, address or one line; options after commas"
