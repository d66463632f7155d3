"""Registers searched cells with Flair's `SequenceTagger` and `DocumentRNNEmbeddings`.

Flair chooses a recurrent layer by the name `rnn_type`; here the few methods that do so, and those that save the name,
learn about genotypes. Flair's own names take Flair's own way, but for the names of stacked embeddings (`stacking.py`).
A saved file carries the genotype in its `rnn_type`.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from flair_nas.nn.searched_rnn import SearchedRNN
from flair_nas.tagging.patches.once import once
from flair_nas.tagging.rnn_type import FLAIR_TYPES, build_rnn, describe_rnn

SAVED_KEY = "flair_nas"
"""The key of a saved model's state under which flair-nas keeps what Flair does not."""


class Width(int):
    """As `reproject_embeddings`: the width of the linear map, which Flair 0.15 knows as true or false alone.

    Any other number is true, as Flair has it. Saved models refer to this class, and so import flair_nas.
    """


def imported_by_file() -> None:
    """Does nothing; saved models refer to it, so that loading one imports flair_nas even where only Flair was."""


@once("SequenceTagger")
def register_sequence_tagger(tagger: Any) -> None:
    """Teaches `SequenceTagger` of `flair.models.sequence_tagger_model` about genotypes; once is enough."""
    flair_init, flair_rnn, flair_state_dict = tagger.__init__, tagger.RNN, tagger._get_state_dict
    flair_from_state = tagger._init_model_with_state_dict.__func__
    signature = inspect.signature(flair_init)

    @functools.wraps(flair_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs).arguments
        if not given.get("init_from_state_dict"):  # what has been trained reads its input in the order that it has
            from flair_nas.tagging.patches.stacked_embeddings import keep_order

            keep_order(given["embeddings"], refuse=given.get("rnn_type", "LSTM") not in FLAIR_TYPES)
        flair_init(self, *args, **kwargs)
        if isinstance(self.reproject_embeddings, Width):
            _narrow(self, self.reproject_embeddings)

    @functools.wraps(flair_rnn)
    def rnn(rnn_type: str, rnn_layers: int, hidden_size: int, bidirectional: bool, rnn_input_dim: int) -> Any:
        if rnn_type in FLAIR_TYPES:
            return flair_rnn(rnn_type, rnn_layers, hidden_size, bidirectional, rnn_input_dim)
        return build_rnn(
            rnn_type,
            input_size=rnn_input_dim,
            hidden_size=hidden_size,
            num_layers=rnn_layers,
            bidirectional=bidirectional,
            dropout=0.0 if rnn_layers == 1 else 0.5,  # as for Flair's own types
        )

    @functools.wraps(flair_state_dict)
    def state_dict(self: Any) -> dict[str, Any]:
        return _with_genotype(flair_state_dict(self), getattr(self, "rnn", None))

    @functools.wraps(flair_from_state)
    def from_state(cls: type, state: dict[str, Any], **kwargs: Any) -> Any:
        if SAVED_KEY in state:  # Flair saves everything but the directions
            kwargs["bidirectional"] = state[SAVED_KEY]["bidirectional"]
        state = {**state, "reproject_embeddings": _width_of(state)}
        return flair_from_state(cls, state, **kwargs)

    tagger.__init__ = init
    tagger.RNN = staticmethod(rnn)
    tagger._get_state_dict = state_dict
    tagger._init_model_with_state_dict = classmethod(from_state)


def _narrow(tagger: Any, width: int) -> None:
    """Puts a map to that width in place of Flair's, which is as wide as the embeddings, and a layer that reads it."""
    import flair
    import torch

    tagger.embedding2nn = torch.nn.Linear(tagger.embeddings.embedding_length, width)
    tagger.rnn = tagger.RNN(tagger.rnn_type, tagger.rnn_layers, tagger.hidden_size, tagger.bidirectional, width)
    tagger.to(flair.device)


def _width_of(state: Any) -> Any:
    """What a saved tagger has as `reproject_embeddings`, by its weights: saved as data, a `Width` is a mere number."""
    given = state.get("reproject_embeddings", True)
    weight = state["state_dict"].get("embedding2nn.weight")  # [width, length of the embeddings]
    wide = weight is None or not state.get("use_rnn", True) or weight.shape[0] == weight.shape[1]
    return given if wide else Width(weight.shape[0])


@once("DocumentRNNEmbeddings")
def register_document_embeddings(embeddings: Any) -> None:
    """Teaches `DocumentRNNEmbeddings` of `flair.embeddings.document` about genotypes; once is enough."""
    flair_init, flair_to_params = embeddings.__init__, embeddings.to_params
    signature = inspect.signature(flair_init)

    @functools.wraps(flair_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        rnn_type = bound.arguments["rnn_type"]
        if rnn_type in FLAIR_TYPES:
            flair_init(self, *args, **kwargs)
            return
        sizes = {name: bound.arguments[name] for name in ("hidden_size", "bidirectional")}
        build_rnn(rnn_type, input_size=1, hidden_size=1)  # an unknown name fails before Flair does any work
        bound.arguments["rnn_type"] = "GRU"
        flair_init(*bound.args, **bound.kwargs)
        from flair_nas.tagging.patches.stacked_embeddings import keep_order

        keep_order(self.embeddings)
        input_size = self.rnn.input_size
        rnn = build_rnn(rnn_type, input_size=input_size, num_layers=bound.arguments["rnn_layers"], **sizes)
        self.rnn = rnn.to(next(self.rnn.parameters()).device)
        self.rnn_type = rnn_type
        self.name = "document_" + self.rnn._get_name()
        self.eval()

    @functools.wraps(flair_to_params)
    def to_params(self: Any) -> dict[str, Any]:
        return _with_genotype(flair_to_params(self), self.rnn)

    embeddings.__init__ = init
    embeddings.to_params = to_params


@once("FastTextEmbeddings")
def register_fasttext_embeddings(embeddings: Any) -> None:
    """Has `FastTextEmbeddings` of `flair.embeddings.token` heed its argument `name`; once is enough.

    Flair 0.15 saves the name and does not take it back: a loaded one is called by a temporary file, by which a stack
    would be read in another order.
    """
    flair_init = embeddings.__init__

    @functools.wraps(flair_init)
    def init(self: Any, *args: Any, name: str | None = None, **kwargs: Any) -> None:
        flair_init(self, *args, name=name, **kwargs)
        self.name = name or self.name

    embeddings.__init__ = init


def _with_genotype(state: dict[str, Any], rnn: object) -> dict[str, Any]:
    if isinstance(rnn, SearchedRNN):
        state["rnn_type"] = describe_rnn(rnn)
        state[SAVED_KEY] = {"bidirectional": rnn.bidirectional, "import": imported_by_file}
    return state
