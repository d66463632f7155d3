"""The parts of a tagger or a language model that `tune` can vary. To add a part, add a row to a table.

A part is one setting or a few, each with the values that it may have. A point of the space has a value for each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flair_nas.errors import FlairNasError, did_you_mean
from flair_nas.experiments.tasks import TAGGING, TEXT, Task
from flair_nas.genotype import Genotype, random_genotype
from flair_nas.language_model.text.config import TextSettings
from flair_nas.library.layer_spec import check_layer_spec, identity
from flair_nas.library.named import bundled_names, load_genotype
from flair_nas.nn.layers import is_named
from flair_nas.settings.fields import get_kinds
from flair_nas.tagging.config import CorpusSettings

SMALL_CELLS = ("small-relu-tanh", "small-relu", "small-tanh")
"""Bundled cells of one or two nodes: the first usual layers on tags."""
TAUGHT = (0.0, 0.3, 1.0, 3.0)
"""Weights of sentences that teachers have labelled."""
_DRAWS = 50  # for a cell
EMBEDDED = "embeddings: "
"""Beginning of the names of dimensions that tell if an embedding is used."""


class Range(NamedTuple):
    """Numbers between two limits, equally likely; with `log`, their logarithms are.

    Example:
        >>> from flair_nas import Range
        >>> Range(0.2, 0.7).high
        0.7
    """

    low: float
    high: float
    log: bool = False


Space = Mapping[str, Sequence[Any] | Range]
"""Dimensions by name: a setting with the values that it may have."""
Point = dict[str, Any]
"""A value for each dimension."""
Config = Any
"""A `TuneSettings`, whose module needs this one."""


class Part(NamedTuple):
    """A part that may vary."""

    help: str
    space: Callable[[Config], Space]


def list_layers(config: Config) -> list[str]:
    """Return the layers to try: the baseline, the LSTM, the named or else the usual ones, and random cells.

    Raises:
        FlairNasError: a name is unknown, or its layer is not for this task.
    """
    torch_layers, texts = config.task.work.LAYERS, dict[str, str]()
    for text in [config.rnn, "lstm", *(config.candidates or _usual_layers(config.task))]:
        if not is_named(text, torch_layers):
            names = text.split(",")  # a file's name may have commas, and options follow one
            if len(names) > 1 and all(name.upper() in torch_layers or name in bundled_names() for name in names):
                raise FlairNasError(f"separate candidates by blanks, not by commas: {' '.join(names)}")
        check_layer_spec(text, torch_layers)
        texts.setdefault(identity(text), text)
    cells = draw_cells(config.nodes, by_cost=config.task is TEXT)
    return [*texts.values(), *(cell.one_line() for cell in itertools.islice(cells, config.random))]


def _usual_layers(task: Task) -> list[str]:
    """Return the layers to try if none is named."""
    layers = (layer.lower() for layer in task.work.LAYERS)
    return [*SMALL_CELLS, *layers, *(name for name in bundled_names() if name not in SMALL_CELLS)]


def draw_cells(sizes: Sequence[int], by_cost: bool = False) -> Iterator[Genotype]:
    """Draw different cells with these numbers of nodes in turn, none of them small, as long as there are more.

    With `by_cost`, two of three are the best of some by a draw of what is known of cells; a third stays random.
    """
    from flair_nas.library.cost_model import encode, load_prior  # here, as it loads NumPy

    seen, misses, prior = set(map(load_genotype, SMALL_CELLS)), 0, load_prior() if by_cost else None
    for number, size in enumerate(itertools.cycle(sizes), start=1):
        draws = (random_genotype(number + 1_000_003 * attempt, nodes=size) for attempt in range(_DRAWS))
        if prior is not None and (number - 1) // len(sizes) % 3 < 2:  # of each size
            drawn = [*draws]
            draws = (drawn[place] for place in prior.draw(encode(drawn), (number,)).argsort(kind="stable"))
        cell = next((cell for cell in draws if cell not in seen), None)
        misses = 0 if cell is not None else misses + 1
        if cell is not None:
            seen.add(cell)
            yield cell
        elif misses == len(sizes):
            return


def _fixed(**space: Sequence[Any] | Range) -> Callable[[Config], Space]:
    return lambda config: space


def _rate(low: float, high: float) -> Part:
    """Return the part of learning rates: between limits with SGD, or those usual with Adam."""
    of_sgd, of_adam = Range(low, high, log=True), Range(1e-4, 1e-2, log=True)
    return Part("learning rate", lambda config: {"learning_rate": of_sgd if config.optimizer == "sgd" else of_adam})


_LAYER = Part("the recurrent layer", lambda config: {"rnn": list_layers(config)})
TAGGER_PARTS = {
    "layer": _LAYER,
    "rate": _rate(0.02, 0.5),
    "width": Part("hidden size", _fixed(hidden_size=(64, 128, 256, 384))),
    "embeddings": Part(
        "which of --embeddings are used",
        lambda config: {f"{EMBEDDED}{spec}": (True, False) for spec in vars(config)["embeddings"]},
    ),
    "dropout": Part("word and locked dropout", _fixed(word_dropout=Range(0.0, 0.1), locked_dropout=Range(0.0, 0.5))),
    "batch": Part("sentences a batch", _fixed(batch_size=(4, 8, 16, 32))),
    "crf": Part("with or without a CRF", _fixed(crf=(True, False))),
    "taught": Part(
        "weight of the sentences of --taught", lambda config: {"taught_weight": TAUGHT} if config.taught else {}
    ),
    "map": Part("with or without a linear map on the embeddings", _fixed(reproject=(True, False))),
}
"""Parts of a tagger."""
TEXT_PARTS = {
    "layer": _LAYER,
    "rate": _rate(2.0, 40.0),
    "width": Part("hidden size", _fixed(hidden_size=(100, 200, 300, 400))),
    "dropout": Part(
        "dropouts of words, of the layer's input and output",
        _fixed(dropout=Range(0.0, 0.75), input_dropout=Range(0.0, 0.75), embedding_dropout=Range(0.0, 0.3)),
    ),
    "batch": Part("columns of text a batch", _fixed(batch_size=(10, 20, 40))),
}
"""Parts of a language model."""


def parts_of(task: Task) -> Mapping[str, Part]:
    """Return the parts of a task's models."""
    return TAGGER_PARTS if task is TAGGING else TEXT_PARTS


