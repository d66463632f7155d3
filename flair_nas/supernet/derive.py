"""Deriving: reading a genotype off architecture weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from flair_nas.genotype import OPERATIONS, Edge, Gate, GateNode
from flair_nas.supernet.relaxation import ONE_PER_PAIR, group_sizes, relax

Candidate = tuple[float, int, int]  # minus a mixing weight, the tail, the index of the operation: the least is the best
Choice = tuple[list[Candidate], list[Candidate]]  # all candidates, and the kept ones

_DROP, _IDENTITY = OPERATIONS.index("drop"), OPERATIONS.index("identity")


def derive(
    arch: Tensor, relaxation: str, edges_per_node: int = 1, avoid_first: bool = False, most_identity: int | None = None
) -> tuple[tuple[Edge, ...], ...]:
    """Derive the kept edges of each node of a cell.

    DARTS keeps the pairs whose best operation other than drop is strongest, with that operation. I-DARTS keeps the
    strongest (tail, operation) other than drop, over all tails together; two edges may have one tail. Ties break
    towards the smaller tail, then the order of the operations.

    Args:
        arch: architecture weights, [nodes (nodes + 1) / 2, 5], rows by head, then tail.
        relaxation: ``darts`` or ``i-darts``.
        edges_per_node: n. A node with fewer candidates keeps them all: with DARTS node i has i pairs.
        avoid_first: nodes other than the first do not read s_0, as in the code of the I-DARTS authors.
        most_identity: largest number of nodes with an identity edge. Beyond it, the nodes that lose the least are
            derived without identity.

    Returns:
        For each node its edges, as `Genotype` takes them.

    Raises:
        ValueError: a matrix of another shape, or with numbers that are not finite; `edges_per_node` out of range.
        FlairNasError: an unknown relaxation.
    """
    choices = _cell_choices(arch, relaxation, edges_per_node, avoid_first)
    nodes = [kept for _, kept in choices]
    with_identity = [i for i, kept in enumerate(nodes) if any(op == _IDENTITY for _, _, op in kept)]
    if most_identity is not None and len(with_identity) > most_identity:
        without: dict[int, list[Candidate]] = {}
        for i in with_identity:
            others = [candidate for candidate in choices[i][0] if candidate[2] != _IDENTITY]
            without[i] = _keep(others, relaxation, edges_per_node)
        losses = {i: sum(c[0] for c in without[i]) - sum(c[0] for c in nodes[i]) for i in with_identity}
        for i in sorted(with_identity, key=lambda i: (losses[i], i))[: len(with_identity) - most_identity]:
            nodes[i] = without[i]
    return tuple(_edges(kept) for kept in nodes)


def margins(
    arch: Tensor, relaxation: str, edges_per_node: int = 1, avoid_first: bool = False, kind: str = "cell"
) -> list[float]:
    """Compute how clear each choice is, from 0 (a tie) to 1; arguments are those of `derive` and `Relaxed`.

    It is the lead of the weakest kept edge, relative to that edge. Choices without other edges have no number.
    """
    if kind == "cell":
        choices = _cell_choices(arch, relaxation, edges_per_node, avoid_first)
    elif kind == "entries":
        choices = _entry_choices(arch)
    else:
        choices = [choice for node in _link_choices(arch, relaxation, edges_per_node) for choice in node]
    result = []
    for candidates, kept in choices:
        others = [-negative for negative, tail, op in candidates if (negative, tail, op) not in kept]
        if others and kept:
            weakest = min(-negative for negative, _, _ in kept)
            result.append(max(0.0, 1 - max(others) / weakest) if weakest > 0 else 0.0)
    return result


def derive_gate(arch_entry: Tensor, arch: Tensor, relaxation: str, edges_per_node: int = 1) -> Gate:
    """Derive an inter-cell gate from its architecture weights (ESS); errors are those of `derive`.

    An entry keeps its best operation other than drop. Between nodes drop may win, which unlinks them: with DARTS each
    pair keeps its best operation, with I-DARTS each node its n strongest (tail, operation).

    Args:
        arch_entry: architecture weights of the entries, [m, 5].
        arch: those of the edges between nodes, [m (m - 1) / 2, 5], rows by head 2..m, then tail; [0, 5] for no edges.
        relaxation: ``darts`` or ``i-darts``.
        edges_per_node: n of I-DARTS.
    """
    entries = _entry_choices(arch_entry)
    nodes = _link_choices(arch, relaxation, edges_per_node) if len(arch) else [[]] * len(entries)
    edges = [[one for _, kept in choices for one in kept if one[2] != _DROP] for choices in nodes]
    return Gate(tuple(GateNode(OPERATIONS[entry[0][2]], _edges(kept)) for (_, entry), kept in zip(entries, edges)))


def _cell_choices(arch: Tensor, relaxation: str, edges_per_node: int, avoid_first: bool) -> list[Choice]:
    """Return the choice of each node, drop being no candidate."""
    _check(edges_per_node)
    choices = []
    for rows in _relaxed_rows(arch, relaxation):
        first = 1 if avoid_first and len(rows) > 1 else 0
        every = [one for tail, row in enumerate(rows) if tail >= first for one in _rank(row, tail)[1:]]
        candidates = [one for one in every if one[0] < 0] or every  # an edge that is switched off is no candidate
        choices.append((candidates, _keep(candidates, relaxation, edges_per_node)))
    return choices


def _entry_choices(arch_entry: Tensor) -> list[Choice]:
    """Return the choice of each entry of a gate, drop being no candidate."""
    entries = [_rank(row, 0)[1:] for row in _mix(arch_entry, "darts")]
    return [(candidates, [min(candidates)]) for candidates in entries]


def _link_choices(arch: Tensor, relaxation: str, edges_per_node: int) -> list[list[Choice]]:
    """Return for each node of a gate the choices of its edges."""
    _check(edges_per_node)
    nodes: list[list[Choice]] = [[]]
    for rows in _relaxed_rows(arch, relaxation):
        pairs = [_rank(row, tail) for tail, row in enumerate(rows, start=1)]
        if relaxation in ONE_PER_PAIR:
            nodes.append([(pair, [min(pair)]) for pair in pairs])
        else:
            candidates = sorted(one for pair in pairs for one in pair)
            nodes.append([(candidates, [one for one in candidates if one[0] < 0][:edges_per_node])])
    return nodes


def _keep(candidates: list[Candidate], relaxation: str, edges_per_node: int) -> list[Candidate]:
    """Return the strongest candidates; where the operations of a pair exclude one another, one of each pair."""
    if relaxation in ONE_PER_PAIR:
        tails = sorted({tail for _, tail, _ in candidates})
        candidates = [min(one for one in candidates if one[1] == tail) for tail in tails]
    return sorted(candidates)[:edges_per_node]


def _rank(weights: Sequence[float], tail: int) -> list[Candidate]:
    """Return a candidate for each operation of a pair.

    Mixing weights are rounded, since the last bits of a softmax break no tie. A positive one does not become 0.
    """
    return [(-(round(weight, 12) or weight), tail, op) for op, weight in enumerate(weights)]


def _relaxed_rows(arch: Tensor, relaxation: str) -> list[list[list[float]]]:
    """Return the mixing weights of each node, a row per pair."""
    rows = _mix(arch, relaxation)
    ends = torch.tensor([0, *group_sizes(len(arch))]).cumsum(0).tolist()
    return [rows[first:end] for first, end in zip(ends, ends[1:])]


def _mix(arch: Tensor, relaxation: str) -> list[list[float]]:
    """Return mixing weights, [E, 5]. Raise a ValueError for another shape, or numbers that are not finite."""
    if arch.dim() != 2 or arch.shape[1] != len(OPERATIONS):
        raise ValueError(f"architecture weights must be [edges, {len(OPERATIONS)}], got {list(arch.shape)}")
    if not bool(torch.isfinite(arch).all()):
        raise ValueError("architecture weights must be finite, to derive a genotype from them")
    rows: list[list[float]] = relax(arch.detach().double(), relaxation).tolist()
    return rows


def _check(edges_per_node: int) -> None:
    if edges_per_node < 1:
        raise ValueError(f"edges_per_node must be at least 1, got {edges_per_node}")


def _edges(kept: Iterable[Candidate]) -> tuple[Edge, ...]:
    return tuple(Edge(OPERATIONS[op], tail) for _, tail, op in kept)
