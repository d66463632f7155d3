"""Recurrences as ONNX operators: one layer in one direction over padded sequences."""

from __future__ import annotations

from functools import partial, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from flair_nas.nn.cell import CellBase, SearchedCell
from flair_nas.nn.gates import InterCellGate
from flair_nas.nn.parallel import SKIP_SCALE, MinGRUCell, SRUCell
from flair_nas.onnx.graph import Graph

OPERATORS = {"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid", "identity": "Identity"}


class CellState(NamedTuple):
    """Names of a direction's state: the last h, [B, H]; past inputs, [m, B, D]; earlier states, [m - 1, B, H].

    Without a gate that reads them, the last two are None.
    """

    hidden: str
    inputs: str | None
    states: str | None


def to_array(tensor: Tensor) -> NDArray[np.floating]:
    """Return a tensor's values."""
    array: NDArray[np.floating] = tensor.detach().cpu().numpy()
    return array


def write_cell(
    graph: Graph, cell: CellBase, data: str, mask: str, start: CellState, reverse: bool
) -> tuple[str, CellState]:
    """Write the operators of a cell.

    Args:
        graph: the graph to write to.
        cell: the cell.
        data: input, [T, B, D].
        mask: [T, B, 1], false in padding.
        start: the initial state.
        reverse: run from the last token to the first.

    Returns:
        Output [T, B, H], which may hold anything in padding, and the final state.
    """
    if isinstance(cell, SRUCell):
        return _write_sru(graph, cell, data, mask, start, reverse)
    if isinstance(cell, MinGRUCell):
        return _write_mingru(graph, cell, data, mask, start, reverse)
    assert isinstance(cell, SearchedCell)
    if cell.recurrence == "elementwise":
        return _write_elementwise(graph, cell, data, mask, start, reverse)
    return _write_full(graph, cell, data, mask, start, reverse)


def write_edge(graph: Graph, operation: str, pre: str, state: str, width: int | None) -> str:
    """Write one edge (j -> i, op): s_j + σ(c) (op(z) - s_j) with [c | z] = s_j W_i of width 2H, or op(s_j W_i).

    Args:
        graph: the graph to write to.
        operation: op.
        pre: s_j W_i.
        state: s_j.
        width: H, or None for the papers' plain form.
    """
    if width is None:
        return graph.add(OPERATORS[operation], pre)
    c, z = graph.split(pre, width, 2)
    return _between(graph, graph.add("Sigmoid", c), graph.add(OPERATORS[operation], z), state)


def _add_nodes(graph: Graph, cell: SearchedCell) -> dict[int, str]:
    """Add the weights of the nodes that count, by node."""
    return {i: graph.weight(to_array(cell.weight_nodes[i - 1]), f"weight_node{i}") for i in cell.genotype.live_nodes}


def _add_gate(graph: Graph, gate: InterCellGate) -> tuple[str, dict[int, str]]:
    """Add the weights of a gate: those of all entries, and those of the nodes that read others, by index."""
    weights = [to_array(weight) for weight in gate.weight_nodes]
    nodes = {i: graph.weight(weights[i], "weight_gate") for i, node in enumerate(gate.nodes) if node.edges}
    return graph.weight(to_array(gate.weight_entry), "weight_entry"), nodes


def _width(cell: SearchedCell) -> int | None:
    """Return H, or None for a cell of the papers' plain form."""
    return cell.hidden_size if cell.genotype.highway else None


def _between(graph: Graph, gate: str, candidate: str, state: str) -> str:
    """Write state + gate (candidate - state)."""
    return graph.add("Add", state, graph.add("Mul", gate, graph.add("Sub", candidate, state)))


def write_nodes(graph: Graph, cell: SearchedCell, weights: dict[int, str], state: str) -> str:
    """Write the nodes of a cell: h_t from s_0 (I-DARTS eq. 1).

    Args:
        graph: the graph to write to.
        cell: the cell.
        weights: W_i of each node that counts, [H, W].
        state: s_0, [..., H].
    """
    genotype, width, states = cell.genotype, _width(cell), {0: state}
    for i in genotype.live_nodes:
        edges = genotype.nodes[i - 1]
        pres = {j: graph.add("MatMul", states[j], weights[i]) for j in sorted({e.tail for e in edges})}
        results = [write_edge(graph, e.op, pres[e.tail], states[e.tail], width) for e in edges]
        states[i] = _mean(graph, results) if genotype.combine == "mean" else _sum(graph, results)
    return _mean(graph, [states[i] for i in genotype.output])


