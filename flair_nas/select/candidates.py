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
"""Bundled cells of one or two nodes: the first usual layers on tags."""


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
        """Return the name of the run with a seed, which is its key in the ledger and its folder."""
        return f"{self.name}-seed{seed}"

    def settings(self, config: SelectSettings, seed: int, epochs: int) -> dict[str, Any]:
        """Return the settings of the run with a seed."""
        own = {"rnn": self.layer.rnn, "hidden_size": self.layer.hidden_size, "learning_rate": self.learning_rate}
        return config.one(**own, epochs=epochs) | config.task.work.seeded(seed)


def is_baseline(layer: Layer, config: SelectSettings) -> bool:
    """Return True if a layer is the baseline."""
    return (layer.rnn, layer.hidden_size) == (config.rnn, config.hidden_size)


def list_usual_layers(task: Task) -> list[str]:
    """Return the layers to compare if none is named, the most promising first.

    On tags, the small cells and the GRU come before the other bundled genotypes, which are sorted by published
    perplexity on the Penn Treebank. On a text, the best of those and the GRU come first, and the small cells last.
    """

    def published(name: str) -> float:
        figures = load_genotype(name).origin.get("figures", {})
        return float(figures.get("ptb_test_perplexity_published", math.inf))

    best, *others = sorted((name for name in bundled_names() if name not in SMALL_CELLS), key=published)  # stable
    return [*SMALL_CELLS, "gru", best, *others] if task is TAGGING else [best, "gru", *others, *SMALL_CELLS]


def named_layers(config: SelectSettings, usual: Sequence[str] | None = None) -> list[Layer]:
    """Return the baseline, the LSTM and the named candidates; with `gates`, cells also with random gates.

    If the settings name no candidates, the usual ones take their place: `usual`, or all if it is None.

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
        if not config.gates or text.upper() in LAYER_NAMES:
            continue
        cell, numbers = parse_layer_spec(text)
        if cell.state_gate is None and cell.input_gate is None and cell.recurrence != "elementwise":
            gated = to_layer_spec(_add_gates(cell, 1, config.gates), numbers)
            layers.append(Layer(f"{name}-gates", gated, config.hidden_size))
    return layers


def _add_gates(cell: Genotype, seed: int, history: int) -> Genotype:
    """Return a cell with random gates."""
    drawn = random_genotype(seed, history=history)
    return dataclasses.replace(cell, state_gate=drawn.state_gate, input_gate=drawn.input_gate)


def random_layers(config: SelectSettings, count: int) -> list[Layer]:
    """Return random cells, or fewer if no more exist; with `gates`, each also with random gates.

    The first cells are the same for any count.
    """
    return list(itertools.chain.from_iterable(itertools.islice(draw_layers(config), count)))


def draw_layers(config: SelectSettings) -> Iterator[list[Layer]]:
    """Yield random cells; with `gates`, each beside the same cell with random gates."""
    for number, cell in enumerate(_distinct_cells(config.nodes), start=1):
        layers = [Layer(f"random-{number}", cell.one_line(), config.hidden_size)]
        if config.gates:
            gated = _add_gates(cell, number, config.gates).one_line()
            layers.append(Layer(f"random-{number}-gates", gated, config.hidden_size))
        yield layers


def _distinct_cells(sizes: Sequence[int]) -> Iterator[Genotype]:
    """Draw different cells, none of them small, with these numbers of nodes in turn; stop if no more exist."""
    seen, misses = set(map(load_genotype, SMALL_CELLS)), 0
    for number, size in enumerate(itertools.cycle(sizes), start=1):
        draws = (random_genotype(number + 1_000_003 * attempt, nodes=size) for attempt in range(50))
        cell = next((cell for cell in draws if cell not in seen), None)
        if cell is None:
            misses += 1
            if misses == len(sizes):
                return
        else:
            misses = 0
            seen.add(cell)
            yield cell


def matched_lstm(
    config: SelectSettings, count: Callable[[Mapping[str, Any]], int], layers: Sequence[Layer]
) -> Layer | None:
    """Return an LSTM with the parameter count of the largest layer, or None if that layer is an LSTM."""
    largest = max(count(config.one(rnn=layer.rnn, hidden_size=layer.hidden_size)) for layer in layers)
    size = matched_size(lambda size: count(config.one(rnn="lstm", hidden_size=size)), largest)
    return Layer(f"lstm-{size}", "lstm", size) if size > config.hidden_size else None


def make_candidates(config: SelectSettings, layers: Sequence[Layer]) -> list[Candidate]:
    """Return each layer with each learning rate; a name does not depend on the other candidates."""
    candidates = []
    for layer in layers:
        slug = re.sub(r"[^\w.-]+", "_", layer.name)[:40].strip("_.")
        digest = hashlib.sha256(f"{identity(layer.rnn)} {layer.hidden_size}".encode()).hexdigest()[:6]
        for factor in config.rates:
            rate = config.learning_rate * factor
            candidates.append(Candidate(layer, rate, f"{slug}-{digest}-rate{rate:.10g}"))
    return candidates
