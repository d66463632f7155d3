"""Export of a tagger: raw sentences go in, and tags come out, without PyTorch and Flair."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import flair
import numpy as np
from flair.data import Dictionary
from flair.embeddings import CharacterEmbeddings, FlairEmbeddings, OneHotEmbeddings, TokenEmbeddings, WordEmbeddings
from flair.models import SequenceTagger
from numpy.typing import NDArray
from torch import nn

from flair_nas.errors import FlairNasError
from flair_nas.onnx.graph import OPSET, Graph, check_opset, to_array
from flair_nas.onnx.int8 import files_of_export
from flair_nas.onnx.layer import exportable, layer_metadata, state_shapes, write_layer, write_zero_state
from flair_nas.runtime.settings import FORMAT, MODEL, SETTINGS, TRANSITIONS, VERSION
from flair_nas.storage.files import hash_file, whole_file, write_text
from flair_nas.storage.folders import whole_files
from flair_nas.storage.paths import user_path
from flair_nas.tagging.data.frozen_embeddings import members_of
from flair_nas.version import __version__

log = logging.getLogger("flair_nas")


def export_tagger(tagger: SequenceTagger, folder: str | Path, *, opset: int = OPSET) -> list[str]:
    """Write a tagger as ONNX files and tables, for `flair_nas.onnx.Tagger`.

    Args:
        tagger: a trained tagger.
        folder: a folder that is new, empty or of an earlier export.
        opset: version of ONNX's operators.

    Returns:
        Names of embeddings that cannot be exported. `Tagger` takes functions in place of them.

    Raises:
        FlairNasError: the tagger, its layer or an opset cannot be exported, or the folder has other files or is in use.
        OSError: the folder cannot be written; an earlier export in it stays.
    """
    if type(tagger) is not SequenceTagger:
        raise FlairNasError(f"a {type(tagger).__name__} cannot be exported; Flair's SequenceTagger can")
    check_opset(opset)
    metadata = layer_metadata(exportable(tagger.rnn)) if tagger.use_rnn else {}
    tagger.eval()
    # Flair joins the vectors of a word in the order of their names
    members = sorted(members_of(tagger.embeddings), key=lambda member: str(member.name))
    with whole_files(user_path(folder), SETTINGS, files_of_export) as out:
        embeddings = [_export_embeddings(member, number, out, opset) for number, member in enumerate(members)]
        given = _name_given(embeddings, members)
        _write_head(tagger).save(out / MODEL, opset, metadata)
        crf = None
        if tagger.use_crf:
            _write_array(out / TRANSITIONS, to_array(tagger.crf.transitions).astype(np.float32))
            crf = [tagger.viterbi_decoder.start_tag, tagger.viterbi_decoder.stop_tag]
        settings = {
            "format": FORMAT,
            "version": VERSION,
            "flair_nas": __version__,
            "flair": flair.__version__,
            "label_type": tagger.label_type,
            "tags": tagger.label_dictionary.get_items(),
            "spans": tagger.predict_spans,
            "crf": crf,
            "width": tagger.embeddings.embedding_length,
            "embeddings": embeddings,
            "files": {file.name: hash_file(file) for file in sorted(out.iterdir())},
        }
        write_text(out / SETTINGS, json.dumps(settings))
    return given


def _write_head(tagger: SequenceTagger) -> Graph:
    """Return the graph from vectors of words to emissions."""
    graph = Graph(np.float32)
    data = x = graph.add_input("x", "batch", "time", tagger.embeddings.embedding_length)
    lengths = graph.add_ids("lengths", "batch")
    if tagger.reproject_embeddings:
        data = _write_linear(graph, tagger.embedding2nn, data)
    if tagger.use_rnn:
        layer = exportable(tagger.rnn)
        data, _ = write_layer(graph, layer, data, lengths, write_zero_state(graph, layer, x))
    emissions = _write_linear(graph, tagger.linear, data)
    graph.add_output(emissions, "emissions", "batch", "time", tagger.linear.out_features)
    return graph


def _write_linear(graph: Graph, linear: nn.Linear, data: str) -> str:
    product = graph.add("MatMul", data, graph.weight(to_array(linear.weight).T, "linear"))
    return graph.add("Add", product, graph.weight(to_array(linear.bias), "bias"))


def _export_embeddings(member: TokenEmbeddings, number: int, folder: Path, opset: int) -> dict[str, Any]:
    """Write the files of one of a tagger's embeddings and return its settings."""
    name = str(member.name).replace("\\", "/").rpartition("/")[2]
    stem = f"embeddings-{number}"
    width = {"name": name, "width": member.embedding_length}
    if type(member) is WordEmbeddings and member.field is None:
        keys = sorted(member.vocab, key=member.vocab.__getitem__)
        vectors = _normalise(member.embedding, member.layer_norm)
        return {"kind": "table", **width, **_write_table(folder, stem, keys, vectors), "loose": True}
    if type(member) is OneHotEmbeddings and member.field == "text":
        vectors = _normalise(member.embedding_layer, member.layer_norm)
        unknown = member.vocab_dictionary.get_idx_for_item("<unk>")
        vectors = np.concatenate([vectors, vectors[unknown : unknown + 1]])
        keys = member.vocab_dictionary.get_items()
        return {"kind": "table", **width, **_write_table(folder, stem, keys, vectors), "loose": False}
    if type(member) is CharacterEmbeddings:
        _write_word_characters(member).save(folder / f"{stem}.onnx", opset, layer_metadata(member.char_rnn))
        characters = _number_characters(member.char_dictionary)
        return {"kind": "characters", **width, "model": f"{stem}.onnx", "characters": characters}
    if type(member) is FlairEmbeddings:
        metadata = layer_metadata(exportable(member.lm.rnn))
        _write_language_model(member.lm).save(folder / f"{stem}.onnx", opset, metadata)
        options = ("is_forward_lm", "with_whitespace", "tokenized_lm", "is_lower", "chars_per_chunk")
        settings: dict[str, Any] = {option: getattr(member, option, False) for option in options}
        settings["start_marker"] = vars(member.lm).get("document_delimiter", "\n")
        characters = _number_characters(member.lm.dictionary)
        return {"kind": "language model", **width, "model": f"{stem}.onnx", "characters": characters, **settings}
    return {"kind": "given", **width}


