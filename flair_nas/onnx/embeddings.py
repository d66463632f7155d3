"""Embeddings of an exported tagger: their files, and their entries in its settings."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flair.data import Dictionary
from flair.embeddings import (
    CharacterEmbeddings,
    FlairEmbeddings,
    OneHotEmbeddings,
    TokenEmbeddings,
    TransformerWordEmbeddings,
    WordEmbeddings,
)
from numpy.typing import NDArray
from torch import nn

from flair_nas.errors import FlairNasError
from flair_nas.onnx.graph import Graph, to_array
from flair_nas.onnx.layer import exportable, layer_metadata, state_shapes, write_layer, write_linear
from flair_nas.onnx.transformer import NotExportableError, export_transformer
from flair_nas.storage.files import whole_file, write_text
from flair_nas.tagging.data.character_embeddings import CharacterRNNEmbeddings
from flair_nas.tagging.data.table_embeddings import EnglishEmbeddings, SubwordEmbeddings, TableEmbeddings

log = logging.getLogger("flair_nas")


class Place(NamedTuple):
    """Files that embeddings may write: ``FOLDER/STEM.*``, with operators of an opset."""

    folder: Path
    stem: str
    opset: int


def export_embeddings(member: TokenEmbeddings, place: Place) -> dict[str, Any]:
    """Write the files of one of a tagger's embeddings and return its settings, of the kind ``given`` if it has none."""
    name = str(member.name).replace("\\", "/").rpartition("/")[2]
    export = _EXPORTS.get(type(member))
    entry: dict[str, Any] = {"kind": "given"}
    if export and getattr(member, "field", None) in (None, "text"):
        try:
            entry = export(member, place)
        except NotExportableError as error:
            log.warning("%s", error)
    return {"name": name, "width": member.embedding_length, **entry}


def _export_word_vectors(member: WordEmbeddings, place: Place) -> dict[str, Any]:
    keys = sorted(member.vocab, key=member.vocab.__getitem__)
    vectors = _normalise(member.embedding, member.layer_norm)
    return {"kind": "table", **_write_table(place, keys, vectors), "loose": True}


def _export_one_hot(member: OneHotEmbeddings, place: Place) -> dict[str, Any]:
    vectors = _normalise(member.embedding_layer, member.layer_norm)
    unknown = member.vocab_dictionary.get_idx_for_item("<unk>")
    vectors = np.concatenate([vectors, vectors[unknown : unknown + 1]])
    return {"kind": "table", **_write_table(place, member.vocab_dictionary.get_items(), vectors), "loose": False}


def _export_word_table(member: TableEmbeddings, place: Place) -> dict[str, Any]:
    name = f"{place.stem}.safetensors"
    with whole_file(place.folder / name) as file:
        member.table.data.tofile(file)
    return {"kind": "words", "words": name}


def _export_characters(member: CharacterEmbeddings, place: Place) -> dict[str, Any]:
    """Write the graph from the characters of words, [words, longest], to their vectors, [words, 2H].

    Flair takes the outputs of the last character. The backward direction has read that character alone by then.
    """
    graph, rnn = Graph(np.float32), member.char_rnn
    ids, lengths = graph.add_ids("ids", "words", "longest"), graph.add_ids("lengths", "words")
    data = graph.add("Gather", graph.weight(to_array(member.char_embedding.weight), "characters"), ids)
    end = graph.add("Unsqueeze", graph.add("Sub", lengths, graph.weight([1])), graph.weight([1]))
    last = graph.add("Unsqueeze", graph.add("GatherND", data, end, batch_dims=1), graph.weight([1]))  # [words, 1, D]
    one = graph.add("Div", lengths, lengths)
    ends = []
    for side, x, count in (("", data, lengths), ("_reverse", last, one)):
        layer = nn.LSTM(rnn.input_size, rnn.hidden_size)
        layer.load_state_dict({name: rnn.state_dict()[name + side] for name in layer.state_dict()})
        _, finals = write_layer(graph, layer, x, count)
        ends.append(graph.take(finals["hidden"], 0))  # [words, H]
    graph.add_output(graph.add("Concat", *ends, axis=1), "vectors", "words", member.embedding_length)
    graph.save(_model(place), place.opset, layer_metadata(rnn))
    return {"kind": "characters", "model": _model(place).name, "characters": _number_characters(member.char_dictionary)}


