"""Searched layers by Flair's `rnn_type`, their registration with `SequenceTagger`, and names in stacked embeddings.

Four attributes of the class are wrapped. `RNN` builds a layer by the name `rnn_type`, and the constructor completes it.
`_get_state_dict` saves its genotype, and `_init_model_with_state_dict` loads it. Flair builds its own types of layer.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch import nn

from flair_nas.errors import FlairNasError, brief
from flair_nas.genotype import Genotype
from flair_nas.genotype.order import is_order, parse_order
from flair_nas.library.layer_spec import LAYER_OPTIONS, carries_gated_by_default, parse_layer_spec
from flair_nas.nn.layers import FLAIR_LAYERS, LAYER_NAMES
from flair_nas.nn.recurrent_layer import KINDS, ParallelRNN, RecurrentLayer
from flair_nas.nn.searched_rnn import SearchedRNN
from flair_nas.nn.sublayers import SublayerTransformer

if TYPE_CHECKING:
    from flair.embeddings.base import TokenEmbeddings
    from flair.models import SequenceTagger

FAST_TEXT = "/fasttext"
"""The name of fastText embeddings. It sorts before numbers. Flair saves it, but does not restore it."""

SAVED_KEY = "flair_nas"
"""The key of a saved model's state under which flair-nas keeps what Flair does not."""

_CONFIG_FORMAT = "flair-nas/rnn"


class Width(int):
    """The width of a tagger's `reproject_embeddings`. Flair 0.15 takes any number as true.

    Saved models refer to this class, so loading one imports flair_nas.
    """


class SavedText(str):
    """A text that embeddings of flair-nas and character models save.

    Saved models refer to this class, so loading one imports flair_nas.
    """

    __slots__ = ()  # `describe_state` then reads the text


def imported_by_file() -> None:
    """Do nothing. Saved models refer to this function, so loading one imports flair_nas."""


