"""The recurrent layer written down a second time, as slowly and as plainly as possible.

`flair_nas` is tested against this file. One sequence, one time step, one node and one edge at a time; nothing is
shared, cached or batched, nothing is imported from the package, and autograd does the gradients. The letters are those
of the papers: H hidden size, D input size, T time steps, B sequences, N nodes of a cell, m history length of a gate.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

OPERATIONS = {"identity": lambda z: z, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu}


class State(NamedTuple):
    """What one sequence hands to its continuation. The newest vector comes first in both histories."""

    hidden: Tensor  # [H], h_{t-1}, or s_0 of the step before in an elementwise recurrence
    inputs: list[Tensor]  # x_{t-1} .. x_{t-m}, each [D]; empty without a state gate
    states: list[Tensor]  # h_{t-2} .. h_{t-m}, each [H]; empty without an input gate


def apply_edge(op: str, s: Tensor, weight: Tensor, highway: bool, mask: Tensor) -> Tensor:
    """Return what the edge with operation `op` makes of `s` [H]; the dropout mask touches the matrix product alone."""
    product = (s * mask) @ weight  # [2H], or [H] in the plain form
    if not highway:
        return OPERATIONS[op](product)
    c, z = product.chunk(2)  # [H] each: gate first, candidate second
    return s + torch.sigmoid(c) * (OPERATIONS[op](z) - s)


def run_cell(
    genotype: Any, weights: dict[str, Tensor], x: Tensor, h: Tensor, carry: Tensor, x_mask: Tensor, h_mask: Tensor
) -> Tensor:
    """Return the next hidden state [H] from the input x [D], the gated state h [H] and what s_0 carries on [H]."""
    product = (x * x_mask) @ weights["weight_input"] + (h * h_mask) @ weights["weight_hidden"]
    if genotype.highway:
        c, z = product.chunk(2)
        s = {0: carry + torch.sigmoid(c) * (torch.tanh(z) - carry)}
    else:
        s = {0: torch.tanh(product)}
    return run_nodes(genotype, weights, s[0], h_mask)


def run_elementwise_cell(
    genotype: Any, weights: dict[str, Tensor], x: Tensor, before: Tensor, x_mask: Tensor, h_mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the next hidden state [H] and s_0 [H] from the input x [D] and s_0 of the step before."""
    c, z = ((x * x_mask) @ weights["weight_input"]).chunk(2)
    gate = torch.sigmoid(c + weights["weight_hidden"] * h_mask * before)
    s_0 = before + gate * (torch.tanh(z) - before)
    return run_nodes(genotype, weights, s_0, h_mask), s_0


def run_nodes(genotype: Any, weights: dict[str, Tensor], s_0: Tensor, h_mask: Tensor) -> Tensor:
    """Return the hidden state [H] from s_0 [H]."""
    if not genotype.nodes:
        return s_0
    s = {0: s_0}
    for i, edges in enumerate(genotype.nodes, start=1):
        total = torch.zeros_like(s_0)
        for edge in edges:
            total = total + apply_edge(edge.op, s[edge.tail], weights["weight_nodes"][i - 1], genotype.highway, h_mask)
        s[i] = total / len(edges) if genotype.combine == "mean" else total
    return sum(s[i] for i in genotype.output) / len(genotype.output)


def run_gate(gate: Any, weight_entry: Tensor, weight_nodes: Tensor, entries: list[Tensor]) -> Tensor:
    """Return the output of an inter-cell gate over its entry vectors v_1 .. v_m; its sums are never divided."""
    s = {}
    for i, node in enumerate(gate.nodes, start=1):
        s[i] = OPERATIONS[node.entry](entries[i - 1] @ weight_entry[i - 1])
        for edge in node.edges:
            s[i] = s[i] + OPERATIONS[edge.op](s[edge.tail] @ weight_nodes[i - 1])
    return sum(s.values()) / len(gate.nodes)


def run_sequence(
    genotype: Any,
    weights: dict[str, Tensor],
    xs: Tensor,
    state: State | None = None,
    x_mask: Any = 1.0,
    h_mask: Any = 1.0,
) -> tuple[Tensor, State]:
    """Run one layer in one direction over one sequence xs [T, D]; return its hidden states [T, H] and its final state.

    Without a `state` the sequence starts from zeros, and so does its history. The masks, [D] and [H], are those of
    variational dropout: the same at every step, also for the past that gates read.
    """
    h = xs.new_zeros(weights["weight_hidden"].shape[0]) if state is None else state.hidden
    m_inputs = len(genotype.state_gate.nodes) if genotype.state_gate else 0
    m_states = len(genotype.input_gate.nodes) if genotype.input_gate else 0
    past_x = [torch.zeros_like(xs[0])] * m_inputs if state is None else list(state.inputs)  # x_{t-1} .. x_{t-m}
    older_h = [torch.zeros_like(h)] * max(m_states - 1, 0) if state is None else list(state.states)
    past_h = [h, *older_h]  # h_{t-1} .. h_{t-m}
    outputs = []
    for x in xs:
        if genotype.recurrence == "elementwise":
            h, s_0 = run_elementwise_cell(genotype, weights, x, past_h[0], x_mask, h_mask)
            outputs.append(h)
            past_h = [s_0]
            continue
        gated_h, gated_x = past_h[0], x
        if genotype.state_gate:
            f = run_gate(
                genotype.state_gate,
                weights["state_gate.weight_entry"],
                weights["state_gate.weight_nodes"],
                [v * x_mask for v in past_x],
            )
            gated_h = past_h[0] * (1 + f) if genotype.gate == "residual" else past_h[0] * f
        if genotype.input_gate:
            g = run_gate(
                genotype.input_gate,
                weights["input_gate.weight_entry"],
                weights["input_gate.weight_nodes"],
                [v * h_mask for v in past_h],
            )
            gated_x = x * (1 + g) if genotype.gate == "residual" else x * g
        carry = gated_h if genotype.carry == "gated" else past_h[0]
        h = run_cell(genotype, weights, gated_x, gated_h, carry, x_mask, h_mask)
        outputs.append(h)
        past_x = [x, *past_x][:m_inputs]
        past_h = [h, *past_h][: max(m_states, 1)]
    return torch.stack(outputs), State(past_h[0], past_x, past_h[1:])