def _name_given(embeddings: list[dict[str, Any]], members: list[TokenEmbeddings]) -> list[str]:
    """Give embeddings that cannot be exported names of their own, say which they are, and return the names."""
    given: list[str] = []
    for entry, member in zip(embeddings, members):
        if entry["kind"] == "given":
            if entry["name"] in given:
                entry["name"] += f", {sum(name.startswith(entry['name']) for name in given) + 1}"
            given.append(entry["name"])
            kind = type(member).__name__
            log.warning("%s %s cannot be exported; give vectors to Tagger as %r", kind, member.name, entry["name"])
    return given


def _normalise(embedding: nn.Embedding, norm: nn.Module | None) -> NDArray[Any]:
    """Return all vectors of a table as they enter the tagger, [rows, width]."""
    weight = embedding.weight.detach()
    return to_array(weight if norm is None else norm(weight)).astype(np.float32)


def _write_table(folder: Path, stem: str, keys: list[str], vectors: NDArray[Any]) -> dict[str, str]:
    if len(vectors) != len(keys) + 1:
        raise FlairNasError(f"a table of {len(vectors):,} vectors for {len(keys):,} words cannot be exported")
    names = {"keys": f"{stem}.json", "vectors": f"{stem}.npy"}
    write_text(folder / names["keys"], json.dumps(keys))
    _write_array(folder / names["vectors"], vectors)
    return names


def _write_array(path: Path, array: NDArray[Any]) -> None:
    with whole_file(path) as file, file.open("wb") as stream:
        np.save(stream, array)


def _number_characters(dictionary: Dictionary) -> dict[str, int]:
    return {item.decode("utf-8"): number for item, number in dictionary.item2idx.items()}


def _write_word_characters(member: CharacterEmbeddings) -> Graph:
    """Return the graph from the characters of words, [words, longest], to their vectors, [words, 2H].

    Flair takes the outputs of the last character. The backward direction has read that character alone by then.
    """
    graph = Graph(np.float32)
    ids, lengths = graph.add_ids("ids", "words", "longest"), graph.add_ids("lengths", "words")
    data = graph.add("Gather", graph.weight(to_array(member.char_embedding.weight), "characters"), ids)
    place = graph.add("Unsqueeze", graph.add("Sub", lengths, graph.weight([1])), graph.weight([1]))
    last = graph.add("Unsqueeze", graph.add("GatherND", data, place, batch_dims=1), graph.weight([1]))  # [words, 1, D]
    one = graph.add("Div", lengths, lengths)
    rnn = member.char_rnn
    ends = []
    for side, x, count in (("", data, lengths), ("_reverse", last, one)):
        layer = nn.LSTM(rnn.input_size, rnn.hidden_size)
        layer.load_state_dict({name: rnn.state_dict()[name + side] for name in layer.state_dict()})
        _, finals = write_layer(graph, layer, x, count, write_zero_state(graph, layer, x))
        ends.append(graph.take(finals["hidden"], 0))  # [words, H]
    graph.add_output(graph.add("Concat", *ends, axis=1), "vectors", "words", member.embedding_length)
    return graph


def _write_language_model(lm: Any) -> Graph:
    """Return the graph from characters, [B, T], and a state to the model's states, [B, T, H], and its last state."""
    graph, layer = Graph(np.float32), exportable(lm.rnn)
    shapes = state_shapes(layer)
    ids = graph.add_ids("ids", "batch", "time")
    states = {name: graph.add_input(name, *shape) for name, shape in shapes.items()}
    data = graph.add("Gather", graph.weight(to_array(lm.encoder.weight), "characters"), ids)
    lengths = graph.add("Expand", graph.shape(ids, 1), graph.shape(ids, 0))
    output, finals = write_layer(graph, layer, data, lengths, states)
    size = layer.hidden_size
    if lm.proj is not None:
        output, size = _write_linear(graph, lm.proj, output), lm.proj.out_features
    graph.add_output(output, "states", "batch", "time", size)
    for name, shape in shapes.items():
        graph.add_output(finals[name], f"{name}_out", *shape)
    return graph
