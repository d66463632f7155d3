"""Taggers as data in a folder: ``model.safetensors`` and ``config.json``. Loading them runs no code.

Embeddings are rebuilt from their parameters, if these are plain data and dictionaries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

import flair
import torch
from flair.data import Dictionary
from flair.models import SequenceTagger
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from flair_nas.errors import FlairNasError, brief, shown
from flair_nas.nn.layers import is_named
from flair_nas.storage.files import hash_data, hash_file, whole_file, write_text
from flair_nas.storage.paths import read_file
from flair_nas.tagging.quiet import OF_ALL_WORDS, no_flair_remarks
from flair_nas.tagging.registration import SAVED_KEY, is_described
from flair_nas.version import __version__

FORMAT, VERSION = "flair-nas/tagger", 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"
SUFFIX = ".safetensors"
"""The suffix of files that run no code. Capitals count as small letters."""
_MAX_BYTES = 500_000_000  # of config.json, which holds the words of word vectors
_LANGUAGE_MODEL = dict(
    dictionary=Dictionary, is_forward_lm=bool, hidden_size=int, nlayers=int, embedding_size=int, nout=(int, NoneType),
    document_delimiter=str, dropout=(int, float), has_decoder=bool, recurrent_type=str,
)  # fmt: skip
_KINDS: dict[str, dict[str, Any]] = {
    "StackedEmbeddings": dict(embeddings=list),
    "WordEmbeddings": dict(
        vocab=dict, stable=bool, fine_tune=bool, force_cpu=bool, field=(str, NoneType), name=str, embedding_length=int
    ),
    "EnglishEmbeddings": dict(name=str, checksum=str),
    "SubwordEmbeddings": dict(name=str, size=int, width=int),
    "CharacterEmbeddings": dict(path_to_char_dict=Dictionary, char_embedding_dim=int, hidden_size_char=int, name=str),
    "CharacterRNNEmbeddings": dict(alphabet=str, embedding_length=int, name=str),
    "OneHotEmbeddings": dict(vocab_dictionary=Dictionary, field=str, embedding_length=int, stable=bool),
    "HashEmbeddings": dict(num_embeddings=int, embedding_length=int, hash_method=str),
    "FlairEmbeddings": dict(
        fine_tune=bool,
        chars_per_chunk=int,
        is_lower=bool,
        tokenized_lm=bool,
        name=str,
        with_whitespace=bool,
        model_params=_LANGUAGE_MODEL,
    ),
    "PooledFlairEmbeddings": dict(pooling=str, only_capitalized=bool, contextual_embeddings=dict),
}
"""Embeddings that can be rebuilt from data, with the types of their parameters.

Types are checked because Flair also takes a path in place of a dictionary, and reads a pickle from there.
"""
_MAKERS = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.arange, torch.eye}
_SETTINGS: dict[str, Any] = dict(
    tag_type=str, tag_format=str, tag_dictionary=Dictionary, rnn_type=str, hidden_size=int, rnn_layers=int,
    use_rnn=bool, use_crf=bool, use_dropout=(int, float), use_word_dropout=(int, float),
    use_locked_dropout=(int, float), reproject_embeddings=(bool, int), weight_dict=(dict, NoneType),
    train_initial_hidden_state=bool,
)  # fmt: skip


class NotDataError(FlairNasError):
    """An error for a tagger that is not made of data alone."""


def holds_safe_tagger(folder: Path) -> bool:
    """Return True if a folder has both files that `write_safe` writes; refuse a folder with only one of them."""
    there = [(folder / name).exists() for name in (CONFIG, WEIGHTS)]
    if any(there) and not all(there):
        name, missing = (CONFIG, WEIGHTS) if there[0] else (WEIGHTS, CONFIG)
        remedy = f"give it back, or delete {name} to have model.pt read, which is a pickle"
        raise FlairNasError(f"{folder}: {name} is there without {missing}; {remedy}")
    return all(there)


def forget_safe(folder: Path) -> None:
    """Remove the files of `write_safe`, since `load_tagger` prefers them to ``model.pt``."""
    for name in (CONFIG, WEIGHTS):
        (folder / name).unlink(missing_ok=True)


def write_safe(tagger: SequenceTagger, folder: Path) -> None:
    """Write a tagger to a folder as data, in place of the former one.

    Raise NotDataError if it cannot be rebuilt from data.
    """
    try:
        written, weights = _describe(tagger)
    except NotDataError:
        forget_safe(folder)
        raise
    with whole_file(folder / WEIGHTS) as temporary:  # both are whole before either takes its place
        save_file(weights, temporary, {"format": "pt"})
        written["weights"] = {"file": WEIGHTS, "sha256": hash_file(temporary)}
        write_text(folder / CONFIG, json.dumps(written | {"sha256": hash_data(written)}, ensure_ascii=False))


def _describe(tagger: SequenceTagger) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the contents of ``config.json`` but the checksums, and the weights."""
    if type(tagger) is not SequenceTagger:
        raise NotDataError(f"a {type(tagger).__name__} is not known here")
    state = tagger._get_state_dict()
    settings = {name: _to_data(state[name], name) for name in _SETTINGS}
    embeddings = _to_data(state["embeddings"], "embeddings")
    _check_tagger(state, state["embeddings"])
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state["state_dict"].items()}
    written = {
        "format": FORMAT,
        "version": VERSION,
        "flair_nas": __version__,
        "flair": flair.__version__,
        "settings": settings | {"bidirectional": state.get(SAVED_KEY, {}).get("bidirectional", True)},
        "embeddings": embeddings,
    }
    return written, weights


