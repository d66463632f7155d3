"""The engine `columns` on PyTorch's operators, for GPUs and for machines without a compiler.

Vectors are columns, [E, B]. With small B, W^T s of two contiguous matrices is faster than s W. Splitting
[gate | candidate] leaves contiguous parts. All heads of a node share one product.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from functools import partial, reduce

import torch
from torch import Tensor

from flair_nas.nn.kernels.elementwise import FUNCTIONS, highway_edges, mixed_highway_edges
from flair_nas.nn.kernels.engine import GateProgram, Normalisation, Recurrence
from flair_nas.nn.kernels.gate import Multiply, gate_scale, ordered_by_tail
from flair_nas.nn.kernels.plan import CellPlan, PairPlan
from flair_nas.nn.kernels.sequence_gradient import Products, run_sequence
from flair_nas.nn.matrix_product import masked


def run(recurrence: Recurrence, sources: Mapping[str, Tensor]) -> Tensor:
    """Run a recurrence; arguments and returns as `flair_nas.nn.kernels.engine.Engine`."""
    columns = {
        name: sources[name].transpose(-1, -2).contiguous()  # [H, B], [m - 1, H, B], [D, S], [H, S], [W, S]
        for name in ("hidden", "past", "data", "hidden_scale", "projected")
        if name in sources
    }
    if "mixing" in sources:
        columns["mixing"] = ordered_by_tail(recurrence.cell.pairs, sources["mixing"])
    if "entry_mixing" in sources:
        assert recurrence.gate is not None
        columns["entry_mixing"] = sources["entry_mixing"]
        columns["gate_mixing"] = ordered_by_tail(recurrence.gate.pairs, sources["gate_mixing"])
    return run_sequence(partial(_loop, recurrence), _weights(recurrence, sources), columns).t().contiguous()


def _weights(recurrence: Recurrence, sources: Mapping[str, Tensor]) -> dict[Hashable, Tensor]:
    """Return the matrices of a recurrence as `Products` takes them, transposed once per sequence.

    ``hidden`` is [W, H]. For each state j that others read, ``j`` is [k * W, H]: the matrices of its k heads, first all
    gate rows, then all candidates. An input gate adds ``input``, [W, D], and ``entry``, [m * D, H]. For each of its
    nodes j that others read, it adds ``("gate", j)``, [k * D, D].
    """
    plan, dtype = recurrence.cell, recurrence.product  # cast once here, not at every step
    weights: dict[Hashable, Tensor] = {"hidden": _transposed(sources["weight_hidden"].to(dtype))}
    sides = 2 if plan.highway else 1
    nodes = [node.chunk(sides, dim=1) for node in sources["weight_nodes"].to(dtype).unbind()]  # [H, H] each
    weights |= _stacked_heads(plan.pairs, [(), *(nodes[number - 1] for number in plan.nodes)])
    if recurrence.gate is not None:
        weights["input"] = _transposed(sources["weight_input"].to(dtype))
        weights["entry"] = _transposed(sources["weight_entry"].to(dtype).transpose(0, 1).flatten(1))
        inner: list[tuple[Tensor, ...]] = [(matrix,) for matrix in sources["weight_gate"].to(dtype).unbind()]
        weights |= {("gate", tail): matrix for tail, matrix in _stacked_heads(recurrence.gate.pairs, inner).items()}
    return weights


def _stacked_heads(pairs: PairPlan, nodes: list[tuple[Tensor, ...]]) -> dict[Hashable, Tensor]:
    """Stack the transposed matrices of each node's heads, by tail, [k · W, H]."""
    stacked: dict[Hashable, Tensor] = {}
    for tail, heads in enumerate(pairs.by_tail):
        if heads:
            sides = zip(*(nodes[head] for _, head in heads))
            stacked[tail] = torch.cat([part.t() for side in sides for part in side])
    return stacked


def _transposed(weight: Tensor) -> Tensor:
    return weight.t().contiguous()


