"""Deriving: reading a genotype off architecture weights."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from flair_nas.genotype import OPERATIONS, Edge, Gate, GateNode
from flair_nas.supernet.relaxation import ONE_PER_PAIR, group_sizes, relax

Ranked = tuple[float, int, int]
"""A candidate: minus its share, its tail, the place of its operation; the smaller, the better."""

_DROP, _IDENTITY = OPERATIONS.index("drop"), OPERATIONS.index("identity")


def derive(
    arch: Tensor,
    relaxation: str,
    edges_per_node: int = 1,
    avoid_first: bool = False,
    most_identity: int | None = None,
) -> tuple[tuple[Edge, ...], ...]:
    """The kept edges of each node of a cell.

    DARTS: the pairs whose best operation other than drop is strongest, with that operation. I-DARTS: the strongest
    (tail, operation) other than drop, over all tails together; two edges may have one tail. Ties break towards the
    smaller tail, then the order of the operations.

    Args:
        arch: architecture weights, [nodes (nodes + 1) / 2, 5], rows by head, then tail.
        relaxation: ``darts`` or ``i-darts``.
        edges_per_node: n. A node with fewer candidates keeps all it has: with DARTS node i has i pairs.
        avoid_first: nodes other than the first do not read s_0, as in the code of the I-DARTS authors.
        most_identity: at most so many nodes with an identity edge; of more, those nodes that lose the least by it are
            derived without identity.

    Returns:
        For each node its edges, as `Genotype` takes them.

    Raises:
        ValueError: a matrix of another shape, or with numbers that are not finite; `edges_per_node` out of range.
        FlairNasError: an unknown relaxation.
    """
    candidates = _candidates(arch, relaxation, edges_per_node, avoid_first)
    kept = [_kept(of_node, relaxation, edges_per_node) for of_node in candidates]
    with_identity = [i for i, found in enumerate(kept) if any(op == _IDENTITY for _, _, op in found)]
    if most_identity is not None and len(with_identity) > most_identity:
        without = {
            i: _kept([one for one in candidates[i] if one[2] != _IDENTITY], relaxation, edges_per_node)
            for i in with_identity
        }
        # negative shares: what a node loses is how much less its edges then have in all
        loss = {i: sum(one[0] for one in without[i]) - sum(one[0] for one in kept[i]) for i in with_identity}
        for i in sorted(with_identity, key=lambda i: (loss[i], i))[: len(with_identity) - most_identity]:
            kept[i] = without[i]
    return tuple(_edges(found) for found in kept)


def margins(arch: Tensor, relaxation: str, edges_per_node: int = 1, avoid_first: bool = False) -> list[float]:
    """How clear each node's choice is: by which share of itself its weakest kept edge is ahead of the strongest other.

    Args:
        arch: as for `derive`, like the rest.
        relaxation: ``darts`` or ``i-darts``.
        edges_per_node: n.
        avoid_first: nodes other than the first do not read s_0.

    Returns:
        A number from 0 (a tie) to 1 for each node; a node that has no other edge to choose is left out.
    """
    of_nodes = _candidates(arch, relaxation, edges_per_node, avoid_first)
    return _margins((of_node, _kept(of_node, relaxation, edges_per_node)) for of_node in of_nodes)


def _margins(choices: Iterable[tuple[list[Ranked], list[Ranked]]]) -> list[float]:
    """The margins of choices, each given as all candidates and those that are kept."""
    found = []
    for candidates, kept in choices:
        others = [-share for share, tail, op in candidates if (share, tail, op) not in kept]
        if others and kept:
            least = min(-share for share, _, _ in kept)
            found.append(max(0.0, 1 - max(others) / least) if least > 0 else 0.0)
    return found


def _candidates(arch: Tensor, relaxation: str, edges_per_node: int, avoid_first: bool) -> list[list[Ranked]]:
    """For each node all (tail, operation) but drop that it can keep."""
    _check(arch, edges_per_node)
    nodes = []
    for shares in relax(arch.detach().double(), relaxation).split(group_sizes(len(arch))):
        first = 1 if avoid_first and len(shares) > 1 else 0
        rows = enumerate(shares.tolist())
        found = [one for tail, row in rows if tail >= first for one in _ranked(row, tail)[1:]]
        nodes.append([one for one in found if one[0] < 0] or found)  # what has been switched off is no candidate
    return nodes


def _kept(of_node: list[Ranked], relaxation: str, edges_per_node: int) -> list[Ranked]:
    """The strongest of a node's candidates; where the operations of a pair exclude one another, one of each pair."""
    if relaxation in ONE_PER_PAIR:
        tails = sorted({tail for _, tail, _ in of_node})
        of_node = [min(one for one in of_node if one[1] == tail) for tail in tails]
    return sorted(of_node)[:edges_per_node]


