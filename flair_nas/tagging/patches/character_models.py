"""Searched layers in Flair's character language models and in the embeddings made of them.

`LanguageModel(recurrent_type=...)` takes a layer spec. Saved models hold the genotype itself and import flair_nas when
they are loaded. `FlairEmbeddings.to_params` saves two parameters that Flair 0.15 leaves out, for all types of layer.
"""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch import nn

from flair_nas.genotype import Genotype
from flair_nas.nn.init import papers_range
from flair_nas.nn.layers import TEXT_LAYERS
from flair_nas.nn.recurrent_layer import RecurrentLayer
from flair_nas.nn.state import RecurrentState
from flair_nas.tagging.registration import SavedText, build_rnn, describe_rnn

if TYPE_CHECKING:
    from flair.embeddings import FlairEmbeddings
    from flair.models import LanguageModel


LayerText = SavedText
"""The class of a model's `recurrent_type`, by the name that saved models refer to."""


def register(module: ModuleType) -> None:
    """Wrap the function of `flair.models.language_model` that builds layers, and two methods of `LanguageModel`."""
    from flair.nn.recurrent import rnn_layers

    flair_builder = module.create_recurrent_layer

    @functools.wraps(flair_builder)
    def create_recurrent_layer(
        layer_type: str | Genotype,
        initial_size: int,
        hidden_size: int,
        nlayers: int,
        dropout: float = 0.0,
        **options: Any,
    ) -> tuple[nn.Module, int]:
        name = layer_type.lower() if isinstance(layer_type, str) else ""
        if name in rnn_layers:
            sizes = (initial_size, hidden_size, nlayers, dropout)
            built: tuple[nn.Module, int] = flair_builder(layer_type, *sizes, **options)
            return built
        between = dropout if nlayers > 1 else 0.0
        settings: dict[str, Any] = {"batch_first": False, "names": TEXT_LAYERS, "setting": "recurrent_type"}
        if hidden_size > 0:  # the layer refuses other sizes
            settings["init_range"] = papers_range(hidden_size)
        layer = build_rnn(layer_type, initial_size, hidden_size, nlayers, dropout=between, **{**settings, **options})
        return layer, 1  # its state is one object

    model = module.LanguageModel
    init, repackage = model.__init__, model.repackage_hidden

    @functools.wraps(init)
    def make(self: LanguageModel, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if isinstance(self.rnn, RecurrentLayer):
            self.recurrent_type = SavedText(describe_rnn(self.rnn))

    @functools.wraps(repackage)
    def repackage_hidden(self: LanguageModel, h: Any) -> Any:
        if isinstance(h, RecurrentState):
            return h.map(lambda tensor: tensor.detach().clone())
        return repackage(self, h)

    vars(module)["create_recurrent_layer"] = create_recurrent_layer
    model.__init__, model.repackage_hidden = make, repackage_hidden


def _name_of(model: LanguageModel, layer: str) -> str:
    """Return Flair's name for embeddings of a model without a file. Flair always names the layer LSTM."""
    return f"Task-{layer}-{model.hidden_size}-{model.nlayers}-{model.is_forward_lm}"


def register_embeddings(module: ModuleType) -> None:
    """Let `FlairEmbeddings` of `flair.embeddings.token` load safetensors files, and name and save searched layers."""
    embeddings = module.FlairEmbeddings
    init, to_params = embeddings.__init__, embeddings.to_params
    signature = inspect.signature(init)

    @functools.wraps(init)
    def make(self: FlairEmbeddings, *args: Any, **kwargs: Any) -> None:
        arguments = signature.bind(self, *args, **kwargs).arguments
        model = arguments["model"]
        if isinstance(model, (str, Path)) and Path(model).suffix.lower() == ".safetensors":
            from flair_nas.tagging.data.character_models import load_character_model

            arguments["name"] = arguments.get("name") or str(model)
            arguments["model"] = load_character_model(model, arguments.get("has_decoder", False))
        init(**arguments)
        if isinstance(self.lm.rnn, RecurrentLayer) and self.name == _name_of(self.lm, "LSTM"):
            self.name = _name_of(self.lm, type(self.lm.rnn).__name__)

    @functools.wraps(to_params)
    def save_params(self: FlairEmbeddings) -> dict[str, Any]:
        params: dict[str, Any] = to_params(self)
        params["model_params"]["recurrent_type"] = self.lm.recurrent_type
        return {**params, "with_whitespace": self.with_whitespace}

    embeddings.__init__, embeddings.to_params = make, save_params
