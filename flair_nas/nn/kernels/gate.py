"""Inter-cell gates on PyTorch's operators, run from their plans; `native/forward.h` has compiled input gates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, reduce

import torch
from torch import Tensor
from torch.nn import functional

from flair_nas.genotype import GATE_FORM_TABLE, OPERATIONS
from flair_nas.nn.kernels.elementwise import FAST_FUNCTIONS, mixed_edges
from flair_nas.nn.kernels.engine import GateProgram
from flair_nas.nn.kernels.plan import GatePlan, PairPlan
from flair_nas.nn.matrix_product import product
from flair_nas.nn.packing import Packing

Multiply = Callable[[int, Tensor], Tensor]
"""Gives the pre-activations of all heads of a node, [k, G, B] or [k, S, G], from its number and state."""


def gate_scale(program: GateProgram, entries: Sequence[Tensor], multiply: Multiply) -> Tensor:
    """Compute the scale of a gate, [G, B] or [S, G] (ESS eq. 5 and 6 in the gate's form).

    Args:
        program: the gate; its mixing weights of pairs are ordered by tail, then head.
        entries: the products v_i W_i^in, m tensors [G, B] or [S, G].
        multiply: multiplies a node's state with the matrices of its heads.
    """
    plan, mixing = program
    states = _relaxed(entries, multiply, *mixing) if mixing else _discrete(plan, entries, multiply)
    return GATE_FORM_TABLE[plan.form].function(reduce(torch.add, states) / len(states))


def _discrete(plan: GatePlan, entries: Sequence[Tensor], multiply: Multiply) -> list[Tensor]:
    """Compute the states of the nodes: op(v_i W_i^in) plus op(s_j W_i) of each edge."""
    states = [FAST_FUNCTIONS[OPERATIONS[code]](entry) for code, entry in zip(plan.entries, entries)]
    for tail, pairs in enumerate(plan.pairs.by_tail):
        if not pairs:
            continue
        for (pair, head), pre in zip(pairs, multiply(tail, states[tail]).unbind()):
            for operation in plan.pairs.operations(pair):
                states[head] = states[head] + FAST_FUNCTIONS[operation](pre)
    return states


def _relaxed(entries: Sequence[Tensor], multiply: Multiply, entry_mixing: Tensor, pair_mixing: Tensor) -> list[Tensor]:
    """Compute the states of the nodes, with a mixture of all operations at each entry and pair."""
    totals = mixed_edges(torch.stack(list(entries)), entry_mixing)  # [m, G, B], the sums of the nodes so far
    if not len(pair_mixing):  # nodes do not read one another
        return list(totals.unbind())
    states: list[Tensor] = []
    for tail, mixing in enumerate(pair_mixing.split([*range(len(entries) - 1, 0, -1)])):  # m - 1 - j pairs of node j
        states.append(totals[0])
        totals = totals[1:] + mixed_edges(multiply(tail, totals[0]), mixing)
    return [*states, totals[0]]


def ordered_by_tail(pairs: PairPlan, mixing: Tensor) -> Tensor:
    """Reorder mixing weights of pairs, [pairs, 5], from head, then tail, to tail, then head."""
    return mixing.index_select(0, _order_by_tail(pairs, mixing.device))


@cache
@torch.inference_mode(False)  # or no gradient could depend on it later
def _order_by_tail(pairs: PairPlan, device: torch.device) -> Tensor:
    return torch.tensor([pair for heads in pairs.by_tail for pair, _ in heads], dtype=torch.long, device=device)


def state_gate_scale(
    program: GateProgram, weight_entry: Tensor, weight_nodes: Tensor, past: Tensor, packing: Packing
) -> Tensor:
    """Compute the scale of each h_{t-1}, [S, H], for the whole sequence at once; it depends on inputs alone.

    Args:
        program: the state gate; its mixing weights of pairs are ordered by head, then tail.
        weight_entry: [m, D, H].
        weight_nodes: [m, H, H].
        past: inputs before the sequence, latest first, and those of the sequence, [m * B + S, D].
        packing: positions of the tokens.
    """
    plan, mixing = program
    history = len(plan.entries)
    products = product(past, weight_entry.transpose(0, 1).flatten(1)).chunk(history, dim=1)  # m times [m * B + S, H]
    # embedding has a faster backward pass than indexing
    entries = [
        functional.embedding(packing.lagged_rows(packing.time, packing.column, lag, history), lagged)  # [S, H]
        for lag, lagged in enumerate(products, start=1)
    ]
    matrices = weight_nodes.unbind()
    by_tail = enumerate(plan.pairs.by_tail)
    stacked = {tail: torch.cat([matrices[head] for _, head in pairs], dim=1) for tail, pairs in by_tail if pairs}

    def multiply(tail: int, state: Tensor) -> Tensor:
        pre = product(state, stacked[tail])  # [S, k * H]
        return pre.view(len(pre), -1, state.shape[1]).transpose(0, 1)  # [k, S, H]

    if mixing is not None:
        mixing = mixing[0], ordered_by_tail(plan.pairs, mixing[1])
    return gate_scale(GateProgram(plan, mixing), entries, multiply)
