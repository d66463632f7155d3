"""Transformers of exported taggers: their graph, their tokenizer, and what keeps one from an export."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import torch
from flair.embeddings import TransformerWordEmbeddings
from torch import Tensor, nn

from flair_nas.errors import FlairNasError, shown
from flair_nas.onnx.graph import OPSET
from flair_nas.runtime.model import Model
from flair_nas.storage.files import write_text

_ERROR = 1e-3
"""Largest difference to PyTorch of a file that PyTorch wrote right; vectors are of the size of 1."""


class NotExportableError(FlairNasError):
    """An error for embeddings whose vectors have to be given to an exported tagger."""


def export_transformer(member: TransformerWordEmbeddings, model: Path, tokenizer: Path) -> dict[str, Any]:
    """Write a transformer and its tokenizer, and return its settings.

    Args:
        member: the embeddings, frozen or not.
        model: file of the graph from pieces of words, [B, T], and their mask to vectors of pieces, [B, T, width].
        tokenizer: file of the tokenizer.

    Raises:
        NotExportableError: the embeddings have an option that is not exported, or PyTorch cannot export the model.
    """
    if obstacle := _find_obstacle(member):
        raise NotExportableError(f"embeddings {member.name} {obstacle}")
    with torch.no_grad():
        _write_graph(member, model)
    write_text(tokenizer, member.tokenizer.backend_tokenizer.to_str())
    return {
        "kind": "transformer",
        "model": model.name,
        "tokenizer": tokenizer.name,
        "max_length": member.tokenizer.model_max_length if member.truncate else None,
        "stride": member.stride if member.allow_long_sentences else None,
        "truncation_side": member.tokenizer.truncation_side,
        "padding": member.tokenizer.pad_token_id,
    }


def _find_obstacle(member: Any) -> str:
    """Return the option that is not exported, or an empty text."""
    pooling, inputs = member.subtoken_pooling, member.tokenizer.model_input_names
    obstacles = {
        "read neighbouring sentences (use_context)": member.context_length > 0,
        f"pool pieces of words by {pooling} (subtoken_pooling)": pooling != "first",
        "have no fast tokenizer": not member.tokenizer.is_fast,
        "have other inputs than pieces of words": member.use_lang_emb
        or member.tokenizer_needs_ocr_boxes
        or member.needs_manual_ocr
        or member.feature_extractor is not None
        or "attention_mask" not in inputs,
        "pad at the left": member.tokenizer.padding_side != "right" or member.tokenizer.pad_token_id is None,
        f"have weights in {member.model.dtype}": member.model.dtype != torch.float32,
    }
    return next((text for text, holds in obstacles.items() if holds), "")


class _States(nn.Module):
    """The vectors of pieces of words: the mean of a transformer's layers, or all of them joined."""

    def __init__(self, member: Any) -> None:
        super().__init__()
        self.model, self.layers, self.has_mean = member.model, member.layer_indexes, member.layer_mean

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        layers = self.model(ids, attention_mask=mask)[-1]
        chosen = [layers[number] for number in self.layers]  # [B, T, D] each
        return torch.stack(chosen).mean(dim=0) if self.has_mean else torch.cat(chosen, dim=-1)


def _write_graph(member: Any, path: Path) -> None:
    """Write the graph by PyTorch's exporter, and compare the file with the model on pieces of other numbers."""
    states, kind = _States(member).eval(), type(member.model).__name__
    words = [["a"] * 5, ["a", "b"]], [["a", "b"], ["a"], ["c"] * 9]
    (example, mask), (other, other_mask) = (_read_pieces(member, some) for some in words)
    axes = {name: {0: "batch", 1: "time"} for name in ("ids", "mask", "states")}
    # the exporter without torch.export: it needs no further package, and all versions of PyTorch have it
    options: dict[str, Any] = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                states,
                (example, mask),
                str(path),
                input_names=["ids", "mask"],
                output_names=["states"],
                dynamic_axes=axes,
                opset_version=OPSET,
                **options,
            )
        inputs = {"ids": other.cpu().numpy(), "mask": other_mask.cpu().numpy()}
        (found,) = Model(path, 1).run(["states"], inputs)
    except Exception as error:  # the exporter can raise nearly anything
        path.unlink(missing_ok=True)
        raise NotExportableError(f"embeddings {member.name}: PyTorch cannot export a {kind} ({shown(error)})") from None
    difference = (states(other, other_mask).cpu() - torch.from_numpy(found)).abs()[other_mask.cpu() > 0].max()
    if not difference < _ERROR:
        path.unlink()
        raise NotExportableError(
            f"embeddings {member.name}: PyTorch exports a {kind} that differs by {difference:.1e} from the model"
        )


def _read_pieces(member: Any, sentences: list[list[str]]) -> tuple[Tensor, Tensor]:
    """Return the pieces of sentences and their mask, [B, T] each."""
    read = member.tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    return read["input_ids"].to(member.model.device), read["attention_mask"].to(member.model.device)
