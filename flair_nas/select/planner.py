"""Reductions of a selection that exceeds its budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flair_nas.select.config import SelectSettings


def reductions(config: SelectSettings, min_epochs: int, usual: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield changes of settings that make a selection smaller, step by step; the baseline always stays.

    Controls go first, then all usual layers but one, then learning rates and epochs, and named layers last.
    """
    if config.random is None:
        yield {"random": 0}
    if config.match:
        yield {"match": False}
    if config.gates:
        yield {"gates": 0}
    if not config.candidates:
        yield {"candidates": list(usual[:1])}
    if len(config.rates) > 1:
        yield {"rates": config.rates[:1]}
    for tenth in range(9, 0, -1):
        if min_epochs < config.epochs:
            yield {"epochs": max(min_epochs, config.epochs * tenth // 10)}
    others = [name for name in config.candidates if name.lower() not in ("lstm", config.rnn.lower())]
    random = config.random or 0
    for halvings in range(1, random.bit_length() + 1):
        if random >> halvings or others or not config.candidates:  # something stays to be compared
            yield {"random": random >> halvings}
    for count in range(len(others) - 1, 0, -1):
        yield {"candidates": others[:count]}
    if config.searches:
        yield {"searches": []}


def describe_changes(config: SelectSettings, changes: Mapping[str, Any]) -> list[str]:
    """Return a clause for each change of `reductions`."""
    names = ("candidates", "rates", "epochs", "random")
    layers, rates, epochs, random = (changes.get(name, getattr(config, name)) for name in names)
    cells = f"only {random} random cell{'s are' if random != 1 else ' is'} compared"
    clauses = {
        "random": cells if random else "no random cell is compared",
        "match": "no LSTM of equal size is compared",
        "gates": "no random gates are compared",
        "candidates": f"of the other layers only {' '.join(layers)} is compared",
        "rates": f"the learning rate {config.learning_rate * rates[0]:g} alone is tried",
        "epochs": f"each layer is trained for {epochs} of {config.epochs} epochs, after which another may be ahead",
        "searches": "no cell is searched",
    }
    return [clauses[name] for name in changes]
