"""Candidates of a selection: recurrent layers, each with a learning rate."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.experiments.layers import identity, matched_size
from flair_nas.experiments.tasks import TAGGING, Task
from flair_nas.genotype import Genotype, random_genotype
from flair_nas.library.layer_spec import parse_layer_spec, to_layer_spec
from flair_nas.library.named import bundled_names, load_genotype
from flair_nas.nn.layers import LAYER_NAMES
from flair_nas.select.config import SelectSettings

SMALL_CELLS = ("small-relu-tanh", "small-relu", "small-tanh")
"""Bundled cells of one or two nodes, on tags compared first if no candidates are named."""


@dataclass(frozen=True)
class Layer:
    """A recurrent layer, with its name in tables."""

    name: str
    rnn: str
    hidden_size: int


@dataclass(frozen=True)
class Candidate:
    """A layer with a learning rate, and a name that is fit for a folder."""

    layer: Layer
    learning_rate: float
    name: str

    def run(self, seed: int) -> str:
        """Return the name of the run with a seed, in the ledger and of its folder."""
        return f"{self.name}-seed{seed}"

    def settings(self, config: SelectSettings, seed: int, epochs: int) -> dict[str, Any]:
        """Return the settings of the run with a seed."""
        own = {"rnn": self.layer.rnn, "hidden_size": self.layer.hidden_size, "learning_rate": self.learning_rate}
        return config.one(**own, epochs=epochs) | config.task.work.seeded(seed)


def is_baseline(layer: Layer, config: SelectSettings) -> bool:
    """Return True if a layer is the baseline."""
    return (layer.rnn, layer.hidden_size) == (config.rnn, config.hidden_size)


def list_usual_layers(task: Task) -> list[str]:
    """Return the layers to compare if none is named, the most promising ones first.

    These are for tags the small cells and the GRU, then bundled genotypes by published perplexity on the Penn Treebank;
    for a text the best of these, the GRU, and the rest.
    """

    def published(name: str) -> float:
        figures = load_genotype(name).origin.get("figures", {})
        return float(figures.get("ptb_test_perplexity_published", math.inf))

    best, *others = sorted((name for name in bundled_names() if name not in SMALL_CELLS), key=published)  # stable
    return [*SMALL_CELLS, "gru", best, *others] if task is TAGGING else [best, "gru", *others, *SMALL_CELLS]


def named_layers(config: SelectSettings, usual: Sequence[str] | None = None) -> list[Layer]:
    """Return the baseline, the LSTM, and the layers that the settings name; with `gates`, cells also with random gates.

    If the settings name no candidates, these are the usual ones, of which None means all.

    Raises:
        FlairNasError: a name is unknown, or its layer is not for this task.
    """
    torch_layers, texts = config.task.work.LAYERS, dict[str, str]()
    usual = list_usual_layers(config.task) if usual is None else usual
    for text in [config.rnn, "lstm", *(config.candidates or usual)]:
        if text.upper() not in torch_layers:
            names = text.split(",")  # a file's name may have commas, and options follow one
            if len(names) > 1 and all(name.upper() in torch_layers or name in bundled_names() for name in names):
                raise FlairNasError(f"separate candidates by blanks, not by commas: {' '.join(names)}")
            parse_layer_spec(text, torch_layers)
        texts.setdefault(identity(text), text)
    layers = []
    for text in texts.values():
        name = text.lower() if text.upper() in LAYER_NAMES else text
        layers.append(Layer(name, text, config.hidden_size))
        if config.gates and text.upper() not in LAYER_NAMES and (gated := _with_gates(text, config.gates)):
            layers.append(Layer(f"{name}-gates", gated, config.hidden_size))
    return layers


def _with_gates(text: str, history: int) -> str | None:
    """Return a layer spec with random gates around its cell, or None if it has gates or can have none."""
    genotype, numbers = parse_layer_spec(text)
    if genotype.state_gate is not None or genotype.input_gate is not None or genotype.recurrence == "elementwise":
        return None
    drawn = random_genotype(1, history=history)
    gated = dataclasses.replace(genotype, state_gate=drawn.state_gate, input_gate=drawn.input_gate)
    return to_layer_spec(gated, numbers)


def random_layers(config: SelectSettings, count: int) -> list[Layer]:
    """Return random cells, each also with gates if these are wanted; the first cells are the same for any count.

    Return fewer if no more cells of these sizes exist.
    """
    return list(itertools.chain.from_iterable(itertools.islice(draw_layers(config), count)))


def draw_layers(config: SelectSettings) -> Iterator[list[Layer]]:
    """Yield random cells, each alone or with its twin with gates."""
    for number, cell in enumerate(_distinct_cells(config.nodes), start=1):
        layers = [Layer(f"random-{number}", cell.one_line(), config.hidden_size)]
        if config.gates:
            drawn = random_genotype(number, history=config.gates)
            gated = dataclasses.replace(cell, state_gate=drawn.state_gate, input_gate=drawn.input_gate)
            layers.append(Layer(f"random-{number}-gates", gated.one_line(), config.hidden_size))
        yield layers


def _distinct_cells(sizes: Sequence[int]) -> Iterator[Genotype]:
    """Draw cells with these numbers of nodes in turn, all different and none of the small ones; stop after the last."""
    seen, misses = set(map(load_genotype, SMALL_CELLS)), 0
    for number in itertools.count(1):
        size = sizes[(number - 1) % len(sizes)]
        draws = (random_genotype(number + 1_000_003 * attempt, nodes=size) for attempt in range(50))
        cell = next((cell for cell in draws if cell not in seen), None)
        if cell is not None:
            seen.add(cell)
            misses = 0
            yield cell
            continue
        misses += 1
        if misses == len(sizes):
            return


def matched_lstm(
    config: SelectSettings, count: Callable[[Mapping[str, Any]], int], layers: Sequence[Layer]
) -> Layer | None:
    """Return an LSTM with as many parameters, by the task's counter, as the largest layer; None if that is an LSTM."""
    largest = max(count(config.one(rnn=layer.rnn, hidden_size=layer.hidden_size)) for layer in layers)
    size = matched_size(lambda size: count(config.one(rnn="lstm", hidden_size=size)), largest)
    return Layer(f"lstm-{size}", "lstm", size) if size > config.hidden_size else None


def make_candidates(config: SelectSettings, layers: Sequence[Layer]) -> list[Candidate]:
    """Return every layer with every learning rate, in this order; a name does not depend on the other candidates."""
    candidates = []
    for layer in layers:
        slug = re.sub(r"[^\w.-]+", "_", layer.name)[:40].strip("_.")
        digest = hashlib.sha256(f"{identity(layer.rnn)} {layer.hidden_size}".encode()).hexdigest()[:6]
        for factor in config.rates:
            rate = config.learning_rate * factor
            candidates.append(Candidate(layer, rate, f"{slug}-{digest}-rate{rate:.10g}"))
    return candidates
