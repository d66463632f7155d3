"""The limit `at_most_seconds`: layers are timed beside an LSTM, and slower ones are left out."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

from flair_nas.errors import FlairNasError
from flair_nas.experiments.jobs import Job
from flair_nas.experiments.layers import identity, time_layers
from flair_nas.genotype import random_genotype
from flair_nas.select.candidates import Layer
from flair_nas.select.runs import Runs

log = logging.getLogger("flair_nas")

_STEPS = "steps"  # key in the ledger


def apply_limit(runs: Runs, warn: Callable[[str], None]) -> Runs:
    """Return runs without the layers, and the sizes of random cells, that exceed `at_most_seconds`.

    Args:
        runs: the runs of a selection.
        warn: function that takes a sentence on layers left out.

    Raises:
        FlairNasError: all layers exceed it.
    """
    config, limit = runs.config, runs.config.at_most_seconds
    if limit is None:
        return runs
    always = [identity(rnn) for rnn in (config.rnn, "lstm")]
    names = [name for name in config.candidates or runs.usual if identity(name) not in always]
    sizes = [] if config.random == 0 else config.nodes
    named = {name: Layer(name, name, config.hidden_size) for name in names}
    cells = {}
    for size in sizes:
        title, cell = f"random cells of {size} node{'s' * (size > 1)}", random_genotype(1, nodes=size)
        cells[size] = Layer(title, cell.one_line(), config.hidden_size)
    layers = [*named.values(), *cells.values()]
    kept = drop_slow(runs, layers, warn)
    if layers and not kept and not config.searches:
        ratio, fastest = min((ratio or 0.0, layer.name) for ratio, layer in zip(_time_layers(runs, layers), layers))
        raise FlairNasError(
            f"no candidate takes at most {limit:g} times the seconds of an LSTM (fastest: {fastest}, {ratio:.2f} "
            "times); set a larger --at-most-seconds, or name faster --candidates"
        )
    fast = [name for name, layer in named.items() if layer in kept]
    nodes = [size for size, layer in cells.items() if layer in kept]
    changes: dict[str, Any] = {"match": False} | ({"nodes": nodes} if nodes else {"random": 0})
    if config.match:
        warn("no LSTM of equal size is compared, as it would take longer than the LSTM")
    if config.candidates or not fast:
        changes["candidates"] = fast or ["lstm"]
    return dataclasses.replace(runs, config=dataclasses.replace(config, **changes), usual=fast)


def drop_slow(runs: Runs, layers: Sequence[Layer], warn: Callable[[str], None]) -> list[Layer]:
    """Return the layers that meet `at_most_seconds`, the baseline and the LSTM; warn of the others."""
    config, limit = runs.config, runs.config.at_most_seconds
    if limit is None:
        return list(layers)
    always = [(identity(rnn), config.hidden_size) for rnn in (config.rnn, "lstm")]
    kept, slow = list[Layer](), list[str]()
    for layer, ratio in zip(layers, _time_layers(runs, layers)):
        if ratio is None or ratio <= limit or (identity(layer.rnn), layer.hidden_size) in always:
            kept.append(layer)
        else:
            slow.append(f"{layer.name} ({ratio:.2f})")
    if slow:
        warn(f"slower than {limit:g} times the LSTM in a training step, and so not compared: {', '.join(slow)}")
    return kept


def _time_layers(runs: Runs, layers: Sequence[Layer]) -> list[float | None]:
    """Return the time of each layer's step, relative to an LSTM; None if it is faulty. Time each layer once."""
    config = runs.config
    keys = [f"{identity(layer.rnn)} {layer.hidden_size} {config.one()['device']}" for layer in layers]
    known: dict[str, float | None] = dict(runs.ledger.runs.get(_STEPS, {}).get("ratios", {}))
    new = {key: layer for key, layer in zip(keys, layers) if key not in known}
    if new:
        log.info("a training step of %d layers is timed beside that of an LSTM", len(new))
        settings = [config.one(rnn=layer.rnn, hidden_size=layer.hidden_size) for layer in new.values()]
        (outcome,) = runs.pool.run([Job(_STEPS, time_layers, (config.task.name, settings, config.one(rnn="lstm")))])
        if outcome.error is not None:
            raise outcome.error
        known |= dict(zip(new, outcome.result))
        runs.ledger.runs[_STEPS] = {"ratios": known}
    return [known[key] for key in keys]
