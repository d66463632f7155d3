"""What is compared: a recurrent layer with a learning rate."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.experiments.layers import identity, matched_size
from flair_nas.genotype import random_genotype
from flair_nas.library.layer_spec import parse_rnn, text_of
from flair_nas.library.named import bundled_names, load_genotype
from flair_nas.select.config import SelectSettings
from flair_nas.tagging.config import FLAIR_TYPES


@dataclass(frozen=True)
class Layer:
    """A recurrent layer.

    Args:
        name: in tables.
        rnn: what the setting of that name is for it.
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

    def settings(self, config: SelectSettings, seed: int, epochs: int) -> dict[str, Any]:
        """Those of one of its runs."""
        of_layer: dict[str, Any] = {"rnn": self.layer.rnn, "hidden_size": self.layer.hidden_size}
        return config.one(**of_layer, learning_rate=self.learning_rate, epochs=epochs) | config.task.work.seeded(seed)


def is_to_beat(layer: Layer, config: SelectSettings) -> bool:
    """Whether a layer is the one that the others are to beat."""
    return (layer.rnn, layer.hidden_size) == (config.rnn, config.hidden_size)


def bundled_best_first() -> list[str]:
    """The bundled genotypes by their published perplexity on the Penn Treebank; last those without one."""

    def published(name: str) -> float:
        figures = load_genotype(name).origin.get("figures", {})
        return float(figures.get("ptb_test_perplexity_published", math.inf))

    return sorted(bundled_names(), key=published)  # stable


def named_layers(config: SelectSettings, bundled: Sequence[str] | None = None) -> list[Layer]:
    """The layer to beat, the LSTM, and those that the settings name; with `gates`, cells also with random ones.

    Args:
        config: the settings.
        bundled: the genotypes to compare where the settings name no candidates; all bundled ones when None.

    Raises:
        FlairNasError: nothing is known by a name, or it is not for this task.
    """
    of_torch, texts = config.task.work.LAYERS, dict[str, str]()
    usual = ["gru", *(bundled_best_first() if bundled is None else bundled)]
    for text in [config.rnn, "lstm", *(config.candidates or usual)]:
        _check(text, of_torch)
        texts.setdefault(identity(text), text)
    found = []
    for text in texts.values():
        name = text.lower() if text.upper() in FLAIR_TYPES else text
        found.append(Layer(name, text, config.hidden_size))
        if config.gates and text.upper() not in FLAIR_TYPES and (gated := _with_gates(text, config.gates)):
            found.append(Layer(f"{name}-gates", gated, config.hidden_size))
    return found


def _check(text: str, of_torch: Sequence[str]) -> None:
    if text.upper() in of_torch:
        return
    names = text.split(",")  # a file's name may have commas, and options follow one
    if len(names) > 1 and all(name.upper() in of_torch or name in bundled_names() for name in names):
        raise FlairNasError(f"candidates are parted by blanks, not by commas: {' '.join(names)}")
    parse_rnn(text, of_torch)


def _with_gates(text: str, history: int) -> str | None:
    """A layer with random gates around its cell, in place of `text`; None if it has gates."""
    genotype, numbers = parse_rnn(text, FLAIR_TYPES)
    if genotype.state_gate is not None or genotype.input_gate is not None:
        return None
    drawn = random_genotype(1, history=history)
    gated = dataclasses.replace(genotype, state_gate=drawn.state_gate, input_gate=drawn.input_gate)
    return text_of(gated, numbers)


def random_layers(config: SelectSettings, count: int) -> list[Layer]:
    """So many random cells, and each with gates, if they are asked for; the first are the same for any count."""
    found = []
    for number in range(1, count + 1):
        cell = random_genotype(number)
        found.append(Layer(f"random-{number}", cell.one_line(), config.hidden_size))
        if config.gates:
            gated = random_genotype(number, history=config.gates)
            found.append(Layer(f"random-{number}-gates", gated.one_line(), config.hidden_size))
    return found


def matched_lstm(
    config: SelectSettings, count: Callable[[Mapping[str, Any]], int], layers: Sequence[Layer]
) -> Layer | None:
    """An LSTM with as many parameters as the largest of the layers; None if that is an LSTM.

    Args:
        config: the settings.
        count: gives the parameters for the settings of a run, as the task's `counter`.
        layers: all others.
    """
    largest = max(count(config.one(rnn=layer.rnn, hidden_size=layer.hidden_size)) for layer in layers)
    size = matched_size(lambda size: count(config.one(rnn="lstm", hidden_size=size)), largest)
    return lstm_of_size(size) if size > config.hidden_size else None


def lstm_of_size(size: int) -> Layer:
    """An LSTM of another hidden size than the other layers."""
    return Layer(f"lstm-{size}", "lstm", size)


def candidates_of(config: SelectSettings, layers: list[Layer]) -> list[Candidate]:
    """Every layer with every learning rate, in this order; a name stays when others are added."""
    found: list[Candidate] = []
    for layer in layers:
        slug = re.sub(r"[^\w.-]+", "_", layer.name)[:40].strip("_.")
        digest = hashlib.sha256(f"{identity(layer.rnn)} {layer.hidden_size}".encode()).hexdigest()[:6]
        for factor in config.rates:
            rate = config.learning_rate * factor
            found.append(Candidate(layer, rate, f"{slug}-{digest}-rate{rate:.10g}"))
    return found