def run_sru(weights: dict[str, Tensor], xs: Tensor, c: Tensor, x_mask: Any = 1.0, c_mask: Any = 1.0) -> Any:
    """Run SRU in one direction over one sequence xs [T, D]; return its hidden states [T, H] and the last c [H]."""
    v_f, v_r, (b_f, b_r) = weights["weight_hidden"], weights["weight_reset"], weights["bias"]
    outputs = []
    for x in xs:
        x = x * x_mask
        u, p_f, p_r, *skip = (x @ weights["weight_input"]).split(len(c))  # [H] each
        f = torch.sigmoid(p_f + v_f * (c * c_mask) + b_f)
        r = torch.sigmoid(p_r + v_r * (c * c_mask) + b_r)
        c = f * c + (1 - f) * u
        outputs.append(r * c + (1 - r) * (skip[0] if skip else math.sqrt(3) * x))
    return torch.stack(outputs), State(c, [], [])


def run_mingru(weights: dict[str, Tensor], xs: Tensor, h: Tensor) -> Any:
    """Run minGRU in one direction over one sequence xs [T, D]; return its hidden states [T, H] and the last state."""
    outputs = []
    for x in xs:
        gate, candidate = (x @ weights["weight_input"] + weights["bias"]).chunk(2)  # [H] each
        z = torch.sigmoid(gate)
        h = (1 - z) * h + z * torch.tanh(candidate)
        outputs.append(h)
    return torch.stack(outputs), State(h, [], [])


def run_minlstm(weights: dict[str, Tensor], xs: Tensor, h: Tensor) -> Any:
    """Run minLSTM in one direction over one sequence xs [T, D]; return its hidden states [T, H] and the last state."""
    outputs = []
    for x in xs:
        i, f, candidate = (x @ weights["weight_input"] + weights["bias"]).chunk(3)  # [H] each
        i, f = torch.sigmoid(i), torch.sigmoid(f)
        h = f / (f + i) * h + i / (f + i) * torch.tanh(candidate)
        outputs.append(h)
    return torch.stack(outputs), State(h, [], [])


def run_layers(rnn: Any, sequences: list[Tensor], states: list[list[State]] | None = None) -> tuple[list, list]:
    """Run a whole SearchedRNN or ParallelRNN, without dropout, over ragged sequences [T_b, D], each on its own.

    `states[b][k]` is the state of sequence b in layer-direction k = layer * directions + direction. Return the outputs,
    one [T_b, H * directions] per sequence, and the final states in the same order as `states`.
    """
    directions = 2 if rnn.bidirectional else 1
    outputs, finals = [], []
    for b, xs in enumerate(sequences):
        final = []
        for layer in range(rnn.num_layers):
            sides = []
            for direction in range(directions):
                k = layer * directions + direction
                weights = dict(rnn.cells[k].named_parameters())
                start = None if states is None else states[b][k]
                ordered = xs.flip(0) if direction else xs
                if "bias" in weights:
                    first = xs.new_zeros(rnn.hidden_size) if start is None else start.hidden
                    run = {"sru": run_sru, "mingru": run_mingru, "minlstm": run_minlstm}[rnn.kind]
                    side, end = run(weights, ordered, first)
                else:
                    side, end = run_sequence(rnn.genotype, weights, ordered, start)
                sides.append(side.flip(0) if direction else side)
                final.append(end)
            xs = torch.cat(sides, dim=-1)  # [T_b, H * directions], the input of the next layer
        outputs.append(xs)
        finals.append(final)
    return outputs, finals


# --- comparisons


def tensors_of(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else [state.hidden, *state.inputs, *state.states]


def assert_same(actual: list[Tensor], expected: list[Tensor], tolerance: float = 1e-12, what: str = "tensor") -> None:
    """Compare tensor by tensor; the tolerance is absolute for values up to 1 and relative to the largest beyond."""
    assert len(actual) == len(expected)
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert a.shape == e.shape, f"{what} {i}: {tuple(a.shape)} is not {tuple(e.shape)}"
        scale = max(1.0, e.detach().abs().max().item()) if e.numel() else 1.0
        error = (a - e).abs().max().item() if e.numel() else 0.0
        assert error <= tolerance * scale, f"{what} {i}: off by {error:.1e} where values reach {scale:.1e}"


def gradients(results: list[Tensor], leaves: list[Tensor]) -> list[Tensor]:
    """Return the gradients of one fixed random combination of all results, zeros where there is no path."""
    generator = torch.Generator().manual_seed(4)
    loss = sum((r * torch.randn(r.shape, generator=generator, dtype=r.dtype)).sum() for r in results)
    return list(torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True))
