"""Export of recurrent layers to ONNX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto
from torch import nn

from flair_nas.errors import FlairNasError
from flair_nas.nn.cell import CellBase
from flair_nas.nn.layers import LAYER_TYPES
from flair_nas.nn.recurrent_layer import RecurrentLayer
from flair_nas.onnx.cells import CellState, write_cell
from flair_nas.onnx.graph import OPSET, Graph, check_opset, to_array
from flair_nas.storage.paths import user_path
from flair_nas.version import __version__

Layer = RecurrentLayer | nn.LSTM | nn.GRU | nn.RNN


def export_layer(rnn: nn.Module, path: str | Path, *, opset: int = OPSET) -> None:
    """Write a recurrent layer as an ONNX file, for inference on any length and batch.

    Inputs are ``x`` [B, T, D], ``lengths`` [B] in int64, and the initial state, which is zero for a new sequence.
    Outputs are ``y`` [B, T, directions * H], zero in padding, and the final state, its names with ``_out`` at the end.

    The state is ``hidden`` [layers * directions, B, H], of an LSTM also ``cell``. A state gate adds ``inputs_K``
    [m, B, D], and an input gate ``states_K`` [m - 1, B, H], for each layer and direction K, as in `RecurrentState`.

    Args:
        rnn: a `SearchedRNN`, a `ParallelRNN`, or a `torch.nn` LSTM, GRU or RNN.
        path: the file to write. It holds the weights in the layer's own dtype.
        opset: version of ONNX's operators.

    Raises:
        FlairNasError: a layer or an opset that cannot be exported.
        OSError: the file cannot be written; nothing half-written is left.
    """
    check_opset(opset)
    layer = exportable(rnn)
    graph = Graph(to_array(next(layer.parameters())).dtype)
    x, lengths = graph.add_input("x", "batch", "time", layer.input_size), graph.add_ids("lengths", "batch")
    shapes = state_shapes(layer)
    states = {name: graph.add_input(name, *shape) for name, shape in shapes.items()}
    output, finals = write_layer(graph, layer, x, lengths, states)
    graph.add_output(output, "y", "batch", "time", (1 + layer.bidirectional) * layer.hidden_size)
    for name, shape in shapes.items():
        graph.add_output(finals[name], f"{name}_out", *shape)
    graph.save(user_path(path), opset, layer_metadata(layer))


def exportable(rnn: nn.Module) -> Layer:
    """Return a layer that can be exported.

    Raises:
        FlairNasError: this layer cannot.
    """
    if not isinstance(rnn, Layer) or not isinstance(rnn, RecurrentLayer) and type(rnn).__module__ != nn.LSTM.__module__:
        raise FlairNasError(
            f"a {type(rnn).__name__} cannot be exported; LSTM, GRU and recurrent layers of flair-nas can"
        )
    if isinstance(rnn, nn.RNN) and rnn.nonlinearity != "tanh" or getattr(rnn, "proj_size", 0):
        raise FlairNasError("of torch.nn.RNN and LSTM, only those with tanh and without projection can be exported")
    if next(rnn.parameters()).element_size() < 4:
        raise FlairNasError("weights must be of float32 or float64 to be exported; convert the layer by .float()")
    return rnn


def layer_metadata(rnn: Layer) -> dict[str, str]:
    """Return the metadata of a layer's file: versions, sizes, and the genotype without its provenance."""
    config: dict[str, Any] = {"layer": type(rnn).__name__}
    config |= {name: getattr(rnn, name) for name in ("input_size", "hidden_size", "num_layers", "bidirectional")}
    if isinstance(rnn, RecurrentLayer):
        config |= {name: rnn.config()[name] for name in ("genotype", "kind") if name in rnn.config()}
        if "genotype" in config:
            config["genotype"] = {key: value for key, value in config["genotype"].items() if key != "origin"}
    return {"flair_nas": __version__, "onnx": onnx.__version__, "layer": json.dumps(config)}


def state_shapes(rnn: Layer) -> dict[str, tuple[int | str, ...]]:
    """Return the shapes of the parts of a layer's state by name."""
    size = rnn.num_layers * (1 + rnn.bidirectional), "batch", rnn.hidden_size
    shapes: dict[str, tuple[int | str, ...]] = {"hidden": size}
    if isinstance(rnn, nn.LSTM):
        shapes["cell"] = size
    for number, cell in enumerate(rnn.cells if isinstance(rnn, RecurrentLayer) else ()):
        assert isinstance(cell, CellBase)
        if cell.state_gate is not None:
            shapes[f"inputs_{number}"] = cell.state_gate.history, "batch", cell.input_size
        if cell.input_gate is not None and cell.input_gate.history > 1:
            shapes[f"states_{number}"] = cell.input_gate.history - 1, "batch", cell.hidden_size
    return shapes


