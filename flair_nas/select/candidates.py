"""What is compared: a recurrent layer with a learning rate."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from flair_nas.genotype import Genotype, random_genotype
from flair_nas.library import bundled_names
from flair_nas.recurrent import SearchedRNN
from flair_nas.rnn_text import parse_rnn
from flair_nas.select.config import SelectConfig
from flair_nas.tagging.config import TaggerConfig
from flair_nas.tagging.rnn_type import FLAIR_TYPES


@dataclass(frozen=True)
class Layer:
    """A recurrent layer.

    Args:
        name: in tables.
        rnn: what `TaggerConfig.rnn` is for it.
        hidden_size: H.
    """

    name: str
    rnn: str
    hidden_size: int


@dataclass(frozen=True)
class Candidate:
    """A layer with a learning rate.

    Args:
        layer: which one.
        learning_rate: of SGD.
        name: fit for a folder.
    """

    layer: Layer
    learning_rate: float
    name: str

    def run(self, seed: int) -> str:
        """The name of its run with a seed: in the ledger, and of the folder."""
        return f"{self.name}-seed{seed}"

    def config(self, config: SelectConfig, seed: int, epochs: int) -> TaggerConfig:
        """The settings of its tagger."""
        changes: dict[str, Any] = {"rnn": self.layer.rnn, "hidden_size": self.layer.hidden_size}
        return config.tagger(**changes, learning_rate=self.learning_rate, seeds=[seed], epochs=epochs)


def named_layers(config: SelectConfig) -> list[Layer]:
    """The layer to beat, the LSTM, and those that the settings name; with `gates`, cells also with random ones."""
    texts: dict[str, str] = {}
    for text in [config.rnn, "lstm", *(config.candidates or ["gru", *bundled_names()])]:
        texts.setdefault(identity(text), text)
    found = []
    for text in texts.values():
        name = text.lower() if text.upper() in FLAIR_TYPES else text
        found.append(Layer(name, text, config.hidden_size))
        if config.gates and text.upper() not in FLAIR_TYPES and (gated := _with_gates(text, config.gates)):
            found.append(Layer(f"{name}-gates", gated, config.hidden_size))
    return found


def identity(rnn: str) -> str:
    """What a layer is, however it is written; a file that has changed is another layer.

    Raises:
        FlairNasError: nothing is known by that name.
    """
    if rnn.upper() in FLAIR_TYPES:
        return rnn.lower()
    genotype, numbers = parse_rnn(rnn, FLAIR_TYPES)
    return f"{genotype.one_line()} {genotype.options} {sorted(numbers.items())}"


def _with_gates(text: str, history: int) -> str | None:
    """A layer with random gates around its cell, in place of `text`; None if it has gates."""
    genotype, numbers = parse_rnn(text, FLAIR_TYPES)
    if genotype.state_gate is not None or genotype.input_gate is not None:
        return None
    drawn = random_genotype(1, history=history)
    gated = dataclasses.replace(genotype, state_gate=drawn.state_gate, input_gate=drawn.input_gate)
    plain = Genotype(genotype.nodes).options
    options = {name: value for name, value in gated.options.items() if value != plain[name]} | numbers
    return ",".join([gated.one_line(), *(f"{name}={value}" for name, value in options.items())])


def random_layers(config: SelectConfig, count: int) -> list[Layer]:
    """So many random cells, and each with gates, if they are asked for; the first are the same for any count."""
    found = []
    for number in range(1, count + 1):
        cell = random_genotype(number)
        found.append(Layer(f"random-{number}", cell.one_line(), config.hidden_size))
        if config.gates:
            gated = random_genotype(number, history=config.gates)
            found.append(Layer(f"random-{number}-gates", gated.one_line(), config.hidden_size))
    return found


def matched_lstm(config: SelectConfig, input_size: int, layers: list[Layer]) -> Layer | None:
    """An LSTM with as many parameters as the largest of the layers; None if that is an LSTM.

    Args:
        config: the settings.
        input_size: D, the length of a word's vector.
        layers: all others.
    """
    largest = max(parameters(layer, input_size, config.layers) for layer in layers)

    def count(size: int) -> int:
        return parameters(Layer("", "lstm", size), input_size, config.layers)

    size = matched_size(count, largest)
    return Layer(f"lstm-{size}", "lstm", size) if size > config.hidden_size else None


def matched_size(count: Callable[[int], int], wanted: int) -> int:
    """The hidden size that has the wanted number of parameters, as nearly as can be.

    Args:
        count: the number for a size; it grows with it.
        wanted: that number.
    """
    low, high = 1, 2
    while count(high) < wanted:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < wanted else (low, middle)
    return min((low, high), key=lambda size: abs(count(size) - wanted))


def parameters(layer: Layer, input_size: int, layers: int) -> int:
    """How many a layer has, in both directions.

    Args:
        layer: which one.
        input_size: D.
        layers: how many of them, one above the other.
    """
    options: dict[str, Any] = {"num_layers": layers, "bidirectional": True}
    with torch.device("meta"):
        if layer.rnn.upper() in FLAIR_TYPES:
            module: nn.Module = getattr(nn, layer.rnn.upper())(input_size, layer.hidden_size, **options)
        else:
            module = SearchedRNN(input_size, layer.hidden_size, parse_rnn(layer.rnn, FLAIR_TYPES)[0], **options)
    return sum(parameter.numel() for parameter in module.parameters())


def candidates_of(config: SelectConfig, layers: list[Layer]) -> list[Candidate]:
    """Every layer with every learning rate, in this order; a name stays when others are added."""
    found: list[Candidate] = []
    for layer in layers:
        slug = re.sub(r"[^\w.-]+", "_", layer.name)[:40].strip("_.")
        digest = hashlib.sha256(f"{identity(layer.rnn)} {layer.hidden_size}".encode()).hexdigest()[:6]
        for factor in config.rates:
            rate = config.learning_rate * factor
            found.append(Candidate(layer, rate, f"{slug}-{digest}-rate{rate:.10g}"))
    return found
