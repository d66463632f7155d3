"""Checks of what the recipes of docs/architecture.md add, in a copy of the package: prints the outcome of each as JSON.

Its arguments are the engines that this machine has.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from flair.data import Dictionary, Sentence
from flair.embeddings import OneHotEmbeddings
from flair.models import LanguageModel, SequenceTagger
from killing import write_text
from torch import nn

import flair_nas
from flair_nas import Genotype, SearchConfig, SearchedRNN, load_genotype, random_genotype, search_genotype
from flair_nas.cli import main
from flair_nas.genotype import GATE_FORMS, OPERATIONS, neighbours
from flair_nas.genotype.complexity import multiply_adds
from flair_nas.genotype.graph import to_text
from flair_nas.genotype.picture import to_dot, to_png, to_svg
from flair_nas.library.layer_spec import parse_layer_spec
from flair_nas.onnx import Tagger, export_layer, export_tagger
from flair_nas.supernet import CellSupernet
from flair_nas.tagging.registration import build_rnn

WORDS = ["Ada", "saw", "London", "in", "May"]


def results(engine: str, make: Callable[[], Any]) -> list[torch.Tensor]:
    """Return output and gradients of a layer by an engine."""
    os.environ["FLAIR_NAS_KERNELS"] = engine
    torch.manual_seed(1)
    layer = make().double()
    output = layer(torch.randn(5, 2, 3, dtype=torch.float64))[0]
    return [output, *torch.autograd.grad(output.square().sum(), list(layer.parameters()))]


def check_engines(make: Callable[[], Any]) -> None:
    """Check that every engine equals the equations, in value and gradient."""
    expected = results("plain", make)
    for engine in sys.argv[1:]:
        for value, wanted in zip(results(engine, make), expected, strict=True):
            torch.testing.assert_close(value, wanted, rtol=1e-10, atol=1e-12)
    os.environ.pop("FLAIR_NAS_KERNELS")


def check_export(layer: nn.Module) -> None:
    """Check that an exported layer computes what the layer does."""
    export_layer(layer.eval(), "layer.onnx")
    session = onnxruntime.InferenceSession("layer.onnx", providers=["CPUExecutionProvider"])
    x, feeds = torch.randn(2, 4, 3, dtype=torch.float64), {"lengths": np.array([4, 4])}
    for value in session.get_inputs()[2:]:
        feeds[value.name] = np.zeros([size if isinstance(size, int) else 2 for size in value.shape])
    found = session.run(["y"], {"x": x.numpy(), **feeds})[0]
    np.testing.assert_allclose(found, layer(x.transpose(0, 1))[0].transpose(0, 1).detach().numpy(), atol=1e-12)


def check_tagger(rnn: str) -> None:
    """Check that a tagger trains, is saved, loaded and exported, and tags as before."""
    words, tags = Dictionary(), Dictionary(add_unk=False)
    for word in WORDS:
        words.add_item(word)
    for tag in ("O", "PER", "LOC"):
        tags.add_item(tag)
    torch.manual_seed(1)
    tagger = SequenceTagger(OneHotEmbeddings(words, embedding_length=3), tags, "pos", hidden_size=4, rnn_type=rnn)
    sentence = Sentence(WORDS)
    for token in sentence:
        token.add_label("pos", "PER")
    tagger.forward_loss([sentence])[0].backward()
    assert all(weight.grad is not None for weight in tagger.rnn.parameters())
    tagger.eval().save("tagger.pt")
    export_tagger(tagger, "exported")
    by_export = [span.label for span in Tagger("exported").find_spans([WORDS])[0]]
    for model in (tagger, SequenceTagger.load("tagger.pt")):
        sentence = Sentence(WORDS)
        model.predict(sentence)
        assert [label.value for label in sentence.get_labels("pos") if label.value != "O"] == by_export


def check_cell(line: str, form: str, name: str) -> None:
    """Check a genotype with an addition: computed, written, exported, drawn, counted, mutated and used in a tagger."""
    genotype = dataclasses.replace(load_genotype(line), gate=form)
    assert Genotype.parse(genotype.to_json()).options == parse_layer_spec(genotype.spec())[0].options
    check_engines(lambda: SearchedRNN(3, 4, genotype, init_range=0.5))
    check_engines(lambda: CellSupernet(3, 4, 2, history=2, gate=form, init_range=0.5))
    check_export(SearchedRNN(3, 4, genotype, init_range=0.5, dtype=torch.float64))
    for written in (to_text(genotype), to_text(genotype, coloured=True), to_dot(genotype), to_svg(genotype)):
        assert name in written, written
    assert to_png(genotype) and multiply_adds(genotype, 3, 4) > 0
    genotype.save("cell.json")
    shown = said(["genotypes", "show", "cell.json"])
    assert name in shown and "weights" in shown
    assert all(other.gate == form for other in neighbours(genotype))
    check_tagger(genotype.spec())


def check_operation() -> None:
    """Check the operation silu."""
    check_cell("silu0-silu1/state=silu-silu+silu1/input=silu-silu+silu1", "residual", "silu")
    assert OPERATIONS[-1] == "silu" and CellSupernet(3, 4, 2).arch.shape[1] == len(OPERATIONS)
    assert any("silu" in str(other) for other in neighbours(load_genotype("tanh0")))
    assert any("silu" in str(random_genotype(seed)) for seed in range(5))


def check_form() -> None:
    """Check the gate form bounded."""
    assert GATE_FORMS[-1] == "bounded"
    check_cell("tanh0-relu1/state=tanh-tanh+relu1/input=sigmoid-tanh+relu1", "bounded", "2 sigmoid(")


def check_layer() -> None:
    """Check the layer QRNN."""
    check_engines(lambda: build_rnn("qrnn", 3, 4, batch_first=False))
    check_export(build_rnn("QRNN", 3, 4, 2, True, batch_first=False).double())
    check_tagger("QRNN")
    characters = Dictionary()
    characters.add_item("a")
    assert LanguageModel(characters, True, 4, 1, recurrent_type="QRNN").rnn.kind == "qrnn"
    from flair_nas.language_model.config import LanguageModelConfig
    from flair_nas.language_model.saved import build_language_model

    assert build_language_model(LanguageModelConfig(rnn="qrnn"), 10).layer.kind == "qrnn"
    for command in (["tag", "train"], ["lm", "train"], ["charlm", "train"]):
        assert "qrnn (Bradbury et al., 2017)" in said([*command, "--help"])


def check_preset() -> None:
    """Check the preset of taggers."""
    assert "tiny-ner" in said(["tag", "train", "--list-presets"])
    assert "F1" in said(["tag", "train", "--preset", "tiny-ner", "--out", "run", "--epochs", "1"])
    tagger = SequenceTagger.load("run/model.pt")
    assert tagger.hidden_size == 4
    export_tagger(tagger, "exported")
    assert Tagger("exported").predict(["Ada saw London"])


def check_strategy() -> None:
    """Check the strategy hill-climbing, and the cell that it finds."""
    assert "probability that a child is a random cell" in said(["search", "--help"])
    write_text(Path("text"))
    from flair_nas.search.strategies.hill_climbing import HillClimbingSettings  # type: ignore[import-not-found]

    strategy = HillClimbingSettings(child_steps=[2], restart=0.5)
    config = SearchConfig(strategy=strategy, text="text", hidden_size=6, nodes=2, batch_size=4, bptt=12, epochs=2)
    search_genotype(config, "found", progress=False)
    search_genotype(dataclasses.replace(config, epochs=3), "found", progress=False)
    assert "restart: 0.5" in Path("found/config.yaml").read_text(encoding="utf-8")
    found = load_genotype("found")
    assert "hill-climbing" in found.origin["method"]
    check_cell(found.one_line(), "residual", found.nodes[0][0].op)


def said(command: list[str]) -> str:
    """Return what a command prints."""
    with redirect_stdout(io.StringIO()) as out:
        try:
            assert main(command) == 0
        except SystemExit as end:  # of help and lists
            assert not end.code
    return " ".join(out.getvalue().split())


if __name__ == "__main__":
    assert os.getcwd() in flair_nas.__file__
    outcomes = {}
    for name, check in {
        "operation": check_operation,
        "form": check_form,
        "layer": check_layer,
        "preset": check_preset,
        "strategy": check_strategy,
    }.items():
        try:
            check()
            outcomes[name] = ""
        except Exception:
            outcomes[name] = traceback.format_exc()
    print(json.dumps(outcomes))
