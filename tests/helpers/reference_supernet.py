"""The supernets written down a second time, as slowly and as plainly as possible.

`flair_nas` is tested against this file. One time step, one node, one edge and one operation at a time, over a batch
because batch normalisation needs one; nothing is shared or cached, nothing is imported from the package, and autograd
does the gradients. The letters are those of the papers: H hidden size, D input size, T time steps, B sequences, N nodes
of a cell, m history length of a gate, α architecture weights, p their softmax.
"""

import math
from decimal import Decimal, localcontext
from typing import Any, NamedTuple

import torch
from reference import run_cell, run_gate
from torch import Tensor

OPERATIONS = {
    "drop": torch.zeros_like,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "identity": lambda z: z,
}
OPS = list(OPERATIONS)  # in the order of the columns of architecture weights


class State(NamedTuple):
    """What a batch of sequences hands to its continuation. The newest vector comes first in both histories."""

    hidden: Tensor  # [B, H], h_{t-1}
    inputs: list[Tensor]  # x_{t-1} .. x_{t-m}, each [B, D]; empty without gates
    states: list[Tensor]  # h_{t-2} .. h_{t-m}, each [B, H]; empty without gates


# --- the relaxation


def edges_of_rows(rows: int) -> list[tuple[int, int]]:
    """Return (head, tail) of each row: into node 1 from 0, into node 2 from 0 and 1, and so on."""
    edges: list[tuple[int, int]] = []
    head = 0
    while len(edges) < rows:
        head += 1
        for tail in range(head):
            edges.append((head, tail))
    assert len(edges) == rows
    return edges


def relax(arch: Tensor, relaxation: str) -> list[list[Tensor]]:
    """Return p of each edge and operation, as scalars [E][5], from architecture weights [E, 5]."""
    edges = edges_of_rows(len(arch))
    table = []
    for row, (head, _) in enumerate(edges):
        if relaxation == "darts":  # one softmax per pair
            group = [row]
        elif relaxation == "i-darts":  # one softmax per head (I-DARTS eq. 4)
            group = [other for other, (its_head, _) in enumerate(edges) if its_head == head]
        else:
            raise AssertionError(relaxation)
        logits = [arch[other, k] for other in group for k in range(5)]
        largest = max(logit.item() for logit in logits)
        total = sum(torch.exp(logit - largest) for logit in logits)
        table.append([torch.exp(arch[row, k] - largest) / total for k in range(5)])
    return table


def mean_absolute_deviation(arch: Tensor, relaxation: str) -> float:
    """Return the mean of |p - u| over all edges and operations, u the uniform weight within the softmax of each."""
    deviations = []
    edges = edges_of_rows(len(arch))
    for (head, _), row in zip(edges, relax(arch, relaxation), strict=True):
        uniform = 1 / 5 if relaxation == "darts" else 1 / (5 * head)
        for p in row:
            deviations.append(abs(p.item() - uniform))
    return math.fsum(deviations) / len(deviations)


# --- the cell