def register(module: ModuleType) -> None:
    """Wrap four attributes of `SequenceTagger` in `flair.models.sequence_tagger_model`."""
    tagger = module.SequenceTagger
    init, flair_builder = tagger.__init__, tagger.RNN
    get_state, from_state = tagger._get_state_dict, tagger._init_model_with_state_dict.__func__

    @functools.wraps(init)
    def make(self: SequenceTagger, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if self.use_rnn and inspect.signature(init).bind(self, *args, **kwargs).arguments.get("rnn") is None:
            _complete(self)

    @functools.wraps(flair_builder)
    def build(rnn_type: str, rnn_layers: int, hidden_size: int, bidirectional: bool, rnn_input_dim: int) -> nn.Module:
        if rnn_type in FLAIR_LAYERS:
            layer: nn.Module = flair_builder(rnn_type, rnn_layers, hidden_size, bidirectional, rnn_input_dim)
            return layer
        if isinstance(rnn_type, str) and is_order(rnn_type):
            sizes = rnn_input_dim, hidden_size
            return SublayerTransformer(*sizes, parse_order(rnn_type), bidirectional, True, rnn_layers)
        dropout = 0.0 if rnn_layers == 1 else 0.5  # as Flair's own types
        return build_rnn(rnn_type, rnn_input_dim, hidden_size, rnn_layers, bidirectional, dropout)

    @functools.wraps(get_state)
    def get_state_dict(self: SequenceTagger) -> dict[str, Any]:
        return with_genotype(get_state(self), getattr(self, "rnn", None))

    @functools.wraps(from_state)
    def init_model_with_state_dict(cls: type, state: dict[str, Any], **kwargs: Any) -> SequenceTagger:
        if SAVED_KEY in state:  # Flair does not save the directions
            kwargs["bidirectional"] = state[SAVED_KEY]["bidirectional"]
        saved = state.get("embeddings")
        names = [member.get("name") for member in saved.get("embeddings", ())] if isinstance(saved, dict) else []
        tagger: SequenceTagger = from_state(cls, {**state, "reproject_embeddings": _saved_width(state)}, **kwargs)
        for member, name in zip(getattr(tagger.embeddings, "embeddings", ()), names):
            if name == FAST_TEXT:  # given by flair-nas
                member.name = name
        return tagger

    tagger.__init__, tagger.RNN = make, staticmethod(build)
    tagger._get_state_dict = get_state_dict
    loading: Callable[..., SequenceTagger] = init_model_with_state_dict
    tagger._init_model_with_state_dict = classmethod(loading)


def _complete(tagger: SequenceTagger) -> None:
    """Narrow the input of a new tagger's layer to its `Width`; make the CRF loss of a searched layer fast."""
    import flair

    from flair_nas.tagging.patches.viterbi_loss import use_fast_crf

    width = tagger.reproject_embeddings
    if isinstance(width, Width):
        tagger.embedding2nn = nn.Linear(tagger.embeddings.embedding_length, width)
        sizes = tagger.rnn_layers, tagger.hidden_size, tagger.bidirectional, width
        tagger.rnn = type(tagger).RNN(tagger.rnn_type, *sizes)
        tagger.to(flair.device)
    if isinstance(tagger.rnn, (RecurrentLayer, SublayerTransformer)):
        use_fast_crf(tagger)


def _saved_width(state: Mapping[str, Any]) -> Any:
    """Return the `reproject_embeddings` of a saved tagger, read off its weights.

    A tagger saved as data has a plain number in place of a `Width`.
    """
    weight = state["state_dict"].get("embedding2nn.weight")  # [width, length of the embeddings]
    if weight is None or not state.get("use_rnn", True) or weight.shape[0] == weight.shape[1]:
        return state.get("reproject_embeddings", True)
    return Width(weight.shape[0])


def with_genotype(state: dict[str, Any], rnn: object) -> dict[str, Any]:
    """Add the description of a layer of flair-nas to Flair's state of a model, and return the state."""
    if isinstance(rnn, (RecurrentLayer, SublayerTransformer)):
        state["rnn_type"] = describe_rnn(rnn)
        state[SAVED_KEY] = {"bidirectional": rnn.bidirectional, "import": imported_by_file}
    return state


def build_rnn(
    rnn_type: str | Genotype | os.PathLike[str],
    input_size: int,
    hidden_size: int,
    num_layers: int = 1,
    bidirectional: bool = False,
    dropout: float = 0.0,
    batch_first: bool = True,
    init_range: float | None = None,
    names: Sequence[str] = LAYER_NAMES,
    setting: str = "rnn_type",
) -> RecurrentLayer:
    """Build the layer of a layer spec, a name of `LAYER_NAMES`, a result of `describe_rnn`, or a `Genotype`.

    A layer spec is a genotype's name, file or one line, then options: ``i-darts-ptb,recurrent_dropout=0.25``. They win
    over `dropout` between layers and the initialisation bound `init_range`, which is 1.5 / √H if it is None. Inputs are
    [B, T, D] with `batch_first`, as in Flair's taggers; else [T, B, D], as in its language models. Errors use `names`,
    the layers that are no genotypes, and `setting`, the name of the argument `rnn_type`.

    Raises:
        FlairNasError: the name is unknown (the message lists the known ones and close matches), or the genotype or an
            option is faulty.
    """
    rnn_type = os.fspath(rnn_type) if isinstance(rnn_type, os.PathLike) else rnn_type
    options: dict[str, Any] = {"num_layers": num_layers, "bidirectional": bidirectional, "batch_first": batch_first}
    options["dropout"] = dropout
    kind: Any = None
    genotype: Genotype | None = None
    if isinstance(rnn_type, Genotype):
        genotype = rnn_type
    elif not isinstance(rnn_type, str):
        raise FlairNasError(f"{setting} must be a layer spec or a Genotype, got {brief(rnn_type)}")
    elif rnn_type.lower() in KINDS:
        kind = rnn_type.lower()
    elif is_described(rnn_type):
        config = json.loads(rnn_type)
        kind = config.get("kind")
        genotype = None if kind else Genotype.from_dict(config["genotype"])
        options |= {name: config[name] for name in LAYER_OPTIONS if name in config}
    else:
        genotype, numbers = parse_layer_spec(rnn_type, names, setting)
        options |= numbers
        if carries_gated_by_default(genotype, rnn_type):
            warnings.warn(
                "carry=gated, which is what genotype files of version 1 mean: what the layer keeps of its past can "
                f"grow without bound; with {setting}={rnn_type + ',carry=ungated'!r} it cannot",
                stacklevel=2,
            )
    try:
        if genotype is None:
            return ParallelRNN(input_size, hidden_size, kind, **options)
        return SearchedRNN(input_size, hidden_size, genotype, **{"init_range": init_range, **options})
    except ValueError as error:
        raise FlairNasError(f"cannot build {setting} {rnn_type!r}: {error}") from None


def describe_rnn(rnn: RecurrentLayer | SublayerTransformer) -> str:
    """Return an `rnn_type` with the genotype, kind or order of a layer and its dropouts. It opens no file."""
    if isinstance(rnn, SublayerTransformer):
        return rnn.order.spec()
    config, names = rnn.config(), (*LAYER_OPTIONS, "genotype", "kind")
    return json.dumps({"format": _CONFIG_FORMAT, **{name: config[name] for name in names if name in config}})


def is_described(rnn_type: str) -> bool:
    """Return True if an `rnn_type` is a result of `describe_rnn`."""
    return rnn_type.lstrip().startswith("{") and _CONFIG_FORMAT in rnn_type


def name_in_order(members: Sequence[TokenEmbeddings]) -> None:
    """Prefix the names of a stack's members with numbers, except names that Flair does not save.

    A loaded stack then joins its vectors in the same order as before. Call it before training. Members that would have
    the same name after loading are refused.
    """
    from flair.embeddings.token import FastTextEmbeddings, HashEmbeddings, OneHotEmbeddings, PooledFlairEmbeddings

    nameless = (OneHotEmbeddings, PooledFlairEmbeddings, HashEmbeddings)  # Flair 0.15 does not save their names
    for number, member in enumerate(members):
        name = re.sub(r"^\d+-", "", member.name)
        if isinstance(member, FastTextEmbeddings):
            member.name = FAST_TEXT
        else:
            member.name = name if isinstance(member, nameless) else f"{number}-{name}"
    for name, count in Counter(member.name for member in members).items():
        if count > 1:
            fault = f"{count} embeddings of the stack would be called {name!r} after loading, as Flair saves no names"
            raise FlairNasError(f"{fault} of these; leave out all but one")
