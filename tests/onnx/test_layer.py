"""Exported layers against the layers themselves, by onnxruntime and by ONNX's reference evaluator."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
import torch
from drawn_genotypes import genotypes
from hypothesis import HealthCheck, assume, given, settings
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from flair_nas import FlairNasError, Genotype, ParallelRNN, RecurrentState, SearchedRNN, bundled_names, load_genotype
from flair_nas.genotype import OPERATION_TABLE
from flair_nas.nn.state import initial_state
from flair_nas.onnx import export_layer

Run = Callable[[Path], Callable[[dict[str, Any]], dict[str, Any]]]


def by_onnxruntime(path: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, feeds)))


def by_reference(path: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    evaluator = onnx.reference.ReferenceEvaluator(str(path))
    return lambda feeds: dict(zip(evaluator.output_names, evaluator.run(None, feeds)))


def parts(state: Any) -> dict[str, Any]:
    """Name the parts of a state as exported files do."""
    if isinstance(state, Tensor):
        return {"hidden": state.numpy()}
    if not isinstance(state, RecurrentState):
        return {"hidden": state[0].numpy(), "cell": state[1].numpy()}
    named = {"hidden": state.hidden}
    for number, pair in enumerate(zip(state.inputs, state.states)):
        named |= {f"{name}_{number}": part for name, part in zip(("inputs", "states"), pair) if len(part)}
    return {name: part.numpy() for name, part in named.items()}


def start_of(layer: Any, batch: int) -> Any:
    if isinstance(layer, SearchedRNN | ParallelRNN):
        return initial_state(list(layer.cells), None, batch)  # type: ignore[arg-type]
    zeros = torch.zeros(layer.num_layers * (1 + layer.bidirectional), batch, layer.hidden_size)
    return (zeros, zeros) if isinstance(layer, nn.LSTM) else zeros


def differences(layer: Any, path: Path, lengths: list[int], run: Run = by_onnxruntime) -> float:
    """Run an exported layer over two ragged batches, one after the other; return the largest difference."""
    layer.eval()
    export_layer(layer, path)
    exported, state, worst = run(path), start_of(layer, len(lengths)), 0.0
    dtype = next(layer.parameters()).dtype
    for _ in range(2):
        x = torch.randn(len(lengths), max(lengths), layer.input_size, dtype=dtype)
        packed = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
        with torch.no_grad():
            output, after = layer(packed, state)
        padded = pad_packed_sequence(output, batch_first=True)[0].numpy()
        results = exported({"x": x.numpy(), "lengths": np.array(lengths), **parts(state)})
        expected = {"y": padded, **{f"{name}_out": part for name, part in parts(after).items()}}
        assert {*results} == {*expected}
        assume(all(np.isfinite(part).all() for part in expected.values()))  # gates may let a state grow without bound
        for name, part in expected.items():
            worst = max(worst, (np.abs(results[name] - part) / np.maximum(1, np.abs(part))).max())
        state = after
    return worst


@pytest.mark.parametrize("name", bundled_names())
@pytest.mark.parametrize("lengths", [[5, 2, 7, 1], [1], [500]], ids=["ragged", "one step", "500 steps"])
def test_bundled_genotypes(name: str, lengths: list[int], tmp_path: Path) -> None:
    torch.manual_seed(1)
    layer = SearchedRNN(3, 4, load_genotype(name), 2, bidirectional=True, dtype=torch.float64)
    assert differences(layer, tmp_path / "layer.onnx", lengths) < 1e-12


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(genotypes(), st.booleans())
def test_any_genotype(tmp_path: Path, genotype: Genotype, bidirectional: bool) -> None:
    """Several edges, combine, the plain form, elementwise recurrences, gates of every history, form and carry."""
    torch.manual_seed(1)
    layer = SearchedRNN(3, 4, genotype, 2, bidirectional, init_range=0.3, dtype=torch.float64)
    assert differences(layer, tmp_path / "layer.onnx", [3, 6, 1]) < 1e-12


@pytest.mark.parametrize("name", ["small-relu-tanh", "relu0-tanh1,recurrence=elementwise", "ess-ptb"])
def test_the_reference_evaluator_agrees(name: str, tmp_path: Path) -> None:
    from flair_nas.library.layer_spec import parse_layer_spec

    torch.manual_seed(1)
    genotype = parse_layer_spec(name, ())[0]
    layer = SearchedRNN(3, 4, genotype, 2, dtype=torch.float64)  # the evaluator reads forward alone
    assert differences(layer, tmp_path / "layer.onnx", [3, 5, 1], by_reference) < 1e-12


@pytest.mark.parametrize("kind", ["sru", "mingru", "minlstm"])
@pytest.mark.parametrize("input_size", [3, 4])
def test_parallel_layers(kind: str, input_size: int, tmp_path: Path) -> None:
    torch.manual_seed(1)
    layer = ParallelRNN(input_size, 4, kind, 2, bidirectional=True, dtype=torch.float64)
    with torch.no_grad():
        for cell in layer.cells:
            cell.bias.uniform_(-3, 3)
    assert differences(layer, tmp_path / "layer.onnx", [5, 2, 7, 1]) < 1e-12


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}])
def test_layers_of_pytorch(kind: Any, options: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(1)
    layer = kind(3, 4, batch_first=True, **options)
    assert differences(layer, tmp_path / "layer.onnx", [5, 2, 7, 1]) < 1e-6


def test_the_file_says_what_it_holds_and_names_no_path(tmp_path: Path) -> None:
    genotype = Genotype.parse("relu0-tanh1")
    object.__setattr__(genotype, "origin", {"command": "flair-nas search --out /home/somebody"})
    file = tmp_path / "layer.onnx"
    export_layer(SearchedRNN(3, 4, genotype), file)
    model = onnx.load(file)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    layer = json.loads(metadata["layer"])
    assert Genotype.from_dict(layer["genotype"]) == genotype and layer["hidden_size"] == 4
    assert {*metadata} == {"flair_nas", "onnx", "layer"} and [o.version for o in model.opset_import] == [17]
    assert b"somebody" not in file.read_bytes() and str(tmp_path).encode() not in file.read_bytes()


def test_what_cannot_be_exported_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    layer = SearchedRNN(3, 4, load_genotype("small-tanh"))
    for opset in (16, 99):
        with pytest.raises(FlairNasError, match=rf"opset must be between 17 and \d+, .* got {opset}"):
            export_layer(layer, tmp_path / "file", opset=opset)
    faulty = [
        (nn.Linear(2, 2), "a Linear cannot be exported"),
        (type("MyLSTM", (nn.LSTM,), {})(2, 2), "a MyLSTM cannot be exported"),
        (nn.RNN(2, 2, nonlinearity="relu"), "those with tanh"),
        (nn.LSTM(2, 3, proj_size=2), "without projection"),
        (SearchedRNN(2, 2, load_genotype("small-tanh"), dtype=torch.bfloat16), "float32 or float64"),
    ]
    for module, message in faulty:
        with pytest.raises(FlairNasError, match=message):
            export_layer(module, tmp_path / "file")
    assert not [*tmp_path.iterdir()]
    export_layer(layer, tmp_path / "file", opset=21)
    assert onnxruntime.InferenceSession(tmp_path / "file", providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", ["softmax", "cumsum", "amax"])
def test_an_operation_of_another_function_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = OPERATION_TABLE["relu"]._replace(function=lambda z: getattr(z, name)(-1))
    monkeypatch.setitem(OPERATION_TABLE, "relu", operation)
    with pytest.raises(FlairNasError, match=rf"torch.{name} cannot be exported to ONNX; write the equation with"):
        export_layer(SearchedRNN(3, 4, Genotype.parse("relu0")), tmp_path / "file")
    assert not [*tmp_path.iterdir()]