class BatchNorm:
    """Batch normalisation without affine parameters; one object normalises every state of a cell."""

    def __init__(self, width: int, training: bool, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        self.running_mean = torch.zeros(width, dtype=torch.float64)
        self.running_var = torch.ones(width, dtype=torch.float64)
        self.training, self.momentum, self.epsilon = training, momentum, epsilon
        self.calls = 0

    def __call__(self, s: Tensor) -> Tensor:
        """Normalise s [B, H]; in training by its own statistics, which are also remembered."""
        if not self.training:
            return (s - self.running_mean) / torch.sqrt(self.running_var + self.epsilon)
        self.calls += 1
        batch = len(s)
        mean = sum(s[b] for b in range(batch)) / batch  # [H]
        squares = sum((s[b] - mean) ** 2 for b in range(batch))  # [H]
        seen_mean, seen_var = mean.detach(), squares.detach() / (batch - 1)  # remembered without bias
        self.running_mean = (1 - self.momentum) * self.running_mean + self.momentum * seen_mean
        self.running_var = (1 - self.momentum) * self.running_var + self.momentum * seen_var
        return (s - mean) / torch.sqrt(squares / batch + self.epsilon)


def leave(s: Tensor) -> Tensor:
    """Normalise nothing."""
    return s


def halves(product: Tensor) -> tuple[Tensor, Tensor]:
    """Return c and z of a product [B, 2H]: gate first, candidate second."""
    width = product.shape[1] // 2
    return product[:, :width], product[:, width:]


def run_relaxed_cell(
    weights: dict[str, Tensor],
    relaxation: str,
    x: Tensor,
    h: Tensor,
    carry: Tensor,
    x_mask: Tensor,
    h_mask: Tensor,
    norm: Any,
) -> Tensor:
    """Return the next hidden state [B, H] from the input x [B, D], the gated state h and what s_0 carries, [B, H]."""
    c, z = halves((x * x_mask) @ weights["weight_input"] + (h * h_mask) @ weights["weight_hidden"])
    s_0 = carry + torch.sigmoid(c) * (torch.tanh(z) - carry)
    return run_relaxed_nodes(weights, relaxation, s_0, h_mask, norm)


def run_relaxed_nodes(weights: dict[str, Tensor], relaxation: str, s_0: Tensor, h_mask: Tensor, norm: Any) -> Tensor:
    """Return the hidden state of each row from s_0; rows are sequences, or tokens of all steps."""
    s = {0: norm(s_0)}
    probabilities = relax(weights["arch"], relaxation)
    edges = edges_of_rows(len(probabilities))
    nodes = edges[-1][0]
    for i in range(1, nodes + 1):
        total = torch.zeros_like(s_0)
        for (head, j), p in zip(edges, probabilities, strict=True):
            if head != i:
                continue
            for k, op in enumerate(OPS):
                if op == "drop":  # contributes nothing, but had its share of the softmax
                    continue
                c, z = halves((s[j] * h_mask) @ weights["weight_nodes"][i - 1])
                total = total + p[k] * (s[j] + torch.sigmoid(c) * (OPERATIONS[op](z) - s[j]))
        s[i] = norm(total)
    return sum(s[i] for i in range(1, nodes + 1)) / nodes


def run_elementwise_sequence(
    weights: dict[str, Tensor], relaxation: str, xs: Tensor, before: Tensor, norm: Any, x_mask: Tensor, h_mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the hidden states [T, B, H] and the last s_0 [B, H]; statistics are those of all tokens together."""
    starts = []
    for x in xs:
        c, z = halves((x * x_mask) @ weights["weight_input"])
        gate = torch.sigmoid(c + weights["weight_hidden"] * h_mask * before)
        before = before + gate * (torch.tanh(z) - before)
        starts.append(before)
    masks = torch.cat([h_mask.expand_as(before)] * len(xs))
    output = run_relaxed_nodes(weights, relaxation, torch.cat(starts), masks, norm)
    return output.view(len(xs), *before.shape), before


# --- the gates


def run_relaxed_gate(weights: dict[str, Tensor], name: str, relaxation: str, entries: list[Tensor]) -> Tensor:
    """Return the output of a relaxed gate over its entry vectors v_1 .. v_m, each [B, E]."""
    m = len(entries)
    s = {}
    probabilities = relax(weights[f"{name}.arch"], relaxation)
    # node i has i - 1 edges, from nodes 1 .. i - 1: the rows of a cell with one node less, counted from 1
    edges = [(head + 1, tail + 1) for head, tail in edges_of_rows(len(probabilities))]  # none without links
    for i in range(1, m + 1):
        logits = weights[f"{name}.arch_entry"][i - 1]
        total = sum(torch.exp(logit - logits.max().item()) for logit in logits)
        s[i] = 0
        for k, op in enumerate(OPS):
            p_entry = torch.exp(logits[k] - logits.max().item()) / total
            s[i] = s[i] + p_entry * OPERATIONS[op](entries[i - 1] @ weights[f"{name}.weight_entry"][i - 1])
        for (head, j), p in zip(edges, probabilities, strict=True):
            if head != i:
                continue
            for k, op in enumerate(OPS):
                s[i] = s[i] + p[k] * OPERATIONS[op](s[j] @ weights[f"{name}.weight_nodes"][i - 1])
    return sum(s.values()) / m


# --- the whole sequence


def run_sequence(
    weights: dict[str, Tensor],
    relaxation: str,
    xs: Tensor,
    state: State | None = None,
    *,
    history: int = 0,
    gate: str = "residual",
    carry: str = "ungated",
    cell: Any = None,
    gates: Any = None,
    norm: Any = leave,
    x_mask: Tensor | None = None,
    h_mask: Tensor | None = None,
) -> tuple[Tensor, State]:
    """Run a supernet over xs [T, B, D]; return its hidden states [T, B, H] and its final state.

    `history` is the length m of both relaxed gates, 0 for none. With a genotype as `cell` the cell is fixed and the
    gates alone are relaxed; with a genotype as `gates` it is the other way round. Without a `state` the sequences start
    from zeros, and so does their history. The masks, [B, D] and [B, H], are those of variational dropout: the same at
    every step.
    """
    batch = xs.shape[1]
    h = xs.new_zeros(batch, len(weights["weight_hidden"])) if state is None else state.hidden
    x_mask = torch.ones_like(xs[0]) if x_mask is None else x_mask
    h_mask = torch.ones_like(h) if h_mask is None else h_mask
    if weights["weight_hidden"].dim() == 1:
        output, s_0 = run_elementwise_sequence(weights, relaxation, xs, h, norm, x_mask, h_mask)
        return output, State(s_0, [], [])

    def gate_of(name: str, past: list[Tensor]) -> Tensor:
        """Return what the gate [B, G] makes of its entry vectors."""
        if gates is None:
            return run_relaxed_gate(weights, name, relaxation, past)
        matrices = weights[f"{name}.weight_entry"], weights[f"{name}.weight_nodes"]
        return torch.stack([run_gate(getattr(gates, name), *matrices, [v[b] for v in past]) for b in range(batch)])

    m_inputs, m_states = history, history
    if gates is not None:
        m_inputs = len(gates.state_gate.nodes) if gates.state_gate else 0
        m_states = len(gates.input_gate.nodes) if gates.input_gate else 0
    past_x = [torch.zeros_like(xs[0])] * m_inputs if state is None else list(state.inputs)  # x_{t-1} .. x_{t-m}
    older_h = [torch.zeros_like(h)] * max(m_states - 1, 0) if state is None else list(state.states)
    past_h = [h, *older_h]  # h_{t-1} .. h_{t-m}
    outputs = []
    for x in xs:
        gated_x, gated_h = x, past_h[0]
        if m_inputs:
            f = gate_of("state_gate", [v * x_mask for v in past_x])
            gated_h = past_h[0] * (1 + f) if gate == "residual" else past_h[0] * f
        if m_states:
            g = gate_of("input_gate", [v * h_mask for v in past_h])
            gated_x = x * (1 + g) if gate == "residual" else x * g
        kept = gated_h if carry == "gated" else past_h[0]
        if cell is None:
            h = run_relaxed_cell(weights, relaxation, gated_x, gated_h, kept, x_mask, h_mask, norm)
        else:
            h = torch.stack(
                [run_cell(cell, weights, gated_x[b], gated_h[b], kept[b], x_mask[b], h_mask[b]) for b in range(batch)]
            )
        outputs.append(h)
        past_x = [x, *past_x][:m_inputs]
        past_h = [h, *past_h][: max(m_states, 1)]
    return torch.stack(outputs), State(past_h[0], past_x, past_h[1:])


# --- deriving


def exact_softmax(logits: list[float]) -> list[Decimal]:
    """Return the softmax to 60 digits; the same numbers in another order, or all shifted alike, tie exactly."""
    with localcontext() as context:
        context.prec = 1500  # differences of any two floats are exact
        largest = max(Decimal(logit) for logit in logits)
        shifted = [Decimal(logit) - largest for logit in logits]
        context.prec = 60
        exponentials = [difference.exp() for difference in shifted]
        total = sum(sorted(exponentials), Decimal(0))
        return [exponential / total for exponential in exponentials]


def strengths(arch: list[list[float]], relaxation: str) -> dict[tuple[int, int, str], Decimal]:
    """Return p of each (head, tail, operation)."""
    edges = edges_of_rows(len(arch))
    table = {}
    for head in sorted({head for head, _ in edges}):
        rows = [row for row, (its_head, _) in enumerate(edges) if its_head == head]
        groups = [[row] for row in rows] if relaxation == "darts" else [rows]
        for group in groups:
            p = exact_softmax([logit for row in group for logit in arch[row]])
            for place, row in enumerate(group):
                for k, op in enumerate(OPS):
                    table[head, edges[row][1], op] = p[5 * place + k]
    return table


def in_order(candidates: dict[tuple[int, str], Decimal]) -> list[tuple[int, str]]:
    """Return (tail, operation) from the strongest to the weakest; ties: smaller tail, then the operations' order."""
    return sorted(candidates, key=lambda edge: (-candidates[edge], edge[0], OPS.index(edge[1])))


def derive_nodes(
    arch: list[list[float]], relaxation: str, edges_per_node: int = 1, avoid_first: bool = False
) -> list[set[tuple[str, int]]]:
    """Return the kept edges (operation, tail) of each node of a cell.

    With DARTS at most one operation per pair is kept, with I-DARTS the strongest (tail, operation) whatever their tail.
    """
    table = strengths(arch, relaxation)
    nodes = []
    for i in range(1, edges_of_rows(len(arch))[-1][0] + 1):
        candidates = {
            (j, op): p
            for (head, j, op), p in table.items()
            if head == i and op != "drop" and not (avoid_first and i > 1 and j == 0)
        }
        ordered = in_order(candidates)
        if relaxation == "darts":
            tails = [j for j, _ in ordered]
            ordered = [edge for place, edge in enumerate(ordered) if edge[0] not in tails[:place]]
        nodes.append({(op, j) for j, op in ordered[:edges_per_node]})
    return nodes


def derive_gate(
    arch_entry: list[list[float]], arch: list[list[float]], relaxation: str, edges_per_node: int = 1
) -> list[tuple[str, set[tuple[str, int]]]]:
    """Return for each node of a gate its entry operation and its kept edges (operation, tail), tails from 1.

    An entry keeps its best operation other than `drop`. With DARTS each pair keeps its best operation, and none if that
    is `drop`; with I-DARTS a node keeps its strongest (tail, operation), and a `drop` among them leaves no edge.
    """
    table = {(head + 1, tail + 1, op): p for (head, tail, op), p in strengths(arch, relaxation).items()}
    nodes = []
    for i, logits in enumerate(arch_entry, start=1):
        p_entry = exact_softmax(logits)
        entry, *_ = in_order({(0, op): p_entry[k] for k, op in enumerate(OPS) if op != "drop"})
        candidates = {(j, op): p for (head, j, op), p in table.items() if head == i}
        kept = in_order(candidates)
        if relaxation == "darts":
            tails = [j for j, _ in kept]
            kept = [edge for place, edge in enumerate(kept) if edge[0] not in tails[:place]]
        else:
            kept = kept[:edges_per_node]
        nodes.append((entry[1], {(op, j) for j, op in kept if op != "drop"}))
    return nodes


def as_sets(nodes: Any) -> list[set[tuple[str, int]]]:
    """The edges into each node of a genotype, none of them twice."""
    for node in nodes:
        assert len(set(node)) == len(node), "an edge twice"
    return [{(edge.op, edge.tail) for edge in node} for node in nodes]
