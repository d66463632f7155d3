"""The limit `at_most_seconds`: layers are timed beside an LSTM, and slower ones are not compared."""

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

_STEPS = "steps"  # of the ledger


def apply_limit(runs: Runs, warn: Callable[[str], None]) -> Runs:
    """Return the runs without layers, and sizes of random cells, that are slower than `at_most_seconds`.

    Args:
        runs: the runs of a selection.
        warn: takes a sentence on what is left out.

    Raises:
        FlairNasError: all are slower.
    """
    config, limit = runs.config, runs.config.at_most_seconds
    if limit is None:
        return runs
    always = [identity(rnn) for rnn in (config.rnn, "lstm")]
    names = [name for name in config.candidates or runs.usual if identity(name) not in always]
    sizes = [] if config.random == 0 else config.nodes
    cells = [(f"random cells of {n} node{'s' * (n > 1)}", random_genotype(1, nodes=n).one_line()) for n in sizes]
    layers = [Layer(name, rnn, config.hidden_size) for name, rnn in [*zip(names, names), *cells]]
    kept = within_limit(runs, layers, warn)
    if layers and not kept and not config.searches:
        times = zip(_time_layers(runs, layers), layers)
        ratio, fastest = min(times, key=lambda pair: pair[0])
        raise FlairNasError(
            f"no candidate takes at most {limit:g} times the seconds of an LSTM. The fastest are {fastest.name}, which "
            f"take {ratio:.2f} times as long; set a larger --at-most-seconds, or name faster --candidates"
        )
    fast = [name for name in names if name in {layer.rnn for layer in kept}]
    nodes = [size for size, (name, _) in zip(sizes, cells) if name in {layer.name for layer in kept}]
    changes: dict[str, Any] = {"nodes": nodes} if nodes else {"random": 0}
    if config.candidates or not fast:
        changes["candidates"] = fast or ["lstm"]
    return dataclasses.replace(runs, config=dataclasses.replace(config, **changes), usual=fast)


def within_limit(runs: Runs, layers: Sequence[Layer], warn: Callable[[str], None]) -> list[Layer]:
    """Return the layers that meet `at_most_seconds`, with the baseline and the LSTM in any case."""
    config, limit = runs.config, runs.config.at_most_seconds
    if limit is None:
        return list(layers)
    always = [(identity(rnn), config.hidden_size) for rnn in (config.rnn, "lstm")]
    kept, slow = list[Layer](), list[str]()
    for layer, ratio in zip(layers, _time_layers(runs, layers)):
        if ratio <= limit or (identity(layer.rnn), layer.hidden_size) in always:
            kept.append(layer)
        else:
            slow.append(f"{layer.name} ({ratio:.2f})")
    if slow:
        warn(f"slower than {limit:g} times the LSTM in a training step, and so not compared: {', '.join(slow)}")
    return kept


def _time_layers(runs: Runs, layers: Sequence[Layer]) -> list[float]:
    """Return the time of each layer's training step, relative to that of an LSTM; each layer is timed once."""
    config, keys = runs.config, [f"{identity(layer.rnn)} {layer.hidden_size}" for layer in layers]
    known: dict[str, float] = dict(runs.ledger.runs.get(_STEPS, {}).get("ratios", {}))
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