def _sum(graph: Graph, values: list[str]) -> str:
    return reduce(partial(graph.add, "Add"), values)


def _mean(graph: Graph, values: list[str]) -> str:
    total = _sum(graph, values)
    return total if len(values) == 1 else graph.add("Div", total, graph.weight(float(len(values))))


def write_scale(graph: Graph, gate: InterCellGate, weights: tuple[str, dict[int, str]], vectors: str) -> str:
    """Write the scale of an inter-cell gate, [B, G], from v_1..v_m, [m, B, E] (ESS eq. 5 and 6).

    Args:
        graph: the graph to write to.
        gate: the gate.
        weights: W^in of all nodes, [m, E, G], and W_i of each node that reads others, [G, G].
        vectors: the latest inputs or states first.
    """
    entry, nodes = weights
    products = graph.add("MatMul", vectors, entry)  # [m, B, G]
    states: list[str] = []
    for number, node in enumerate(gate.nodes):
        state = graph.add(OPERATORS[node.entry], graph.take(products, number))
        for edge in node.edges:
            product = graph.add("MatMul", states[edge.tail - 1], nodes[number])
            state = graph.add("Add", state, graph.add(OPERATORS[edge.op], product))
        states.append(state)
    mean = _mean(graph, states)
    return mean if gate.form == "product" else graph.add("Add", mean, graph.weight(1.0))


def _write_full(
    graph: Graph, cell: SearchedCell, data: str, mask: str, start: CellState, reverse: bool
) -> tuple[str, CellState]:
    """Write a full recurrence (I-DARTS eq. 1), with the inter-cell gates of ESS if it has them."""
    genotype = cell.genotype
    weight_input, weight_hidden = (graph.weight(to_array(w), "weight") for w in (cell.weight_input, cell.weight_hidden))
    nodes = _add_nodes(graph, cell)
    gates = {
        name: _add_gate(graph, gate)
        for name, gate in (("state", cell.state_gate), ("input", cell.input_gate))
        if isinstance(gate, InterCellGate)
    }

    def step(body: Graph, before: list[str], read: list[str]) -> tuple[list[str], list[str]]:
        hidden, *past = before
        x, after = read[0], list[str]()
        carry = gated = hidden
        if isinstance(cell.state_gate, InterCellGate):
            seen, past = past[0], past[1:]
            gated = body.add("Mul", hidden, write_scale(body, cell.state_gate, gates["state"], seen))  # ĥ_{t-1}
            carry = gated if genotype.carry == "gated" else hidden
            after.append(_pushed(body, read[-1], seen, cell.state_gate.history))
        if isinstance(cell.input_gate, InterCellGate):
            last = _pushed(body, hidden, past[0] if past else None, cell.input_gate.history)  # h_{t-1}..h_{t-m}
            x = body.add("Mul", x, write_scale(body, cell.input_gate, gates["input"], last))  # x̂_t
            x = body.add("MatMul", x, weight_input)
            after += [_pushed(body, hidden, value, cell.input_gate.history - 1) for value in past]
        pre = body.add("Add", x, body.add("MatMul", gated, weight_hidden))
        state = write_edge(body, "tanh", pre, carry, _width(cell))
        output = write_nodes(body, cell, nodes, state)
        return [output, *after], [output]

    inputs = [data if cell.input_gate is not None else graph.add("MatMul", data, weight_input)]
    if cell.state_gate is not None:
        inputs.append(data)
    states = [value for value in start if value is not None]
    finals, (output,) = graph.loop(step, states, inputs, mask, reverse)
    rest = iter(finals)
    return output, CellState(*(None if value is None else next(rest) for value in start))  # type: ignore[arg-type]


def _pushed(graph: Graph, value: str, values: str | None, count: int) -> str:
    """Write the `count` latest of a vector, [B, E], and those before it, [m, B, E], latest first."""
    latest = graph.add("Unsqueeze", value, graph.weight([0]))
    if values is None or count == 1:
        return latest
    joined = graph.add("Concat", latest, values, axis=0)
    return graph.add("Slice", joined, graph.weight([0]), graph.weight([count]), graph.weight([0]))


