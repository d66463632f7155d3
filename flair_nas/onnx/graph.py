"""Graph of ONNX operators in the making."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import DTypeLike, NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from flair_nas.errors import FlairNasError
from flair_nas.storage.files import whole_file

OPSET = 17
"""Version of the operators that exported files use; the lowest one possible."""


def check_opset(opset: int) -> None:
    """Raise an error if this onnx cannot write files of an opset."""
    newest = onnx.defs.onnx_opset_version()
    if not OPSET <= opset <= newest:
        raise FlairNasError(f"opset must be between {OPSET} and {newest}, the newest of this onnx, got {opset}")


Body = Callable[["Graph", list[str], list[str]], tuple[list[str], list[str]]]
"""The step of a loop: a function of its graph, its states and its inputs; it returns new states and its outputs."""


def to_array(tensor: Tensor) -> NDArray[np.floating]:
    """Return a tensor's values."""
    array: NDArray[np.floating] = tensor.detach().cpu().numpy()
    return array


class Graph:
    """Operators with unique names, and their weights.

    Args:
        dtype: dtype of all floating values.
        parent: the graph around this one, if it is the body of a loop. A body may name values of its parents.
    """

    def __init__(self, dtype: DTypeLike, parent: Graph | None = None) -> None:
        self.dtype = np.dtype(dtype)
        self.float_type = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.weights: dict[str, onnx.TensorProto] = {} if parent is None else parent.weights
        self._numbers: itertools.count[int] = itertools.count() if parent is None else parent._numbers

    def name(self, hint: str) -> str:
        """Return a name that no other value of the graph has."""
        return f"{hint}_{next(self._numbers)}"

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator and return the name of its output."""
        return self.add_many(op, 1, *inputs, **attributes)[0]

    def add_many(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add an operator with a number of outputs and return their names."""
        names = [self.name(op.lower()) for _ in range(count)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names

    def add_input(self, name: str, *shape: str | int) -> str:
        """Add an input of floating values and return its name."""
        self.inputs.append(helper.make_tensor_value_info(name, self.float_type, shape))
        return name

    def add_ids(self, name: str, *shape: str | int) -> str:
        """Add an input of indices and return its name."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, shape))
        return name

    def add_output(self, value: str, name: str, *shape: str | int) -> None:
        """Make a value an output of this name."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, self.float_type, shape))

    def weight(self, array: Tensor | NDArray[Any] | Sequence[int] | float, name: str = "constant") -> str:
        """Add an array and return its name; integers are indices, and all else gets the dtype of the graph."""
        values = to_array(array) if isinstance(array, Tensor) else np.asarray(array)
        values = values.astype(np.int64 if values.dtype.kind == "i" else self.dtype)
        name = self.name(name)
        self.weights[name] = numpy_helper.from_array(np.array(values, order="C"), name)
        return name

    def take(self, values: str, number: int) -> str:
        """Return one entry along the first axis, which goes away."""
        return self.add("Gather", values, self.weight(np.int64(number)))

    def shape(self, values: str, *axes: int) -> str:
        """Return some sizes of a value as an array of indices."""
        return self.add("Gather", self.add("Shape", values), self.weight(list(axes)))

    def loop(
        self, body: Body, states: Sequence[str], inputs: Sequence[str], mask: str, reverse: bool = False
    ) -> tuple[list[str], list[str]]:
        """Add a loop over the first axis of its inputs, which leaves states as they are where the mask is false.

        Args:
            body: the step.
            states: states before the first step.
            inputs: values [T, ...] to read step by step.
            mask: [T, B, 1], false where a sequence has no token.
            reverse: begin at the last step; outputs are in the order of the inputs all the same.

        Returns:
            The last states, and the outputs of all steps, [T, ...].
        """
        step = Graph(self.dtype, self)
        before, read = ([self.name(kind) for _ in values] for kind, values in (("state", states), ("input", inputs)))
        exists = self.name("mask")
        after, written = body(step, before, read)
        kept = [step.add("Where", exists, *pair) for pair in zip(after, before)]
        outputs = [step.add("Identity", value) for value in written]  # an output may be an input or a state
        types = [*((name, self.float_type) for name in (*before, *read)), (exists, TensorProto.BOOL)]
        graph = helper.make_graph(
            step.nodes,
            self.name("step"),
            [helper.make_tensor_value_info(name, kind, None) for name, kind in types],
            [helper.make_tensor_value_info(name, self.float_type, None) for name in (*kept, *outputs)],
        )
        results = self.add_many(
            "Scan",
            len(states) + len(outputs),
            *states,
            *inputs,
            mask,
            body=graph,
            num_scan_inputs=len(inputs) + 1,
            scan_input_directions=[int(reverse)] * (len(inputs) + 1),
            scan_output_directions=[int(reverse)] * len(outputs),
        )
        return results[: len(states)], results[len(states) :]

    def save(self, path: Path, opset: int, metadata: dict[str, str]) -> None:
        """Check the model of a graph and write it, whole or not at all."""
        weights = list(self.weights.values())
        graph = helper.make_graph(self.nodes, "flair-nas", self.inputs, self.outputs, weights)
        opsets = [helper.make_opsetid("", opset)]
        ir_version = helper.find_min_ir_version_for(opsets)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, producer_name="flair-nas")
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model, full_check=True)
        with whole_file(path) as file:
            onnx.save(model, file)
