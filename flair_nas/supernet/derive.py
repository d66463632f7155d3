"""Deriving: reading a genotype off architecture weights."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from flair_nas.genotype import Edge, Gate, GateNode
from flair_nas.operations import NAMES
from flair_nas.supernet.relaxation import ONE_PER_PAIR, group_sizes, relax


def derive(
    arch: Tensor, relaxation: str, edges_per_node: int = 1, avoid_first: bool = False
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

    Returns:
        For each node its edges, as `Genotype` takes them.

    Raises:
        ValueError: a matrix of another shape, or with numbers that are not finite; `edges_per_node` out of range.
        FlairNasError: an unknown relaxation.
    """
    _check(arch, edges_per_node)
    nodes = []
    for shares in relax(arch.detach().double(), relaxation).split(group_sizes(len(arch))):
        first = 1 if avoid_first and len(shares) > 1 else 0
        candidates = [_ranked(row, tail)[1:] for tail, row in enumerate(shares.tolist()) if tail >= first]  # no drop
        if relaxation in ONE_PER_PAIR:
            candidates = [[min(of_pair)] for of_pair in candidates]
        nodes.append(_strongest((one for of_pair in candidates for one in of_pair), edges_per_node))
    return tuple(nodes)


def derive_gate(arch_entry: Tensor, arch: Tensor, relaxation: str, edges_per_node: int = 1) -> Gate:
    """The inter-cell gate that architecture weights stand for (ESS).

    An entry keeps its best operation other than drop. Between nodes drop may win, which unlinks them: with DARTS each
    pair keeps its best operation, with I-DARTS each node its n strongest (tail, operation).

    Args:
        arch_entry: architecture weights of the entries, [m, 5].
        arch: those of the edges between nodes, [m (m - 1) / 2, 5], rows by head 2..m, then tail.
        relaxation: ``darts`` or ``i-darts``.
        edges_per_node: n of I-DARTS.

    Raises:
        ValueError: as `derive`.
        FlairNasError: an unknown relaxation.
    """
    _check(arch, edges_per_node)
    _check(arch_entry, edges_per_node)
    entries = [min(_ranked(row, 0)[1:])[2] for row in arch_entry.detach().double().softmax(1).tolist()]
    nodes = [GateNode(NAMES[entries[0]])]
    for entry, shares in zip(entries[1:], relax(arch.detach().double(), relaxation).split(group_sizes(len(arch)))):
        candidates = [_ranked(row, tail) for tail, row in enumerate(shares.tolist(), start=1)]
        if relaxation in ONE_PER_PAIR:
            kept = tuple(edge for of_pair in candidates for edge in _strongest(of_pair, 1))
        else:
            kept = _strongest((one for of_pair in candidates for one in of_pair), edges_per_node)
        nodes.append(GateNode(NAMES[entry], tuple(edge for edge in kept if edge.op != NAMES[0])))
    return Gate(tuple(nodes))


def _ranked(shares: list[float], tail: int) -> list[tuple[float, int, int]]:
    """For each operation of a pair what sorts it: share, falling, then tail, then operation.

    Shares are rounded, so that those that are equal but for the last bits of a softmax count as a tie everywhere.
    """
    return [(-round(share, 12), tail, op) for op, share in enumerate(shares)]


def _strongest(candidates: Iterable[tuple[float, int, int]], count: int) -> tuple[Edge, ...]:
    return tuple(Edge(NAMES[op], tail) for _, tail, op in sorted(candidates)[:count])


def _check(arch: Tensor, edges_per_node: int) -> None:
    if arch.dim() != 2 or arch.shape[1] != len(NAMES):
        raise ValueError(f"architecture weights must be [edges, {len(NAMES)}], got {list(arch.shape)}")
    if not bool(torch.isfinite(arch).all()):
        raise ValueError("architecture weights must be finite, to derive a genotype from them")
    if edges_per_node < 1:
        raise ValueError(f"edges_per_node must be at least 1, got {edges_per_node}")