def _export_character_layer(member: CharacterRNNEmbeddings, place: Place) -> dict[str, Any]:
    graph = Graph(np.float32)
    ids, lengths = graph.add_ids("ids", "words", "longest"), graph.add_ids("lengths", "words")
    data = graph.add("Gather", graph.weight(to_array(member.characters.weight), "characters"), ids)
    _, finals = write_layer(graph, member.layer, data, lengths)
    ends = [graph.take(finals["hidden"], direction) for direction in range(2)]  # [words, H] each
    graph.add_output(graph.add("Concat", *ends, axis=1), "vectors", "words", member.embedding_length)
    graph.save(_model(place), place.opset, layer_metadata(member.layer))
    return {"kind": "word characters", "model": _model(place).name, "characters": member.numbers}


def _export_language_model(member: FlairEmbeddings, place: Place) -> dict[str, Any]:
    """Write the graph from characters, [B, T], and a state to the model's states, [B, T, H], and its last state."""
    lm: Any = member.lm
    graph, layer = Graph(np.float32), exportable(lm.rnn)
    shapes = state_shapes(layer)
    ids = graph.add_ids("ids", "batch", "time")
    states = {name: graph.add_input(name, *shape) for name, shape in shapes.items()}
    data = graph.add("Gather", graph.weight(to_array(lm.encoder.weight), "characters"), ids)
    lengths = graph.add("Expand", graph.shape(ids, 1), graph.shape(ids, 0))
    output, finals = write_layer(graph, layer, data, lengths, states)
    size = layer.hidden_size
    if lm.proj is not None:
        output, size = write_linear(graph, lm.proj, output), lm.proj.out_features
    graph.add_output(output, "states", "batch", "time", size)
    for name, shape in shapes.items():
        graph.add_output(finals[name], f"{name}_out", *shape)
    graph.save(_model(place), place.opset, layer_metadata(layer))
    options = ("is_forward_lm", "with_whitespace", "tokenized_lm", "is_lower", "chars_per_chunk")
    settings: dict[str, Any] = {option: getattr(member, option, False) for option in options}
    settings["start_marker"] = vars(lm).get("document_delimiter", "\n")
    characters = _number_characters(lm.dictionary)
    return {"kind": "language model", "model": _model(place).name, "characters": characters, **settings}


def _export_transformer(member: TransformerWordEmbeddings, place: Place) -> dict[str, Any]:
    return export_transformer(member, _model(place), place.folder / f"{place.stem}-tokenizer.json")


_EXPORTS: dict[type, Callable[[Any, Place], dict[str, Any]]] = {
    WordEmbeddings: _export_word_vectors,
    OneHotEmbeddings: _export_one_hot,
    EnglishEmbeddings: _export_word_table,
    SubwordEmbeddings: _export_word_table,
    CharacterEmbeddings: _export_characters,
    CharacterRNNEmbeddings: _export_character_layer,
    FlairEmbeddings: _export_language_model,
    TransformerWordEmbeddings: _export_transformer,
}
"""Functions that write embeddings, by their class. Others have to be given."""


def _model(place: Place) -> Path:
    return place.folder / f"{place.stem}.onnx"


def _normalise(embedding: nn.Embedding, norm: nn.Module | None) -> NDArray[Any]:
    """Return all vectors of a table as they enter the tagger, [rows, width]."""
    weight = embedding.weight.detach()
    return to_array(weight if norm is None else norm(weight)).astype(np.float32)


def _write_table(place: Place, keys: list[str], vectors: NDArray[Any]) -> dict[str, str]:
    if len(vectors) != len(keys) + 1:
        raise FlairNasError(f"a table of {len(vectors):,} vectors for {len(keys):,} words cannot be exported")
    names = {"keys": f"{place.stem}.json", "vectors": f"{place.stem}.npy"}
    write_text(place.folder / names["keys"], json.dumps(keys))
    write_array(place.folder / names["vectors"], vectors)
    return names


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array as a file of NumPy, whole or not at all."""
    with whole_file(path) as file, file.open("wb") as stream:
        np.save(stream, array)


def _number_characters(dictionary: Dictionary) -> dict[str, int]:
    return {item.decode("utf-8"): number for item, number in dictionary.item2idx.items()}
