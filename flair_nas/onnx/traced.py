"""Values of a graph in place of tensors: the equations of a layer, called with them, write its operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from flair_nas.errors import FlairNasError
from flair_nas.onnx.graph import Graph

Number = int | float


class Traced:
    """A value of a graph, [..., F]. Equations for rows, [N, F], take it as they take a tensor.

    Args:
        graph: the graph, or the body of a loop, to which operators on the value are added.
        name: its name in the graph.
        size: F.
    """

    dtype = None  # each graph has one

    def __init__(self, graph: Graph, name: str, size: int) -> None:
        self.graph, self.name, self.size = graph, name, size

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        """Add the operators of one of PyTorch's functions, which `_OPERATORS` or `_COMPOSED` must have."""
        name = function.__name__
        if name in _COMPOSED:
            return _COMPOSED[name](*arguments, **(options or {}))
        if options or name not in _OPERATORS:
            raise FlairNasError(f"torch.{name} cannot be exported to ONNX; write the equation with other functions")
        return _add(_OPERATORS[name], *arguments)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a method of tensors; it is PyTorch's function of the same name."""
        if name.startswith("__"):
            raise AttributeError(name)
        return partial(getattr(torch, name), self)

    def __add__(self, other: Traced | Tensor | Number) -> Traced:
        return _add("Add", self, other)

    def __mul__(self, other: Traced | Tensor | Number) -> Traced:
        return _add("Mul", self, other)

    def __sub__(self, other: Traced | Tensor | Number) -> Traced:
        return _add("Sub", self, other)

    def __rsub__(self, other: Tensor | Number) -> Traced:
        return _add("Sub", other, self)

    def __truediv__(self, other: Traced | Tensor | Number) -> Traced:
        return self if isinstance(other, int) and other == 1 else _add("Div", self, other)

    def __neg__(self) -> Traced:
        return _add("Neg", self)

    __radd__, __rmul__ = __add__, __mul__

    def to(self, dtype: None) -> Traced:
        """Return the value itself: its graph has one dtype."""
        return self

    def dim(self) -> int:
        """Return the number of axes of a batch of sequences."""
        return 3


trace: Any = Traced
"""Constructor of a value for equations, which are typed for tensors."""


def name_of(value: Any) -> str:
    """Return the name of a value, which equations return as a tensor."""
    assert isinstance(value, Traced)
    return value.name


def _add(operator: str, *arguments: Traced | Tensor | Number) -> Traced:
    """Add an operator. Tensors and numbers become weights of the graph."""
    first = next(argument for argument in arguments if isinstance(argument, Traced))
    names, size = [], first.size
    for argument in arguments:
        if isinstance(argument, Traced):
            names.append(argument.name)
        else:
            names.append(first.graph.weight(argument if isinstance(argument, Tensor) else float(argument), "weight"))
        if operator == "MatMul" and isinstance(argument, Tensor):
            size = argument.shape[-1]
    return Traced(first.graph, first.graph.add(operator, *names), size)


def _split(value: Traced, size: int, dim: int) -> list[Traced]:
    graph = value.graph
    count = value.size // size
    parts = graph.add_many("Split", count, value.name, graph.weight([size] * count), axis=-1)
    return [Traced(graph, part, size) for part in parts]


def _concatenate(values: Sequence[Traced], dim: int) -> Traced:
    graph = values[0].graph
    name = graph.add("Concat", *(value.name for value in values), axis=-1)
    return Traced(graph, name, sum(value.size for value in values))


def _log_sigmoid(value: Traced) -> Traced:
    """Write -log(1 + exp(-value)); onnxruntime has Softplus for float32 alone."""
    absolute = _add("Abs", value)
    return -_add("Relu", -value) - _add("Log", _add("Exp", -absolute) + 1)


_ELEMENTWISE = (
    "abs acos acosh add asin asinh atan atanh ceil cos cosh div erf exp floor log mul neg pow reciprocal relu round "
    "selu sigmoid sign sin sinh softplus softsign sqrt sub tan tanh"
)
_OPERATORS = {"matmul": "MatMul", "mm": "MatMul", **{name: name.capitalize() for name in _ELEMENTWISE.split()}}
"""ONNX's operators by functions of PyTorch that take the same arguments."""

_COMPOSED: dict[str, Callable[..., Any]] = {
    "split": _split,
    "chunk": lambda value, count, dim: _split(value, value.size // count, dim),
    "cat": _concatenate,
    "lerp": lambda start, end, weight: start + weight * (end - start),
    "addcmul": lambda value, one, other: value + one * other,
    "log_sigmoid": _log_sigmoid,
}
"""Functions that stand for other operators."""
