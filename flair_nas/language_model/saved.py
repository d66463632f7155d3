"""Language models from settings, and trained ones in files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from flair_nas.errors import FlairNasError, shown
from flair_nas.genotype import Genotype
from flair_nas.genotype.order import is_order, parse_order
from flair_nas.language_model.config import LanguageModelConfig
from flair_nas.language_model.model import LanguageModel
from flair_nas.language_model.text.config import TextSettings
from flair_nas.language_model.text.corpus import END, MANY_UNKNOWN, UNKNOWN, Ids, Vocabulary, say_unknown, unknown_share
from flair_nas.language_model.text.sources import DEMO, TextSource, find_text
from flair_nas.language_model.variational import VariationalGRU, VariationalLSTM
from flair_nas.library.layer_spec import LAYER_OPTIONS, parse_layer_spec
from flair_nas.nn.init import papers_range
from flair_nas.nn.layers import TEXT_LAYERS, is_named
from flair_nas.nn.recurrent_layer import ParallelRNN
from flair_nas.nn.searched_rnn import SearchedRNN
from flair_nas.nn.sublayers import SublayerTransformer
from flair_nas.runs.checkpoints import verify_checksums
from flair_nas.runs.memory import check_fits
from flair_nas.settings.resolve import explain_other_run
from flair_nas.storage.files import whole_file
from flair_nas.storage.paths import check_model, user_path

_VARIATIONAL: dict[str, Callable[..., nn.Module]] = {"LSTM": VariationalLSTM, "GRU": VariationalGRU}
"""Layers in place of PyTorch's, which lack variational dropout."""

_FORMAT, _VERSION = "flair-nas/language-model", 1

Layer: TypeAlias = tuple[Genotype | None, dict[str, float]]
"""The genotype of the setting `rnn` and its options; None and no options for another layer."""


@dataclass(frozen=True, eq=False)
class SavedLanguageModel:
    """A trained language model."""

    model: LanguageModel  # the model, in evaluation mode
    vocabulary: Vocabulary  # its words, with their counts in the training part
    config: LanguageModelConfig  # the settings of its training
    genotype: Genotype | None  # the architecture of its layer; None for another layer
    origin: dict[str, Any]  # name and fingerprint of the text, epoch and validation loss


def parse_layer(config: LanguageModelConfig) -> Layer:
    """Parse the setting `rnn`."""
    if is_named(config.rnn, TEXT_LAYERS):
        return None, {}
    return parse_layer_spec(config.rnn, TEXT_LAYERS, "rnn")


def build_language_model(
    config: LanguageModelConfig, vocabulary_size: int, layer: Layer | None = None
) -> LanguageModel:
    """Return an untrained model. The caller seeds. Options of `layer` override settings of the same name."""
    genotype, options = layer or parse_layer(config)
    embedding_size = config.embedding_size or config.hidden_size
    dropouts = {"input_dropout": config.input_dropout, "recurrent_dropout": config.recurrent_dropout}
    make: Callable[..., nn.Module]
    try:
        if is_order(config.rnn):
            make, dropouts = partial(SublayerTransformer, order=parse_order(config.rnn, "rnn")), {}
        elif genotype is None:
            make = _VARIATIONAL.get(config.rnn.upper()) or partial(ParallelRNN, kind=config.rnn.lower())
        else:
            make = partial(SearchedRNN, genotype=genotype)
            options = {"init_range": config.init_range or papers_range(config.hidden_size)} | dropouts | options
        rnn = make(embedding_size, config.hidden_size, num_layers=config.layers, **(dropouts | options))
        names = ("dropout", "embedding_dropout", "word_dropout", "tied", "adaptive_cutoffs")
        settings = {name: getattr(config, name) for name in names} | {"init_range": config.embedding_init_range}
        return LanguageModel(vocabulary_size, embedding_size, config.hidden_size, rnn, **settings)
    except ValueError as error:
        raise FlairNasError(f"cannot build a language model of {vocabulary_size:,} types: {error}") from None