def write_layer(
    graph: Graph, rnn: Layer, x: str, lengths: str, states: dict[str, str] | None = None
) -> tuple[str, dict[str, str]]:
    """Write a layer that reads x, [B, T, D], of sequences of `lengths`, [B].

    It begins with an initial state, parts by name, or with zeros.

    Returns:
        Output [B, T, directions * H], zero in padding, and the final state.
    """
    if states is None:
        states = {}
        for name, (first, _, last) in state_shapes(rnn).items():
            sizes = graph.weight([int(first)]), graph.shape(x, 0), graph.weight([int(last)])
            states[name] = graph.add("Expand", graph.weight(0.0), graph.add("Concat", *sizes, axis=0))
    data = graph.add("Transpose", x, perm=[1, 0, 2])  # [T, B, D]
    if isinstance(rnn, RecurrentLayer):
        data, finals = _write_cells(graph, rnn, data, lengths, states)
    else:
        data, finals = _write_operators(graph, rnn, data, lengths, states)
    return graph.add("Transpose", data, perm=[1, 0, 2]), finals


def _write_cells(
    graph: Graph, rnn: RecurrentLayer, data: str, lengths: str, states: dict[str, str]
) -> tuple[str, dict[str, str]]:
    steps = graph.add("Squeeze", graph.shape(data, 0), graph.weight([0]))
    times = graph.add("Range", graph.weight(np.int64(0)), steps, graph.weight(np.int64(1)))
    times = graph.add("Unsqueeze", times, graph.weight([1]))  # [T, 1]
    mask = graph.add("Unsqueeze", graph.add("Less", times, lengths), graph.weight([2]))  # [T, B, 1], false in padding
    finals: dict[str, str] = {}
    hidden = []
    for layer in range(rnn.num_layers):
        outputs = []
        for direction in range(rnn.num_directions):
            number = layer * rnn.num_directions + direction
            cell = rnn.cells[number]
            assert isinstance(cell, CellBase)
            names = f"inputs_{number}", f"states_{number}"
            start = CellState(graph.take(states["hidden"], number), *map(states.get, names))
            output, final = write_cell(graph, cell, data, mask, start, bool(direction))
            hidden.append(graph.add("Unsqueeze", final.hidden, graph.weight([0])))  # [1, B, H]
            finals |= {name: value for name, value in zip(names, final[1:]) if value is not None}
            outputs.append(graph.add("Where", mask, output, graph.weight(0.0)))
        data = graph.add("Concat", *outputs, axis=2) if len(outputs) > 1 else outputs[0]
    return data, {**finals, "hidden": graph.add("Concat", *hidden, axis=0)}


def _write_operators(
    graph: Graph, rnn: nn.LSTM | nn.GRU | nn.RNN, data: str, lengths: str, states: dict[str, str]
) -> tuple[str, dict[str, str]]:
    """Write a layer of PyTorch by ONNX's own operators."""
    operator = type(rnn).__name__
    order = LAYER_TYPES[operator].blocks
    directions, size = 1 + rnn.bidirectional, rnn.hidden_size
    names = ("hidden", "cell") if operator == "LSTM" else ("hidden",)
    parts = {
        name: graph.add_many("Split", rnn.num_layers, states[name], graph.weight([directions] * rnn.num_layers), axis=0)
        for name in names
    }
    ends: dict[str, list[str]] = {name: [] for name in names}
    options: dict[str, Any] = {"linear_before_reset": 1} if operator == "GRU" else {}
    options |= {"direction": "bidirectional" if rnn.bidirectional else "forward", "hidden_size": size}

    def blocks(name: str, layer: int) -> Any:
        """Return a weight of both directions, its blocks in ONNX's order: [directions, gates * H, ...]."""
        sides = []
        for side in ("", "_reverse")[:directions]:
            weight = to_array(getattr(rnn, f"{name}_l{layer}{side}"))
            sides.append(np.concatenate([weight[number * size : (number + 1) * size] for number in order]))
        return np.stack(sides)

    counts = graph.add("Cast", lengths, to=TensorProto.INT32)
    for layer in range(rnn.num_layers):
        weights = [graph.weight(blocks(name, layer), name) for name in ("weight_ih", "weight_hh")]
        bias = ""
        if rnn.bias:
            bias = graph.weight(np.concatenate([blocks("bias_ih", layer), blocks("bias_hh", layer)], axis=1), "bias")
        start = [parts[name][layer] for name in names]
        output, *end = graph.add_many(operator, 1 + len(names), data, *weights, bias, counts, *start, **options)
        for name, value in zip(names, end):
            ends[name].append(value)
        output = graph.add("Transpose", output, perm=[0, 2, 1, 3])  # [T, B, directions, H]
        data = graph.add("Reshape", output, graph.weight([0, 0, -1]))
    return data, {name: graph.add("Concat", *values, axis=0) for name, values in ends.items()}


def write_linear(graph: Graph, linear: nn.Linear, data: str) -> str:
    """Write a linear map of the last axis and return its output."""
    product = graph.add("MatMul", data, graph.weight(to_array(linear.weight).T, "linear"))
    return graph.add("Add", product, graph.weight(to_array(linear.bias), "bias"))