def _loop(recurrence: Recurrence, products: Products, **sources: Tensor) -> Tensor:
    """Compute the packed output, [H, S], from the sources of an engine as columns, mixing weights ordered by tail."""
    mask = None if recurrence.mask is None else _transposed(recurrence.mask)  # [H, B]
    sizes = list(recurrence.sizes)
    hidden = sources["hidden"]
    gate = None
    steps = sources["projected" if recurrence.gate is None else "data"].split(sizes, dim=1)  # T tensors [W or D, B_t]
    scales = sources["hidden_scale"].split(sizes, dim=1) if "hidden_scale" in sources else None
    if recurrence.gate is not None:
        relaxed = (sources["entry_mixing"], sources["gate_mixing"]) if "entry_mixing" in sources else None
        gate = GateProgram(recurrence.gate, relaxed)

    def enter(state: Tensor) -> tuple[Tensor, ...]:
        return torch.split(products("entry", masked(state, mask)), recurrence.input_size)

    def multiply(tail: int, state: Tensor) -> Tensor:
        return products(tail, masked(state, mask))

    def multiply_gate(tail: int, state: Tensor) -> Tensor:
        return products(("gate", tail), state).view(-1, *state.shape)  # [k, D, B]

    # entry i - 1 has the products of h_{t-i} with the m entry matrices, m tensors [D, B]
    past = [enter(state) for state in sources["past"]] if gate is not None else []
    history = deque(past, maxlen=len(past) + 1)
    outputs: list[Tensor] = []
    for t, (size, step) in enumerate(zip(sizes, steps)):
        if size < hidden.shape[1]:  # the shortest sequences have ended
            hidden = hidden[:, :size]
            mask = None if mask is None else mask[:, :size]
        if gate is not None:
            history.appendleft(enter(hidden))
            entries = [entered[i][:, :size] for i, entered in enumerate(history)]
            step = products("input", step * gate_scale(gate, entries, multiply_gate))
        gated = hidden if scales is None else hidden * scales[t]  # ĥ_{t-1}
        pre = step + products("hidden", masked(gated, mask))  # [c_0 | z_0], [W, B]
        carry = gated if recurrence.cell.gated_carry else hidden
        hidden = _step(recurrence, pre, carry, multiply, sources.get("mixing"))
        outputs.append(hidden)
    return torch.cat(outputs, dim=1)


def _step(recurrence: Recurrence, pre: Tensor, carry: Tensor, multiply: Multiply, mixing: Tensor | None) -> Tensor:
    """Compute h_t, [H, B], from the pre-activations of s_0, [W, B], and the carry, [H, B]."""
    plan = recurrence.cell
    if not plan.highway:
        return _discrete(plan, torch.tanh(pre), multiply, _plain_edges)
    (state,) = highway_edges(pre, carry, [("tanh",)])
    if mixing is None:
        return _discrete(plan, state, multiply, highway_edges)
    return _relaxed(plan, state, multiply, mixing, recurrence.normalisation)


def _discrete(plan: CellPlan, state: Tensor, multiply: Multiply, edges: Callable[..., list[Tensor]]) -> Tensor:
    """Compute h_t of a discrete cell from s_0; `edges` takes the arguments of `highway_edges`."""
    totals: dict[int, Tensor] = {0: state}  # by state, the sum of its edges so far
    output: Tensor | None = None
    for number, pairs in enumerate(plan.pairs.by_tail):
        state = totals.pop(number)
        if plan.scale[number] != 1:
            state = state * plan.scale[number]
        if plan.output[number]:
            output = state if output is None else output + state
        if pairs:
            values = edges(multiply(number, state), state, [plan.pairs.operations(pair) for pair, _ in pairs])
            for (_, head), value in zip(pairs, values):
                totals[head] = totals[head] + value if head in totals else value
    assert output is not None
    weight = max(plan.output)  # all output nodes have the same
    return output if weight == 1 else output * weight


def _plain_edges(pre: Tensor, state: Tensor, heads: list[tuple[str, ...]]) -> list[Tensor]:
    """Compute op(z), summed over a head's operations, for each head."""
    return [
        reduce(torch.add, [FUNCTIONS[operation](value) for operation in operations])
        for value, operations in zip(pre.chunk(len(heads)), heads)
    ]


def _relaxed(
    plan: CellPlan, state: Tensor, multiply: Multiply, mixing: Tensor, normalisation: Normalisation | None
) -> Tensor:
    """Compute h_t of a supernet's cell from s_0: each node passes a mixture of all operations to each later node."""

    def normalised(state: Tensor) -> Tensor:
        return state if normalisation is None else normalisation(state[None])[0]

    state = normalised(state)
    totals: Tensor | None = None
    outputs: list[Tensor] = []
    for tail, weights in enumerate(mixing.split([*range(len(plan.nodes), 0, -1)])):
        values = mixed_highway_edges(multiply(tail, state), state, weights)  # [N - j, H, B], to nodes j + 1..N
        totals = values if totals is None else totals[1:] + values
        state = normalised(totals[0])
        outputs.append(state)
    return torch.stack(outputs).mean(0)