def read_safe(folder: Path) -> SequenceTagger:
    """Read a tagger that `write_safe` wrote, without running any code from the files."""
    path = folder / CONFIG
    try:
        config = json.loads(read_file(path, _MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise FlairNasError(f"{path}: is damaged or cannot be read ({shown(error)})") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise FlairNasError(f"{path}: is no tagger of flair-nas: expected a format {FORMAT}")
    if config.get("version") != VERSION:
        raise FlairNasError(f"{path}: version {brief(config.get('version'))} is not known here; update flair-nas")
    if config.pop("sha256", None) not in (None, hash_data(config)):  # former files have none
        raise FlairNasError(f"{path}: is damaged, its checksum does not match; give the file back")
    try:
        settings = config["settings"]
        if hash_file(folder / WEIGHTS) != config["weights"]["sha256"]:
            raise FlairNasError(f"{folder / WEIGHTS}: is damaged, or of another tagger than {CONFIG}; give both back")
        state = {name: _from_data(settings[name]) for name in _SETTINGS}
        embeddings = _from_data(config["embeddings"])
        _check_tagger(state, embeddings)
        weights = load_file(folder / WEIGHTS)
        state |= {"embeddings": embeddings, "state_dict": weights}
        state[SAVED_KEY] = {"bidirectional": settings["bidirectional"]}
        sizes = f"hidden_size {settings['hidden_size']}, rnn_layers {settings['rnn_layers']} and others"
        with no_flair_remarks(*OF_ALL_WORDS), SizeLimit(weights, sizes):
            return SequenceTagger.load(state)
    except NotDataError as error:
        raise FlairNasError(f"{path}: {error}") from None
    except (FlairNasError, MemoryError, FileNotFoundError):  # a bundled resource may be missing
        raise
    except Exception as error:  # from Flair, for unexpected content
        raise FlairNasError(f"{folder}: {CONFIG} and {WEIGHTS} are no whole tagger ({shown(error)})") from None


class SizeLimit(TorchFunctionMode):
    """A limit on the tensors that building a tagger may make, set by the weights in its file."""

    def __init__(self, weights: Mapping[str, Tensor], sizes: str) -> None:
        super().__init__()
        self.held, self.sizes = sum(tensor.numel() for tensor in weights.values()), sizes
        # Flair makes some twice, and 400 MB or 1,000 small ones take a second
        self.numbers, self.tensors = 4 * self.held + 10**8, 2 * len(weights) + 1000

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count the numbers and tensors that a function will make, and refuse too many."""
        kwargs = kwargs or {}
        if function in _MAKERS:
            self.numbers -= function(*args, **{**kwargs, "device": "meta"}).numel()
            self.tensors -= 1
            if min(self.numbers, self.tensors) < 0:
                raise NotDataError(f"{self.sizes} want more than the {self.held:,} weights in the file; give it back")
        return function(*args, **kwargs)


def _check_tagger(state: Mapping[str, Any], embeddings: object) -> None:
    """Refuse settings and embeddings that are more than data to Flair or `build_rnn`."""
    _check_types({name: state[name] for name in _SETTINGS}, _SETTINGS, "a tagger")
    check_self_contained(state["rnn_type"], "rnn_type")
    _check_embeddings(embeddings)


def _check_embeddings(embeddings: object) -> None:
    """Refuse embeddings of unknown kinds, and parameters of unknown names or types."""
    parameters = dict(embeddings) if isinstance(embeddings, Mapping) else {}
    kind = parameters.pop("__cls__", None)
    _check_kind(kind)
    if kind == "FlairEmbeddings" and isinstance(model := parameters.get("model_params"), Mapping):
        # older files lack what Flair leaves out
        parameters = {"with_whitespace": True, **parameters, "model_params": {"recurrent_type": "LSTM", **model}}
    _check_types(parameters, _KINDS[kind], kind)
    if kind == "StackedEmbeddings":
        for member in parameters["embeddings"]:
            _check_embeddings(member)
    elif kind == "PooledFlairEmbeddings":
        _check_embeddings(parameters["contextual_embeddings"])
    elif kind == "FlairEmbeddings":
        check_self_contained(parameters["model_params"]["recurrent_type"])


def _check_kind(kind: str | None) -> None:
    if kind not in _KINDS:
        if kind == "TransformerWordEmbeddings":
            raise NotDataError(f"{kind} cannot be rebuilt from data, as usual for transformers")
        known = ", ".join(_KINDS)
        raise NotDataError(f"{kind or 'what is no embedding'} cannot be rebuilt from data; known are {known}")


def check_self_contained(layer: str, setting: str = "recurrent_type") -> None:
    """Refuse a layer spec that opens a file or an address."""
    if not is_named(layer) and not is_described(layer):
        raise NotDataError(f"{setting} {brief(layer)} is a name or an address; expected the layer itself")


def _check_types(values: Mapping[str, Any], types: Mapping[str, Any], owner: str) -> None:
    """Refuse values that are unknown, missing or of a wrong type."""
    if unknown := values.keys() - types.keys():
        raise NotDataError(f"{owner}.{min(unknown)} is not known here")
    for name, expected in types.items():
        if name not in values:
            raise NotDataError(f"{owner} lacks {name}")
        value = values[name]
        if isinstance(expected, dict):
            _check_types(value if isinstance(value, Mapping) else {}, expected, f"{owner}.{name}")
        elif not isinstance(value, expected):
            raise NotDataError(f"{owner}.{name} is of type {type(value).__name__}, which it cannot be")


def _to_data(value: object, name: str) -> Any:
    """Return a value as JSON data. A dictionary of Flair's becomes an object ``__dictionary__``."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Dictionary):
        flags = {flag: getattr(value, flag, False) for flag in ("add_unk", "multi_label", "span_labels")}
        try:
            return {"__dictionary__": {"items": [item.decode() for item in value.idx2item], **flags}}
        except UnicodeDecodeError:
            raise NotDataError(f"{name} has items that are no text") from None
    if isinstance(value, (list, tuple)):
        return [_to_data(item, name) for item in value]
    if isinstance(value, Mapping) and "__cls__" in value:
        _check_kind(value["__cls__"])
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _to_data(item, f"{name}.{key}") for key, item in value.items()}
    raise NotDataError(f"{name} is a {type(value).__name__}, which is no plain data")


def _from_data(value: Any) -> Any:
    """Return the value that `_to_data` turned into this JSON data."""
    if isinstance(value, list):
        return [_from_data(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"__dictionary__"} and isinstance(saved := value["__dictionary__"], dict):
        dictionary = Dictionary(add_unk=False)
        for item in saved["items"]:
            dictionary.add_item(item)
        for flag in ("add_unk", "multi_label", "span_labels"):
            setattr(dictionary, flag, bool(saved[flag]))
        return dictionary
    return {key: _from_data(item) for key, item in value.items()}