def make_space(config: Config, further: Mapping[str, Space]) -> dict[str, Sequence[Any] | Range]:
    """Return the dimensions of all parts that vary, and of further parts.

    Raises:
        FlairNasError: a layer is unknown, a further part has no such setting, its values are not allowed, or there is
            nothing to compare.
    """
    space: dict[str, Sequence[Any] | Range] = {}
    for name in config.vary:
        space |= parts_of(config.task)[name].space(config)
    kinds = get_kinds(config.task.settings)
    data = {*get_kinds(CorpusSettings), *get_kinds(TextSettings), "train_with_dev"}  # others cannot be compared
    fixed = {*config.may_change, *data, "epochs", "seeds", "seed", "storage"}
    for name, own in further.items():
        for setting, values in own.items():
            if setting not in kinds or setting in fixed:
                known = [kind for kind in kinds if kind not in fixed]
                hint = did_you_mean(setting, known)
                raise FlairNasError(f"part {name}: {setting} cannot vary; {hint}there are {', '.join(known)}")
            if isinstance(values, Range) and kinds[setting].type is int:
                raise FlairNasError(f"part {name}: {setting} takes whole numbers; give a list of them, not a Range")
            if isinstance(values, Range) and values.log and values.low <= 0:
                raise FlairNasError(f"part {name}: {setting} is logarithmic, so it must be above 0")
            if isinstance(values, Range) and not values.low < values.high:
                raise FlairNasError(f"part {name}: {setting} goes from {values.low:g} to {values.high:g}; swap them")
            if not isinstance(values, Range) and len(values) < 2:
                raise FlairNasError(f"part {name}: {setting} has {len(values)} values; give two or more")
        space |= own
    for setting, values in space.items():
        if not setting.startswith(EMBEDDED):
            for value in values[:2] if isinstance(values, Range) else values:
                config.run_settings({setting: value})  # raises what is wrong with it
    if count_points(space) < 2 and is_within(current_point(config, space), space):
        raise FlairNasError(f"vary {' '.join(config.vary)}: there is one value only, so nothing can be compared")
    return space


def current_point(config: Config, space: Space) -> Point:
    """Return the point of the settings themselves."""
    return {name: True if name.startswith(EMBEDDED) else getattr(config, name) for name in space}


def to_changes(point: Point) -> dict[str, Any]:
    """Return the settings of a point."""
    used = [name.removeprefix(EMBEDDED) for name, value in point.items() if name.startswith(EMBEDDED) and value]
    plain = {name: value for name, value in point.items() if not name.startswith(EMBEDDED)}
    return plain | ({"embeddings": used} if used else {})


def is_whole(point: Point) -> bool:
    """Return True unless a point uses no embeddings at all."""
    used = [value for name, value in point.items() if name.startswith(EMBEDDED)]
    return any(used) or not used


def allows(values: Sequence[Any] | Range, value: Any) -> bool:
    """Return True if a dimension with these values may have a value."""
    if isinstance(values, Range):
        return value is not None and bool(values.low <= value <= values.high)
    return value in values


def is_within(point: Point, space: Space) -> bool:
    """Return True if a point has the dimensions of a space, and values that it allows."""
    return point.keys() == space.keys() and all(allows(space[name], value) for name, value in point.items())


def count_points(space: Space) -> float:
    """Return the number of whole points of a space; infinity if one of its dimensions is a range."""
    plain = [values for name, values in space.items() if not name.startswith(EMBEDDED)]
    subsets = (1 << len(space) - len(plain)) - 1
    return math.prod(math.inf if isinstance(values, Range) else len(values) for values in plain) * max(1, subsets)
