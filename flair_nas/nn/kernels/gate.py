"""Inter-cell gates by their plans: a state gate for a whole sequence at once, an input gate a step at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, reduce

import torch
from torch import Tensor
from torch.nn import functional

from flair_nas.genotype import OPERATIONS
from flair_nas.nn.kernels.elementwise import FAST_FUNCTIONS, mixed_edges
from flair_nas.nn.kernels.plan import GatePlan, PairPlan
from flair_nas.nn.operations import FORMS, product
from flair_nas.nn.packing import Packing

Multiply = Callable[[int, Tensor], Tensor]
"""Gives the pre-activations of all heads of a node, [k, G, B] or [k, S, G], from its number and state."""


def gate_factor(
    plan: GatePlan,
    entries: Sequence[Tensor],
    multiply: Multiply,
    shares: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """What a gate multiplies a vector with (ESS eq. 5 and 6 in their form).

    Args:
        plan: its plan.
        entries: the products v_i W_i^in, m tensors [G, B] or [S, G].
        multiply: multiplies a node's state with the matrices of its heads.
        shares: of a relaxed gate those of its entries, [m, 5], and those of its pairs by tail, then head, [pairs, 5].

    Returns:
        [G, B] or [S, G].
    """
    states = _relaxed(entries, multiply, *shares) if shares else _discrete(plan, entries, multiply)
    return FORMS[plan.form].factor(reduce(torch.add, states) / len(states))


def _discrete(plan: GatePlan, entries: Sequence[Tensor], multiply: Multiply) -> list[Tensor]:
    """The states of the nodes: op(v_i W_i^in) and, from each node it reads, op(s_j W_i)."""
    states = [FAST_FUNCTIONS[OPERATIONS[code]](entry) for code, entry in zip(plan.entries, entries)]
    for tail, pairs in enumerate(plan.pairs.by_tail()):
        if not pairs:
            continue
        for (pair, head), pre in zip(pairs, multiply(tail, states[tail]).unbind()):
            for operation in plan.pairs.operations(pair):
                states[head] = states[head] + FAST_FUNCTIONS[operation](pre)
    return states


def _relaxed(entries: Sequence[Tensor], multiply: Multiply, of_entries: Tensor, of_pairs: Tensor) -> list[Tensor]:
    """The same with a mixture of all operations at each entry and pair."""
    totals = mixed_edges(torch.stack(list(entries)), of_entries)  # [m, G, B], what the nodes have so far
    if not len(of_pairs):  # nodes do not read one another
        return list(totals.unbind())
    states: list[Tensor] = []
    for tail, of_tail in enumerate(of_pairs.split([*range(len(entries) - 1, 0, -1)])):  # m - 1 - j pairs of node j
        states.append(totals[0])
        totals = totals[1:] + mixed_edges(multiply(tail, totals[0]), of_tail)
    return [*states, totals[0]]


def ordered_by_tail(pairs: PairPlan, shares: Tensor) -> Tensor:
    """Shares of pairs by head, then tail, as the plan has them, in the order by tail, then head; [pairs, 5] both."""
    return shares.index_select(0, _places(pairs, shares.device))


@cache
@torch.inference_mode(False)  # or no gradient could depend on it later
def _places(pairs: PairPlan, device: torch.device) -> Tensor:
    return torch.tensor([pair for of_tail in pairs.by_tail() for pair, _ in of_tail], dtype=torch.long, device=device)


def state_gate_factor(
    plan: GatePlan,
    weight_entry: Tensor,
    weight_nodes: Tensor,
    shares: tuple[Tensor, Tensor] | None,
    past: Tensor,
    packing: Packing,
) -> Tensor:
    """What the state gate multiplies each h_{t-1} with, for the whole sequence: it depends on inputs alone.

    Args:
        plan: of the gate.
        weight_entry: [m, D, H].
        weight_nodes: [m, H, H].
        shares: of a relaxed gate, of its entries and of its pairs by head, then tail; else None.
        past: inputs before the sequence, latest first, and those of the sequence, [m * B + S, D].
        packing: where the tokens lie.

    Returns:
        [S, H].
    """
    history = len(plan.entries)
    products = product(past, weight_entry.transpose(0, 1).flatten(1)).chunk(history, dim=1)  # m times [m * B + S, H]
    # as an embedding, whose backward pass is faster than that of indices
    entries = [
        functional.embedding(packing.lagged_rows(packing.time, packing.column, lag, history), of_lag)  # [S, H]
        for lag, of_lag in enumerate(products, start=1)
    ]
    matrices = weight_nodes.unbind()
    stacked = [
        torch.cat([matrices[head] for _, head in pairs], dim=1) if pairs else None  # [H, k * H]
        for pairs in plan.pairs.by_tail()
    ]

    def multiply(tail: int, state: Tensor) -> Tensor:
        matrix = stacked[tail]
        assert matrix is not None
        pre = product(state, matrix)  # [S, k * H]
        return pre.view(len(pre), -1, state.shape[1]).transpose(0, 1)  # [k, S, H]

    relaxed = None if shares is None else (shares[0], ordered_by_tail(plan.pairs, shares[1]))
    return gate_factor(plan, entries, multiply, relaxed)
