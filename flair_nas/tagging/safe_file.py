"""Taggers as data, which run no code when they are read: ``model.safetensors`` and ``config.json`` in one folder.

Embeddings are rebuilt from what Flair saves of them, as far as that is plain data and dictionaries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flair
from flair.data import Dictionary
from flair.embeddings import (
    CharacterEmbeddings,
    FlairEmbeddings,
    HashEmbeddings,
    OneHotEmbeddings,
    PooledFlairEmbeddings,
    StackedEmbeddings,
    WordEmbeddings,
)
from flair.models import SequenceTagger
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from flair_nas.device import check_fits
from flair_nas.errors import FlairNasError, brief, shown
from flair_nas.files import sum_of_file, whole_file, write_text
from flair_nas.paths import read_file
from flair_nas.tagging.quiet import OF_ALL_WORDS, no_flair_remarks
from flair_nas.tagging.registration import SAVED_KEY

FORMAT, VERSION = "flair-nas/tagger", 1
WEIGHTS, CONFIG = "model.safetensors", "config.json"
_MOST_BYTES = 500_000_000  # of config.json, which holds the words of word vectors
_KINDS = {
    kind.embeddings_name: kind
    for kind in (
        *(StackedEmbeddings, WordEmbeddings, CharacterEmbeddings, OneHotEmbeddings, HashEmbeddings),
        *(FlairEmbeddings, PooledFlairEmbeddings),
    )
}
"""The embeddings that are rebuilt from data alone, without network and without code of others."""
_SETTINGS = (
    *("tag_type", "tag_format", "tag_dictionary", "rnn_type", "hidden_size", "rnn_layers", "use_rnn", "use_crf"),
    *("use_dropout", "use_word_dropout", "use_locked_dropout", "reproject_embeddings", "weight_dict"),
    "train_initial_hidden_state",
)


class NotData(FlairNasError):
    """A tagger that is not made of data alone."""


def holds_safe_tagger(folder: Path) -> bool:
    """Whether a folder has what `write_safe` writes."""
    return (folder / CONFIG).is_file() and (folder / WEIGHTS).is_file()


def write_safe(tagger: SequenceTagger, folder: Path) -> None:
    """Writes a tagger as data; what was there of another one is replaced.

    Args:
        tagger: of any recurrent layer.
        folder: is there.

    Raises:
        NotData: it has embeddings that cannot be rebuilt from data; the message names them. What was there is gone.
        OSError: the folder cannot be written.
    """
    (folder / CONFIG).unlink(missing_ok=True)  # so that at no time it is of other weights than are there
    state = tagger._get_state_dict()
    if type(tagger) is not SequenceTagger:
        raise NotData(f"a {type(tagger).__name__} is not known here")
    settings = {name: _to_data(state[name], name) for name in _SETTINGS}
    bidirectional = state.get(SAVED_KEY, {}).get("bidirectional", True)
    embeddings = _to_data(state["embeddings"], "embeddings")
    _check_kinds(embeddings)
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state["state_dict"].items()}
    with whole_file(folder / WEIGHTS) as temporary:
        save_file(weights, temporary, {"format": "pt"})
    written = {
        "format": FORMAT,
        "version": VERSION,
        "flair": flair.__version__,
        "weights": {"file": WEIGHTS, "sha256": sum_of_file(folder / WEIGHTS)},
        "settings": settings | {"bidirectional": bidirectional},
        "embeddings": embeddings,
    }
    write_text(folder / CONFIG, json.dumps(written, ensure_ascii=False))


def read_safe(folder: Path) -> SequenceTagger:
    """Reads a tagger that `write_safe` wrote; whatever is in the files, none of it is run.

    Args:
        folder: that holds both files.

    Raises:
        FlairNasError: they are damaged, of different taggers, of a newer format or too large for this machine.
    """
    path = folder / CONFIG
    config = _config_in(folder)
    if config.get("version") != VERSION:
        raise FlairNasError(f"{path}: version {brief(config.get('version'))} is not known here; update flair-nas")
    try:
        wanted, settings = config["weights"]["sha256"], config["settings"]
        if sum_of_file(folder / WEIGHTS) != wanted:
            raise FlairNasError(f"{folder / WEIGHTS}: is damaged, or of another tagger than {CONFIG}; give both back")
        _check_kinds(config["embeddings"])
        check_fits(
            lambda: SequenceTagger.RNN(
                settings["rnn_type"], settings["rnn_layers"], settings["hidden_size"], settings["bidirectional"], 1
            ),
            flair.device,
            f"{path}: hidden_size {settings['hidden_size']}",
        )
        state = {
            **{name: _from_data(settings[name]) for name in _SETTINGS},
            "embeddings": _from_data(config["embeddings"]),
            "state_dict": load_file(folder / WEIGHTS),
            SAVED_KEY: {"bidirectional": settings["bidirectional"]},
        }
        with no_flair_remarks(*OF_ALL_WORDS):
            return SequenceTagger.load(state)
    except (FlairNasError, MemoryError):
        raise
    except SafetensorError as error:
        raise FlairNasError(f"{folder / WEIGHTS}: this is no safetensors file ({shown(error)})") from None
    except Exception as error:  # of Flair, which is given what a file holds
        raise FlairNasError(f"{path}: is not that of a whole tagger ({shown(error)})") from None


def _config_in(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        config = json.loads(read_file(path, _MOST_BYTES))
    except OSError as error:
        raise FlairNasError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise FlairNasError(f"{path}: is damaged, it is no JSON") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise FlairNasError(f"{path}: is no tagger of flair-nas: expected a format {FORMAT}")
    return config


def _check_kinds(embeddings: Any) -> None:
    """Refuses embeddings of other kinds than those known to be rebuilt from data."""
    if isinstance(embeddings, Mapping):
        kind = embeddings.get("__cls__")
        if kind is not None and kind not in _KINDS:
            raise NotData(f"{kind} cannot be rebuilt from data; known are {', '.join(_KINDS)}")
        for value in embeddings.values():
            _check_kinds(value)
    elif isinstance(embeddings, list):
        for value in embeddings:
            _check_kinds(value)


def _to_data(value: Any, name: str) -> Any:
    """What JSON can hold, dictionaries of Flair's among it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Dictionary):
        flags = {flag: getattr(value, flag, False) for flag in ("add_unk", "multi_label", "span_labels")}
        try:
            return {"__dictionary__": {"items": [item.decode() for item in value.idx2item], **flags}}
        except UnicodeDecodeError:
            raise NotData(f"{name} has items that are no text") from None
    if isinstance(value, (list, tuple)):
        return [_to_data(item, name) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _to_data(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, Mapping) and "__cls__" in value:
        name = str(value["__cls__"])
    raise NotData(f"{name} is a {type(value).__name__}, which is no plain data")


def _from_data(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_data(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"__dictionary__"} and isinstance(of_it := value["__dictionary__"], dict):
        dictionary = Dictionary(add_unk=False)
        for item in of_it["items"]:
            dictionary.add_item(item)
        for flag in ("add_unk", "multi_label", "span_labels"):
            setattr(dictionary, flag, bool(of_it[flag]))
        return dictionary
    return {key: _from_data(item) for key, item in value.items()}
