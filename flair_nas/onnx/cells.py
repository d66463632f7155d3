"""Recurrences in ONNX: one layer in one direction over padded sequences, written by the equations of its cell."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from flair_nas.genotype import OPERATION_TABLE
from flair_nas.nn.cell import CellBase, edge
from flair_nas.nn.matrix_product import product
from flair_nas.onnx.graph import Graph
from flair_nas.onnx.traced import name_of, trace


class CellState(NamedTuple):
    """Names of a direction's state: the last h, [B, H]; past inputs, [m, B, D]; earlier states, [m - 1, B, H].

    Without a gate that reads them, the last two are None.
    """

    hidden: str
    inputs: str | None
    states: str | None


def write_cell(
    graph: Graph, cell: CellBase, data: str, mask: str, start: CellState, reverse: bool
) -> tuple[str, CellState]:
    """Write a cell that reads `data`, [T, B, D], in one direction; `mask`, [T, B, 1], is false in padding.

    Returns:
        Output [T, B, H], which may hold anything in padding, and the final state.
    """
    x = trace(graph, data, cell.input_size)
    if cell.recurrence == "elementwise":
        steps: Any = _Steps(mask, reverse)
        hidden = trace(graph, start.hidden, cell.hidden_size)
        output, _ = cell.run_elementwise(x, steps, hidden, None, steps.run_loop, edge)
        return name_of(output), start._replace(hidden=steps.final)
    return _write_full(graph, cell, x, mask, start, reverse)


class _Steps:
    """Padded sequences in place of a `Packing`, and the loop over their steps."""

    def __init__(self, mask: str, reverse: bool) -> None:
        self.mask, self.reverse = mask, reverse

    def run_loop(self, operation: str, pre: Any, weight: Tensor, hidden: Any, steps: _Steps) -> Any:
        """Write the loop; arguments and returns as `flair_nas.nn.kernels.elementwise_loop.run_loop`."""
        gates, candidates = pre.chunk(2, dim=1)
        candidates = OPERATION_TABLE[operation].function(candidates)

        def step(body: Graph, before: list[str], read: list[str]) -> tuple[list[str], list[str]]:
            state, gate, candidate = (trace(body, name, hidden.size) for name in (*before, *read))
            gate = gate + weight * state if weight.any() else gate
            after = torch.lerp(state, candidate, torch.sigmoid(gate))
            return [name_of(after)], [name_of(after), name_of(state)]

        inputs = [name_of(gates), name_of(candidates)]
        (self.final,), (states, self.earlier) = pre.graph.loop(step, [hidden.name], inputs, self.mask, self.reverse)
        return trace(pre.graph, states, hidden.size)

    def before(self, states: Any, hidden: Any) -> Any:
        """Return the state before each step."""
        return trace(states.graph, self.earlier, states.size)


def _write_full(
    graph: Graph, cell: CellBase, x: Any, mask: str, start: CellState, reverse: bool
) -> tuple[str, CellState]:
    """Write a full recurrence (I-DARTS eq. 1), with the inter-cell gates of ESS if it has them."""
    size, state_gate, input_gate = cell.hidden_size, cell.state_gate, cell.input_gate

    def step(body: Graph, before: list[str], read: list[str]) -> tuple[list[str], list[str]]:
        (hidden, *past), after, scale = before, list[str](), None
        inputs = trace(body, read[0], x.size if input_gate is not None else cell.weight_input.shape[1])
        if state_gate is not None:
            seen, past = past[0], past[1:]
            scale = state_gate.scale([trace(body, name, x.size) for name in _take_each(body, seen, state_gate.history)])
            after.append(_push(body, read[-1], seen, state_gate.history))
        last = [hidden]  # h_{t-1}..h_{t-m}
        for value in past:
            assert input_gate is not None
            last += _take_each(body, value, input_gate.history - 1)
            after.append(_push(body, hidden, value, input_gate.history - 1))
        output = name_of(cell.step(inputs, [trace(body, name, size) for name in last], scale))
        return [output, *after], [output]

    inputs = [name_of(x if input_gate is not None else product(x, cell.weight_input))]
    if state_gate is not None:
        inputs.append(name_of(x))
    states = [value for value in start if value is not None]
    finals, (output,) = graph.loop(step, states, inputs, mask, reverse)
    rest = iter(finals)
    return output, CellState(*(None if value is None else next(rest) for value in start))  # type: ignore[arg-type]


def _take_each(graph: Graph, values: str, count: int) -> list[str]:
    return [graph.take(values, number) for number in range(count)]


def _push(graph: Graph, value: str, values: str, count: int) -> str:
    """Write the `count` latest of a vector, [B, E], and those before it, [m, B, E], latest first."""
    latest = graph.add("Unsqueeze", value, graph.weight([0]))
    if count == 1:
        return latest
    joined = graph.add("Concat", latest, values, axis=0)
    return graph.add("Slice", joined, graph.weight([0]), graph.weight([count]), graph.weight([0]))
