"""Export of a tagger: raw sentences go in, and tags come out, without PyTorch and Flair."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import flair
import numpy as np
from flair.embeddings import TokenEmbeddings
from flair.models import SequenceTagger

from flair_nas.errors import FlairNasError
from flair_nas.onnx.embeddings import Place, export_embeddings, write_array
from flair_nas.onnx.graph import OPSET, Graph, check_opset, to_array
from flair_nas.onnx.int8 import files_of_export
from flair_nas.onnx.layer import exportable, layer_metadata, write_layer, write_linear
from flair_nas.runtime.settings import FORMAT, MODEL, SETTINGS, TRANSITIONS, VERSION
from flair_nas.storage.files import hash_file, write_text
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
        embeddings = [
            export_embeddings(member, Place(out, f"embeddings-{number}", opset))
            for number, member in enumerate(members)
        ]
        given = _name_given(embeddings, members)
        _write_head(tagger).save(out / MODEL, opset, metadata)
        crf = None
        if tagger.use_crf:
            write_array(out / TRANSITIONS, to_array(tagger.crf.transitions).astype(np.float32))
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
    data = graph.add_input("x", "batch", "time", tagger.embeddings.embedding_length)
    lengths = graph.add_ids("lengths", "batch")
    if tagger.reproject_embeddings:
        data = write_linear(graph, tagger.embedding2nn, data)
    if tagger.use_rnn:
        data, _ = write_layer(graph, exportable(tagger.rnn), data, lengths)
    emissions = write_linear(graph, tagger.linear, data)
    graph.add_output(emissions, "emissions", "batch", "time", tagger.linear.out_features)
    return graph


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