def derive_gate(arch_entry: Tensor, arch: Tensor | None, relaxation: str, edges_per_node: int = 1) -> Gate:
    """The inter-cell gate that architecture weights stand for (ESS).

    An entry keeps its best operation other than drop. Between nodes drop may win, which unlinks them: with DARTS each
    pair keeps its best operation, with I-DARTS each node its n strongest (tail, operation).

    Args:
        arch_entry: architecture weights of the entries, [m, 5].
        arch: those of the edges between nodes, [m (m - 1) / 2, 5], rows by head 2..m, then tail; None for no edges.
        relaxation: ``darts`` or ``i-darts``.
        edges_per_node: n of I-DARTS.

    Raises:
        ValueError: as `derive`.
        FlairNasError: an unknown relaxation.
    """
    _check(arch_entry, edges_per_node)
    if arch is not None:
        _check(arch, edges_per_node)
    entries = [min(_ranked(row, 0)[1:])[2] for row in arch_entry.detach().double().softmax(1).tolist()]
    if arch is None:
        return Gate(tuple(GateNode(OPERATIONS[entry]) for entry in entries))
    nodes = [GateNode(OPERATIONS[entries[0]])]
    for entry, shares in zip(entries[1:], relax(arch.detach().double(), relaxation).split(group_sizes(len(arch)))):
        pairs = [_ranked(row, tail) for tail, row in enumerate(shares.tolist(), start=1)]
        if relaxation in ONE_PER_PAIR:
            kept = [min(of_pair) for of_pair in pairs]
        else:
            kept = sorted(one for of_pair in pairs for one in of_pair if one[0] < 0)[:edges_per_node]
        nodes.append(GateNode(OPERATIONS[entry], _edges(one for one in kept if one[2] != _DROP)))
    return Gate(tuple(nodes))


def _ranked(shares: list[float], tail: int) -> list[Ranked]:
    """For each operation of a pair what sorts it: share, falling, then tail, then operation.

    Shares are rounded, so that those that are equal but for the last bits of a softmax count as a tie everywhere; none
    that is positive becomes 0.
    """
    return [(-(round(share, 12) or share), tail, op) for op, share in enumerate(shares)]


def gate_margins(arch_entry: Tensor, arch: Tensor | None, relaxation: str, edges_per_node: int = 1) -> list[float]:
    """The same of a gate's choices: a number for each entry, and for each edge, or node, as the relaxation chooses."""
    entries = [_ranked(row, 0)[1:] for row in arch_entry.detach().double().softmax(1).tolist()]
    choices = [(candidates, [min(candidates)]) for candidates in entries]
    if arch is not None and len(arch):
        for shares in relax(arch.detach().double(), relaxation).split(group_sizes(len(arch))):
            pairs = [_ranked(row, tail) for tail, row in enumerate(shares.tolist(), start=1)]
            if relaxation in ONE_PER_PAIR:
                choices += [(of_pair, [min(of_pair)]) for of_pair in pairs]
            else:
                of_node = sorted(one for of_pair in pairs for one in of_pair)
                choices.append((of_node, of_node[:edges_per_node]))
    return _margins(choices)


def _edges(kept: Iterable[Ranked]) -> tuple[Edge, ...]:
    return tuple(Edge(OPERATIONS[op], tail) for _, tail, op in kept)


def _check(arch: Tensor, edges_per_node: int) -> None:
    if arch.dim() != 2 or arch.shape[1] != len(OPERATIONS):
        raise ValueError(f"architecture weights must be [edges, {len(OPERATIONS)}], got {list(arch.shape)}")
    if not bool(torch.isfinite(arch).all()):
        raise ValueError("architecture weights must be finite, to derive a genotype from them")
    if edges_per_node < 1:
        raise ValueError(f"edges_per_node must be at least 1, got {edges_per_node}")
