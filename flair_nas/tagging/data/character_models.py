"""Files of character models: Flair's own, which are pickles, and safetensors, which run no code."""

from __future__ import annotations

import hashlib
import json
import pickle
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flair.data import Dictionary
from flair.embeddings import FlairEmbeddings, PooledFlairEmbeddings, TokenEmbeddings
from flair.models import LanguageModel
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.serialization import MAGIC_NUMBER

from flair_nas.errors import FlairNasError, shown
from flair_nas.runs.checkpoints import verify_checksums
from flair_nas.runs.memory import is_out_of_memory
from flair_nas.settings.resolve import explain_other_run
from flair_nas.storage.files import hash_data, whole_file
from flair_nas.storage.paths import user_path
from flair_nas.tagging.safe_file import SUFFIX, SizeLimit, check_self_contained

FORMAT, VERSION = "flair-nas/character-model", 2
_OLDEST = 1
"""The first version, whose checksum covers the bytes of the weights alone."""
PICKLE, DATA = "model.pt", "model.safetensors"
_OLD_FORM = pickle.dumps(MAGIC_NUMBER, 2)[2:]
"""The beginning of files that `torch.save` wrote before PyTorch 1.6, after the number of the pickle protocol."""

_SETTINGS = ("is_forward_lm", "hidden_size", "nlayers", "embedding_size", "nout", "document_delimiter", "dropout")


def find_contextual(members: Iterable[TokenEmbeddings]) -> list[FlairEmbeddings]:
    """Return the embeddings of character models among members of a stack, pooled ones without their pooling."""
    inner = [m.context_embeddings if isinstance(m, PooledFlairEmbeddings) else m for m in members]
    return [member for member in inner if isinstance(member, FlairEmbeddings)]


def save_character_model(model: LanguageModel, folder: Path) -> None:
    """Write a model to an existing folder: ``model.pt``, for Flair, and ``model.safetensors``, which runs no code."""
    settings = {name: getattr(model, name) for name in _SETTINGS} | {"recurrent_type": str(model.recurrent_type)}
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    config = {"format": FORMAT, "version": VERSION, "settings": settings, "characters": model.dictionary.get_items()}
    config["sha256"] = _hash_model(config, weights)
    with whole_file(folder / DATA) as temporary:
        save_file(weights, temporary, {"flair_nas": json.dumps(config)})  # one entry: they have no fixed order
    with whole_file(folder / PICKLE) as temporary:
        model.save(temporary)


def load_character_model(source: str | Path, has_decoder: bool = True) -> LanguageModel:
    """Load a character language model of Flair's, on `flair.device` and in evaluation mode.

    Args:
        source: a ``.safetensors`` file, which runs no code; or a model of Flair's, which is a pickle and can.
        has_decoder: keep what predicts characters, which embeddings do not need.

    Raises:
        FlairNasError: there is no such file, or it is damaged or holds something else.

    Example:
        The folder is that of the example of `train_character_models`.

        >>> from flair.embeddings import FlairEmbeddings
        >>> from flair_nas import load_character_model
        >>> model = load_character_model("runs/characters/forward/model.safetensors")
        >>> FlairEmbeddings(model).embedding_length
        8
    """
    path = user_path(source)
    if path.is_dir():
        there = [file for file in (path / DATA, *sorted(path.glob(f"*/{DATA}"))) if file.exists()]
        other = explain_other_run(path, "charlm train")
        hint = f"; {other}" if other else f", such as {there[0]}" if there else ""
        raise FlairNasError(f"{path} is a folder; give a file of a model{hint}")
    if not path.exists():
        raise FlairNasError(f"{path}: there is no such file of a character model")
    try:
        if path.suffix.lower() == SUFFIX:
            return _read_data(path, has_decoder)
        if zipfile.is_zipfile(path):  # Flair's oldest models are not, and have no checksums
            verify_checksums(path)
        else:
            with open(path, "rb") as file:
                if _OLD_FORM not in file.read(64):
                    raise ValueError("it was not written by torch.save")
        model: LanguageModel = LanguageModel.load_language_model(path, has_decoder)
        return model
    except (FlairNasError, OSError):
        raise
    except Exception as error:  # a damaged file can raise nearly anything
        if is_out_of_memory(error):
            raise
        reason = explain_other_run(path.parent, "charlm train") or shown(error)
        raise FlairNasError(
            f"{path}: is cut short or damaged, or no character language model of Flair's ({reason})"
        ) from None


def _read_data(path: Path, has_decoder: bool) -> LanguageModel:
    try:
        with safe_open(path, "pt") as file:
            config = json.loads((file.metadata() or {}).get("flair_nas", "{}"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
    except SafetensorError as error:
        raise FlairNasError(f"{path}: this is no safetensors file, or cut short ({shown(error)})") from None
    if config.get("format") != FORMAT:
        raise FlairNasError(f"{path}: is no character model of flair-nas; its metadata has no format {FORMAT}")
    if config["version"] not in (_OLDEST, VERSION):
        raise FlairNasError(f"{path}: version {config['version']} is not known here; update flair-nas")
    if config["sha256"] != _hash_model(config, weights):
        raise FlairNasError(f"{path}: is damaged, its checksum does not match; give the file back")
    if not has_decoder:
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith("decoder.")}
    dictionary = Dictionary(add_unk=False)
    for item in config["characters"]:
        dictionary.add_item(item)
    dictionary.add_unk = "<unk>" in config["characters"]
    settings: dict[str, Any] = {name: config["settings"][name] for name in (*_SETTINGS, "recurrent_type")}
    try:
        check_self_contained(settings["recurrent_type"])
        with SizeLimit(weights, f"hidden_size {settings['hidden_size']} and others"):
            model = LanguageModel(dictionary, **settings, has_decoder="decoder.weight" in weights)
    except FlairNasError as error:
        raise FlairNasError(f"{path}: {error}") from None
    model.load_state_dict(weights)
    model.eval()
    return model


def _hash_model(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of a model: its settings, characters and weights, with their names, dtypes and shapes."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(weights[name].numpy().tobytes())
    if config["version"] == _OLDEST:
        return digest.hexdigest()
    form = {name: [str(weight.dtype), *weight.shape] for name, weight in weights.items()}
    described = {name: value for name, value in config.items() if name != "sha256"}
    return hash_data({**described, "weights": form, "bytes": digest.hexdigest()})
