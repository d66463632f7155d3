"""Transformers with fixed weights, from a folder or the Hugging Face Hub."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from flair.embeddings import TransformerWordEmbeddings
from torch import nn

from flair_nas.errors import FlairNasError, brief, shown
from flair_nas.storage.paths import user_path
from flair_nas.tagging.data.frozen_embeddings import describe_state


def read_transformer(argument: str) -> TransformerWordEmbeddings:
    """Return a transformer, named after its folder and weights, or by its Hub name.

    Args:
        argument: a folder or a Hub name. Vectors are the mean of all layers, or those of the last one if
            ``,layers=last`` stands behind it.
    """
    match = None if user_path(argument).is_dir() else re.fullmatch(r"(.+),(\w+=.*)", argument)
    source, option = match.groups() if match else (argument, "")
    if option not in ("", "layers=last"):
        raise FlairNasError(f"unknown option {brief(option)}; layers=last is the only one")
    path = user_path(source)
    is_folder, layers = path.is_dir(), "-1" if option else "all"
    if not is_folder and (path.is_absolute() or source.startswith(".") or len(path.parts) > 2 or path.exists()):
        what = "is no folder" if path.exists() else "does not exist"
        raise FlairNasError(f"{path} {what}; give the folder of a transformer, or a Hub name")
    try:
        # a separator of contexts, which are not read here, would add a row of random weights
        member = TransformerWordEmbeddings(
            str(path) if is_folder else source, layers=layers, fine_tune=False, use_context_separator=False
        )
    except Exception as error:  # a damaged file can raise nearly anything
        if not is_folder:
            raise
        raise FlairNasError(f"{path} {_describe_fault(path)} ({shown(error)})") from error
    name = source
    if is_folder:
        member.base_model_name = member.model.config._name_or_path = path.resolve().name  # taggers show no more of it
        weights = repr(describe_state(member.model.state_dict())).encode()
        name = f"{member.base_model_name}-{hashlib.sha256(weights).hexdigest()[:6]}"  # others may be called alike
    member.name = f"transformer-{name}" + (f",{option}" if option else "")
    # taggers set all members to training, where a transformer has dropout
    member.model.register_forward_pre_hook(_evaluate)
    return member


def _evaluate(model: nn.Module, _: object) -> None:
    model.eval()


def _describe_fault(folder: Path) -> str:
    """Say what is wrong with a folder that could not be read as a transformer, and what to do."""
    parts = {
        "config.json": ("config.json",),
        "weights, such as model.safetensors": ("*.safetensors", "pytorch_model*.bin"),
        "tokenizer, such as tokenizer.json": ("tokenizer.json", "vocab*", "*.model"),
    }
    for part, patterns in parts.items():
        if not any(file for pattern in patterns for file in folder.glob(pattern)):
            return f"has no {part}; copy it from where the model comes from, or save model and tokenizer once more"
    return "has a file that is damaged, or of no transformer for PyTorch; copy or make it again"