def save_language_model(saved: SavedLanguageModel, path: str | Path) -> None:
    """Write a model to a file that `load_language_model` reads."""
    layer = saved.model.layer
    data = {
        "format": _FORMAT,
        "version": _VERSION,
        "config": dataclasses.asdict(saved.config),
        "genotype": saved.genotype and saved.genotype.to_json(),
        "options": {name: getattr(layer, name) for name in LAYER_OPTIONS} if saved.genotype else {},
        "words": list(saved.vocabulary.words),
        "counts": list(saved.vocabulary.counts),
        "origin": saved.origin,
        "weights": saved.model.state_dict(),
    }
    with whole_file(path) as temporary:
        torch.save(data, temporary)


def load_language_model(source: str | Path, device: torch.device | str = "cpu") -> SavedLanguageModel:
    """Load a trained language model.

    Args:
        source: the folder of a training run, or its ``model.pt``.
        device: device of the weights.

    Raises:
        FlairNasError: the file does not exist or is no language model of flair-nas.

    Example:
        The folder is that of the example of `train_language_model`.

        >>> from flair_nas import load_language_model
        >>> saved = load_language_model("runs/words")
        >>> saved.genotype.one_line(), len(saved.vocabulary)
        ('tanh0', 200)
    """
    path = user_path(source)
    if path.is_dir():
        if not (path / "model.pt").exists():
            reason = explain_other_run(path, "lm train") or "so no epoch of a training run has ended there"
            raise FlairNasError(f"{path} holds no model.pt, {reason}")
        path = path / "model.pt"
    check_model(path)
    try:
        verify_checksums(path)
        data = torch.load(path, map_location=device, weights_only=True)
        if (data["format"], data["version"]) != (_FORMAT, _VERSION):
            raise ValueError(f"it is no {_FORMAT} of version {_VERSION}")
        config = LanguageModelConfig(**data["config"])
        genotype = Genotype.from_json(data["genotype"]) if data["genotype"] else None
        vocabulary = Vocabulary(tuple(data["words"]), tuple(data["counts"]))
        if not {UNKNOWN, END} <= {*vocabulary.words} or len(vocabulary) != len(vocabulary.counts):
            raise ValueError(f"its words lack {UNKNOWN} or {END}, or a count each")
        build = partial(build_language_model, config, len(vocabulary), (genotype, data["options"]))
        check_fits(build, torch.device(device), f"hidden_size {config.hidden_size}")
        model = build().to(device)
        model.load_state_dict(data["weights"])
    except MemoryError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything
        # the text of an UnpicklingError is long, and about settings of PyTorch
        reason = "it holds more than data, or is damaged" if isinstance(error, UnpicklingError) else shown(error)
        reason = explain_other_run(path.parent, "lm train") or reason
        raise FlairNasError(f"{path}: this is no language model that can be loaded: {reason}") from None
    return SavedLanguageModel(model.eval(), vocabulary, config, genotype, data["origin"])


def is_one_file(source: TextSource) -> bool:
    """Return True if a text is a single file, which has no parts."""
    return isinstance(source, (str, Path)) and source != DEMO and user_path(source).is_file()


def encode_text(
    source: TextSource, vocabulary: Vocabulary, settings: TextSettings | None = None, *, part: str = "test"
) -> Ids:
    """Return a part of a text as ids of a vocabulary, int32 [tokens]; warn if many tokens are unknown.

    Args:
        source: a text that `load_text` takes, or one file, which is read whole.
        vocabulary: the words that have ids.
        settings: the unit and case of the tokens.
        part: train, valid or test.
    """
    settings = settings or TextSettings()
    text = find_text(source)
    single = is_one_file(source)
    if not single and part not in text.parts:
        there = f"there are {', '.join(text.parts)} (--part {[*text.parts][-1]})"
        raise FlairNasError(f"text {text.name!r} has no {part} part; {there}")
    pieces = text.parts["train" if single else part].read(settings, lambda count: None)
    blocks = [vocabulary.encode(piece) for piece in pieces]
    if not blocks:
        raise FlairNasError(f"text {text.name!r} holds no words")
    ids = np.concatenate(blocks)
    if (share := unknown_share(ids, vocabulary)) > MANY_UNKNOWN:
        say_unknown(text.name, {"" if single else part: share}, settings.unit)
    return ids