def _write_linear(
    graph: Graph, pre: str, candidate: str, vector: str | None, mask: str, start: CellState, reverse: bool
) -> tuple[str, str, CellState]:
    """Write s_t = s_{t-1} + σ(pre_t + v ⊙ s_{t-1}) (candidate_t - s_{t-1}); return s_t, s_{t-1} and the final state."""

    def step(body: Graph, before: list[str], read: list[str]) -> tuple[list[str], list[str]]:
        (state,), (c, candidate) = before, read
        if vector is not None:
            c = body.add("Add", c, body.add("Mul", vector, state))
        after = _between(body, body.add("Sigmoid", c), candidate, state)
        return [after], [after, state]

    (final,), (states, earlier) = graph.loop(step, [start.hidden], [pre, candidate], mask, reverse)
    return states, earlier, start._replace(hidden=final)


def _write_elementwise(
    graph: Graph, cell: SearchedCell, data: str, mask: str, start: CellState, reverse: bool
) -> tuple[str, CellState]:
    """Write an elementwise recurrence: s_0 in a loop, then each node for all steps at once."""
    vector = graph.weight(to_array(cell.weight_hidden), "vector")
    nodes = _add_nodes(graph, cell)
    projected = graph.add("MatMul", data, graph.weight(to_array(cell.weight_input), "weight"))
    c, z = graph.split(projected, cell.hidden_size, 2)
    states, _, final = _write_linear(graph, c, graph.add("Tanh", z), vector, mask, start, reverse)
    return write_nodes(graph, cell, nodes, states), final


def _write_sru(
    graph: Graph, cell: SRUCell, data: str, mask: str, start: CellState, reverse: bool
) -> tuple[str, CellState]:
    """Write SRU (Lei et al., 2018, eq. 3 to 7): c_t in a loop, then the reset gate for all steps at once."""
    blocks = to_array(cell.weight_input).reshape(cell.input_size, -1, cell.hidden_size)  # [D, 3 or 4, H]
    u, forget, reset, *skip = (
        graph.add("MatMul", data, graph.weight(blocks[:, number], "weight")) for number in range(blocks.shape[1])
    )
    bias = to_array(cell.bias)
    pre = graph.add("Neg", graph.add("Add", forget, graph.weight(bias[0], "bias")))  # 1 - σ(f) = σ(-f)
    vector = graph.weight(-to_array(cell.weight_hidden), "vector")
    states, earlier, final = _write_linear(graph, pre, u, vector, mask, start, reverse)
    seen = graph.add("Mul", earlier, graph.weight(to_array(cell.weight_reset), "vector"))
    gate = graph.add("Sigmoid", graph.add("Add", graph.add("Add", reset, graph.weight(bias[1], "bias")), seen))
    other = skip[0] if skip else graph.add("Mul", data, graph.weight(SKIP_SCALE))
    return _between(graph, gate, states, other), final


def _write_mingru(
    graph: Graph, cell: MinGRUCell, data: str, mask: str, start: CellState, reverse: bool
) -> tuple[str, CellState]:
    """Write minGRU or minLSTM (Feng et al., 2024)."""
    projected = graph.add("MatMul", data, graph.weight(to_array(cell.weight_input), "weight"))
    projected = graph.add("Add", projected, graph.weight(to_array(cell.bias), "bias"))
    *gates, candidate = graph.split(projected, cell.hidden_size, cell.blocks)
    pre = gates[0]
    if len(gates) == 2:  # log i - log f, of sigmoids
        enter, forget = (_write_softplus(graph, graph.add("Neg", gate)) for gate in gates)  # -log σ
        pre = graph.add("Sub", forget, enter)
    states, _, final = _write_linear(graph, pre, graph.add("Tanh", candidate), None, mask, start, reverse)
    return states, final


def _write_softplus(graph: Graph, value: str) -> str:
    """Write log(1 + exp(value)), which onnxruntime has for float32 alone."""
    small = graph.add("Exp", graph.add("Neg", graph.add("Abs", value)))
    return graph.add("Add", graph.add("Relu", value), graph.add("Log", graph.add("Add", small, graph.weight(1.0))))
